"""Switches' queues: a message may be ahead of the narrowest link on its way.

Without them (flows.py) a message leaves its sender's card no faster than the narrowest link takes it. TCP
does not know that link: it sends as fast as the card lets it until a window is under way, and what the
link has not taken waits in a queue before it. The card is free for others the sooner.

As a fluid in two stages: the sender's card, and the rest of the way. A message is *whole*, one flow over all
links, as long as its queue stays empty (the card holds it back) or full (the rest does); while the queue
grows or shrinks it is two flows, each held back by its own links alone.
"""

from collections.abc import Callable

import simpy
from simpy.events import EventPriority

from lockstep.simulator.events import Aside, Timeout
from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Flow, Link

_LAST = EventPriority(10)  # once the rates of an instant are known
_SAME = 1e-9  # relative: rates and sizes that differ by less are equal but for rounding


class Queues:
    """Carries messages over flows; of each at most `room` bytes wait in a switch."""

    def __init__(self, flows: Flows, room: float) -> None:
        self.flows = flows
        flows.listened = True
        self.room = room
        self._told: dict[_Message, None] = {}

    def start(
        self,
        path: tuple[Link, ...],
        nbytes: float,
        sent: Callable[[], object],
        done: Callable[[], object],
        *,
        comes: bool = True,
    ) -> None:
        """Send bytes over two links or more; `sent` is called when the last has left the first of them.

        `done` is called when it has left the last one. `comes`: see `Flows.add`.
        """
        _Message(self, path, nbytes, sent, done).join(nbytes, comes=comes)

    def look_at(self, message: "_Message") -> None:
        """Look at a message once the rates of this instant are known."""
        if not self._told:
            Timeout(self.flows.environment, 0.0, self._look, _LAST)
        self._told[message] = None

    def _look(self, _: simpy.Event) -> None:
        told, self._told = self._told, {}
        for message in told:
            message.look()


class _Part(Flow):
    """A flow of a message, which hears when the flow is held back by another link, and when it is done."""

    __slots__ = ("_done", "_message")
    listens = True

    def __init__(
        self, message: "_Message", path: tuple[Link, ...], size: float, done: Callable[[], object]
    ) -> None:
        super().__init__(path, size)
        self._message, self._done = message, done

    @property
    def altogether(self) -> float:
        return self._message.nbytes

    def lengthened(self, nbytes: float) -> None:
        self._message.lengthened(self, nbytes)

    def moved(self) -> None:
        self._message.told()

    def done(self) -> object:
        return self._done()


class _Message:
    """One on its way: `whole`, or `up` and `down`; `up` is over first."""

    __slots__ = ("_path", "_plan", "_queues", "done", "down", "nbytes", "sent", "up", "waiting", "whole")

    def __init__(
        self,
        queues: Queues,
        path: tuple[Link, ...],
        nbytes: float,
        sent: Callable[[], object],
        done: Callable[[], object],
    ) -> None:
        self._queues = queues
        self._path = path
        self.nbytes = nbytes
        self.sent, self.done = sent, done
        self.waiting = 0.0  # bytes in the queue, while it is whole
        self.whole: Flow | None = None
        self.up: Flow | None = None
        self.down: Flow | None = None
        self._plan: Aside | None = None  # to look again

    def told(self) -> None:
        """Rates have changed, or are going to in this instant."""
        self._queues.look_at(self)

    def join(self, left: float, *, comes: bool = False) -> None:
        """Let the bytes that have not left the card go over all links at once."""
        self.up = self.down = None
        self.whole = _Part(self, self._path, left, self._whole_done)
        self._queues.flows.add(self.whole, comes=comes)
        if self.whole.owner is not None:  # else the flow is going to hear
            self.told()

    def look(self) -> None:
        """Part or join where the queue begins or ends to change."""
        if self.whole is not None:
            self._look_at_whole(self.whole)
        elif self.up is not None and self.down is not None:
            self._look_at_parts(self.up, self.down)

    def _look_at_whole(self, whole: Flow) -> None:
        owner = whole.owner
        grows = owner is not self._path[0]
        if owner is not None and grows == (self.waiting == 0):
            self._part(whole)

    def _part(self, whole: Flow) -> None:
        flows = self._queues.flows
        left = whole.left(flows.environment.now)
        flows.cancel(whole)
        self.whole = None
        self.up = _Part(self, self._path[:1], left, self._up_done)
        self.down = _Part(self, self._path[1:], left + self.waiting, self._down_done)
        for link in self._path:
            link.listeners[self] = None
        flows.add(self.up, comes=False)
        flows.add(self.down, comes=False)
        self.told()

    def lengthened(self, part: Flow, nbytes: float) -> None:
        """A part of it carries so many bytes more, and so does the other: as much waits between them."""
        for other in (self.up, self.down):
            if other is not None and other is not part and other in other.path[0].flows:
                self._queues.flows.lengthen(other, nbytes)

    def _look_at_parts(self, up: Flow, down: Flow) -> None:
        if up.owner is None or down.owner is None:  # it is going to hear when they have one
            return
        now, room = self._queues.flows.environment.now, self._queues.room
        left, growth = up.left(now), up.owner.rate - down.owner.rate
        queued = down.left(now) - left
        if abs(growth) <= _SAME * up.owner.rate:
            return
        change = room - queued if growth > 0 else -queued
        too_soon = now + abs(change / growth) == now  # for the clock: it would be looked at for ever
        if too_soon or abs(change) <= _SAME * (room + down.size):
            self._unite(left, room if growth > 0 else 0.0)
        elif left * abs(growth) > up.owner.rate * abs(change):  # else the card is done before that
            self._plan = Aside(self._queues.flows.environment, change / growth, self._look_as_planned)

    def _look_as_planned(self, plan: Aside) -> None:
        if self._plan is plan:
            self.told()

    def _unite(self, left: float, waiting: float) -> None:
        for part in (self.up, self.down):
            assert part is not None
            self._queues.flows.cancel(part)
        self._unlisten()
        self.waiting = waiting
        self.join(left)

    def _unlisten(self) -> None:
        self._plan = None
        for link in self._path:
            del link.listeners[self]

    def _up_done(self) -> None:
        if self.up is not None:
            self.up = None
            self._unlisten()
            self.sent()

    def _down_done(self) -> None:
        if self.up is not None:  # it ends in this instant too
            self._queues.flows.cancel(self.up)
            self._up_done()
        self.done()

    def _whole_done(self) -> None:
        self.whole = None
        self.sent()
        if self.waiting:
            self._queues.flows.add(_Part(self, self._path[1:], self.waiting, self.done), comes=False)
        else:
            self.done()
