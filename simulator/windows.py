"""TCP: connections hand their bytes to their host's card as their windows let them; it sends in that order.

The fluid (flows.py) gives every message its share of a card at once. A real card sends what it was given
first: a small message waits behind all that others have handed over, which is up to a window of each
connection. And a connection that is new, or has been silent, has a small window, which grows by what is
acknowledged (slow start: RFC 5681; 10 segments at first: RFC 6928; after a pause as in Linux's
`tcp_cwnd_restart`), so that over a long latency it sends in rounds.

Bytes are handed over in pieces. A card sends one piece at a time, as fast as it can; what the rest of the
way does not take at once waits in a switch (queues.py).
"""

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from lockstep.scenarios.network import Tcp
from lockstep.simulator.events import Timeout
from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Link
from lockstep.simulator.queues import Queues

if TYPE_CHECKING:
    from lockstep.simulator.network import Connection, Transfer

PIECE = 2**16  # bytes: what Linux hands to a card at a time (segmentation offload)
PIECES = 1000  # of a message, at most: those of a long one are longer


class Windows:
    """Carries messages between hosts."""

    def __init__(self, flows: Flows, tcp: Tcp) -> None:
        self.environment = flows.environment
        self.queues = Queues(flows, 2 * tcp.window)  # never full: no piece is longer than a window
        self.window, self.initial_window, self.idle = int(tcp.window), int(tcp.initial_window), tcp.idle
        self._streams: dict[Connection, _Stream] = {}
        self._cards: dict[Link, _Card] = {}

    def send(self, transfer: "Transfer") -> None:
        """Send a message after those of its connection."""
        connection = transfer.connection
        stream = self._streams.get(connection)
        if stream is None:
            card = self._cards.setdefault(connection.path[0], _Card(self.queues))
            stream = self._streams[connection] = _Stream(self, connection, card)
        stream.send(transfer)


class _Message:
    """One whose bytes are handed over; pieces of it are on their way."""

    __slots__ = ("piece", "pieces", "transfer", "unsent")

    def __init__(self, transfer: "Transfer") -> None:
        self.transfer = transfer
        self.unsent = transfer.nbytes  # not handed over
        self.piece = max(PIECE, -(-self.unsent // PIECES))
        self.pieces = 0  # handed over, and not there


class _Stream:
    """The messages of one connection."""

    __slots__ = (
        *("_acknowledged", "_card", "_connection", "_last", "_on_their_way", "_under_way", "_waiting"),
        *("_wakes", "_window", "_windows"),
    )

    def __init__(self, windows: Windows, connection: "Connection", card: "_Card") -> None:
        self._windows, self._connection, self._card = windows, connection, card
        self._window = windows.initial_window
        self._under_way = 0  # bytes that were handed over, and are not acknowledged
        self._acknowledged = deque[tuple[float, int]]()  # from when on, and how many bytes
        self._last = 0.0  # when it last handed something over
        self._wakes = False  # when the next are acknowledged
        self._waiting = deque[_Message]()  # messages that were not handed over whole
        self._on_their_way = deque[_Message]()  # those that were, and are not there

    def send(self, transfer: "Transfer") -> None:
        """Send a message after those before it."""
        self._waiting.append(_Message(transfer))
        self._hand_over(self._windows.environment.now)

    def _hand_over(self, now: float) -> None:
        """Hand over what the window has room for."""
        windows, acknowledged = self._windows, self._acknowledged
        while acknowledged and acknowledged[0][0] <= now:
            nbytes = acknowledged.popleft()[1]
            self._under_way -= nbytes
            self._window = min(windows.window, self._window + nbytes)
        if not self._under_way and self._window > windows.initial_window:
            timeouts = (now - self._last) // (windows.idle + 2 * self._connection.latency)
            self._window = max(windows.initial_window, int(self._window * 0.5**timeouts))
        while self._waiting:
            message = self._waiting[0]
            nbytes = min(message.piece, message.unsent, self._window - self._under_way)
            if nbytes <= 0 < message.unsent:
                break
            message.unsent -= nbytes
            message.pieces += 1
            self._under_way += nbytes
            self._last = now
            if not message.unsent:
                self._on_their_way.append(self._waiting.popleft())
            self._card.take(nbytes, self, message, not message.unsent)
        self._wake(now)

    def arrived(self, nbytes: int, message: _Message) -> None:
        """A piece has passed all links: it is there a latency later, acknowledged after another."""
        now = self._windows.environment.now
        message.pieces -= 1
        while self._on_their_way and not self._on_their_way[0].pieces:
            self._on_their_way.popleft().transfer.done()
        self._acknowledged.append((now + 2 * self._connection.latency, nbytes))
        self._wake(now)

    def _wake(self, now: float) -> None:
        """Come back when there is room, if messages wait for it."""
        if self._waiting and self._acknowledged and not self._wakes:
            self._wakes, at = True, self._acknowledged[0][0]
            Timeout(self._windows.environment, max(0.0, at - now), lambda _: self._woken(at))

    def _woken(self, at: float) -> None:
        self._wakes = False
        self._hand_over(max(at, self._windows.environment.now))  # the clock's may be a rounding before it

    @property
    def path(self) -> tuple[Link, ...]:
        return self._connection.path


class _Card:
    """Sends pieces in the order in which it got them: bytes of a message, whether they are its last."""

    __slots__ = ("_busy", "_pieces", "_queues")

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._pieces = deque[tuple[int, _Stream, _Message, bool]]()
        self._busy = False

    def take(self, nbytes: int, stream: _Stream, message: _Message, last: bool) -> None:
        """Send a piece when all before it have left."""
        self._pieces.append((nbytes, stream, message, last))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        self._busy = True
        while self._pieces:
            nbytes, stream, message, last = self._pieces.popleft()
            arrived = partial(stream.arrived, nbytes, message)
            if nbytes:
                sent = partial(self._sent, message.transfer if last else None)
                self._queues.start(stream.path, nbytes, sent, arrived)
                return
            arrived()  # messages of no bytes wait for those before them, too
        self._busy = False

    def _sent(self, transfer: "Transfer | None") -> None:
        if transfer is not None:
            transfer.sent()
        self._next()
