"""A network of packets, as an oracle for the fluid: cards that take turns, and windows."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any


@dataclass(eq=False)
class _Message:
    number: int
    cards: tuple[int, int]  # the sender's and the receiver's
    unsent: float
    queued: float = 0.0  # before the receiver's card
    under_way: float = 0.0  # sent, and not there
    left: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.unsent


class Packets:
    """Hosts on one switch; each card, in either direction, serves the messages that have some in turns."""

    def __init__(self, rate: float, window: float, packet: float) -> None:
        self.rate, self.window, self.packet = rate, window, packet
        self.now = 0.0
        self.arrivals: dict[int, float] = {}
        self._events: list[Any] = []
        self._numbers = count()
        self._turns: dict[Any, deque[_Message]] = defaultdict(deque)
        self._busy: set[Any] = set()
        self._there: set[Any] = set()  # which message waits, or is served, at which card

    def deliver(self, sends: Sequence[tuple[float, int, int, float]]) -> list[float]:
        """When each message (time, sender, receiver, bytes) has arrived."""
        for number, (at, sender, receiver, nbytes) in enumerate(sends):
            self._at(at, self._offer, _Message(number, (sender, receiver), nbytes))
        while self._events:
            self.now, _, call, arguments = heappop(self._events)
            call(*arguments)
        return [self.arrivals[number] for number in range(len(sends))]

    def _at(self, when: float, call: Any, *arguments: Any) -> None:
        heappush(self._events, (when, next(self._numbers), call, arguments))

    def _offer(self, message: _Message) -> None:
        if message.unsent > 0 and message.under_way < self.window:
            self._queue(("up", message.cards[0]), message)
        if message.queued > 0:
            self._queue(("down", message.cards[1]), message)

    def _queue(self, card: Any, message: _Message) -> None:
        if (card, message) not in self._there:
            self._there.add((card, message))
            self._turns[card].append(message)
            self._serve(card)

    def _serve(self, card: Any) -> None:
        if card in self._busy or not self._turns[card]:
            return
        message = self._turns[card].popleft()
        if card[0] == "up":
            size = min(self.packet, message.unsent, self.window - message.under_way)
            message.unsent -= size
            message.under_way += size
        else:
            size = min(self.packet, message.queued)
            message.queued -= size
        self._busy.add(card)
        self._at(self.now + size / self.rate, self._served, card, message, size)

    def _served(self, card: Any, message: _Message, size: float) -> None:
        self._busy.remove(card)
        self._there.remove((card, message))
        if card[0] == "up":
            message.queued += size
        else:
            message.under_way -= size
            message.left -= size
            if message.left <= 1e-9:
                self.arrivals[message.number] = self.now
        self._offer(message)
        self._serve(card)
