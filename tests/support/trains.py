"""Cards that send trains of frames, as Linux's htb does: what carries messages instead of the fluid.

Every card, in either direction, is one bucket. The pairs that wait there take turns (deficit round robin)
with whole trains; a train goes as soon as there are tokens, and owes them. Of a connection two trains wait at
the sender's card, and a window of bytes is under way.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import simpy

from lockstep.scenarios import Network as Section
from lockstep.simulator.events import Timeout
from lockstep.simulator.network import Network, Transfer

_AT_CARD = 2  # trains of a connection
_NOTHING = 1e-3  # bytes: less is rounding, not tokens
Pair = tuple[int, int]


class _Card:
    def __init__(self, environment: simpy.Environment, rate: float, bucket: float, train: float) -> None:
        self._environment, self._rate, self._bucket, self._quantum = environment, rate, bucket, train
        self._tokens, self._since, self._waits = bucket, 0.0, False
        self._queues: dict[Pair, deque[tuple[float, Callable[[], object]]]] = defaultdict(deque)
        self._left: dict[Pair, float] = defaultdict(float)  # of each pair's turn
        self._turn: Pair = (0, 0)

    def put(self, pair: Pair, nbytes: float, left: Callable[[], object]) -> None:
        self._queues[pair].append((nbytes, left))
        if not self._waits:
            self._serve()

    def _serve(self, _: Any = None) -> None:
        self._waits = False
        while waiting := sorted(pair for pair, queue in self._queues.items() if queue):
            now = self._environment.now
            self._tokens = min(self._bucket, self._tokens + self._rate * (now - self._since))
            self._since = now
            if self._tokens < -_NOTHING:
                self._waits = True
                Timeout(self._environment, -self._tokens / self._rate, self._serve)
                return
            pair = next((each for each in waiting if each >= self._turn), waiting[0])
            nbytes, left = self._queues[pair].popleft()
            self._left[pair] -= nbytes
            self._turn = pair
            if self._left[pair] < 0:
                self._left[pair] += self._quantum
                self._turn = (pair[0], pair[1] + 1)
            self._tokens -= nbytes
            left()


class Trains:
    """All cards of a network. Sizes are bytes of data, and so is the rate (bytes/s)."""

    def __init__(self, environment: simpy.Environment, section: Section) -> None:
        burst, goodput = section.burst, section.goodput
        assert burst is not None
        assert section.bandwidth is not None
        self._train, self._first, self._window = burst.train, burst.first, section.queue
        card = partial(_Card, environment, section.bandwidth * goodput, burst.size * goodput, burst.train)
        self._cards: dict[tuple[str, int], _Card] = defaultdict(card)

    def carry(self, pair: Pair, transfer: Transfer) -> None:
        """Send a message from the first host of the pair to the second."""
        trains, under_way, at_card = deque(self._cut(transfer.nbytes)), 0.0, 0
        left = len(trains)
        up, down = self._cards["up", pair[0]], self._cards["down", pair[1]]

        def feed() -> None:
            nonlocal under_way, at_card
            while trains and at_card < _AT_CARD and under_way + trains[0] <= max(self._window, trains[0]):
                nbytes = trains.popleft()
                under_way, at_card = under_way + nbytes, at_card + 1
                up.put(pair, nbytes, partial(gone, nbytes, not trains))

        def gone(nbytes: float, last: bool) -> None:
            nonlocal at_card
            at_card -= 1
            if last:
                transfer.sent()
            down.put(pair, nbytes, partial(there, nbytes))
            feed()

        def there(nbytes: float) -> None:
            nonlocal under_way, left
            under_way, left = under_way - nbytes, left - 1
            feed()
            if not left:
                transfer.done()

        feed()

    def _cut(self, nbytes: float) -> list[float]:
        """A message as trains."""
        pieces = [self._first, nbytes - self._first] if self._first and nbytes > self._first else [nbytes]
        return [
            min(self._train, piece - before)
            for piece in pieces
            for before in range(0, int(piece), int(self._train))
        ]


def carried_in_trains(monkeypatch: pytest.MonkeyPatch, section: Section) -> None:
    """Let simulations of this test, of one process a host, send over such cards."""
    cards: dict[Network, Trains] = {}

    def begin(network: Network, transfer: Transfer) -> None:
        transfer.connection.busy = True
        if not transfer.nbytes:
            transfer.done()
            return
        trains = cards.setdefault(network, Trains(network.environment, section))
        pair = next(pair for pair, each in network._connections.items() if each is transfer.connection)
        trains.carry((network.host_of[pair[0]], network.host_of[pair[1]]), transfer)

    monkeypatch.setattr(Network, "begin", begin)
