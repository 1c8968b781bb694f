"""Rings that go on beside each other, and beside what else their workers do, as those of Pipe-SGD.

Messages of several rings wait for each other on a worker's connection to the next, and its additions for each
other and for its own work. But no link is on the path of two workers, so a message that has begun leaves when
its bytes take: these are the events of the rings' messages alone. They are scheduled in the order in which
network.py and flows.py would do it, so that times have the same bits also where some are equal.
`strategies.collectives.ring` is what is computed, and remains the oracle.
"""

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappush
from typing import TYPE_CHECKING, Any

import numpy as np
from simpy.events import NORMAL

from lockstep.job.events import Event
from lockstep.job.node import Node
from lockstep.simulator.links import Flow
from lockstep.simulator.ring import Disturbed, Lanes
from lockstep.simulator.topology import Path
from lockstep.strategies.collectives import RING
from lockstep.strategies.node import Vector

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation

_MANY = 1 << 14  # messages, which take more room here than among the records


class _Ring:
    """One all-reduce: of each worker the step that it is at, and how many messages it has got."""

    __slots__ = (
        *("came", "inside", "length", "missing", "nbytes", "receiving", "sending", "sent", "step", "total"),
        *("vectors", "waits"),
    )

    def __init__(self, length: int, nbytes: list[list[int]]) -> None:
        p = len(nbytes[0])
        self.length, self.nbytes = length, nbytes  # the latter by step and sender
        self.step, self.came = [-1] * p, [0] * p
        self.sent: list[Any] = [None] * p  # the last message of each
        self.receiving = [False] * p  # it waits for the next message,
        self.sending = [False] * p  # or until its own has left
        self.vectors: list[Any] = []
        self.missing = self.inside = p  # workers that have still to enter; that are not done
        self.waits: list[Any] = [None] * p  # as in `Mailbox.waiting`
        self.total: Any = None


class _Message(Flow):
    """A message on its way; it is its own event when it has left, and when it arrives."""

    __slots__ = ("begun", "callbacks", "gone", "lane", "rate", "ring", "start")
    _ok = True

    def __init__(self, ring: _Ring, lane: int, path: Path, size: int, rate: float, start: float) -> None:
        self.ring = ring
        self.lane = lane
        self.path = path
        self.size = size
        self.rate = rate
        self.start = start
        self.gone: float | None = None  # when it has left
        self.begun: float
        self.callbacks: Sequence[Callable[[_Message], None]]

    def left(self, now: float) -> float:
        return max(self.size - self.rate * (now - self.begun), 0.0)


class _At:
    """Something that a worker does in a ring at an instant."""

    __slots__ = ("callbacks", "lane", "ring")
    _ok = True

    def __init__(self, calls: Sequence[Callable[["_At"], None]], ring: _Ring, lane: int) -> None:
        self.callbacks, self.ring, self.lane = calls, ring, lane


class Beside:
    """Such rings of all workers of a simulation, each of whom has a lane to the next."""

    def __init__(
        self, simulation: "Simulation", members: Sequence[int], lanes: Lanes, add: Callable[[list[Any]], Any]
    ) -> None:
        """add: what the vectors of all come to."""
        network, p = simulation.network, len(members)
        self._simulation, self._members, self._add = simulation, members, add
        self._environment, self._network, self._flows = simulation.environment, network, network.flows
        self._queue: list[Any] = self._environment._queue
        self._numbers = self._environment._eid
        self._lanes = {rank: lane for lane, rank in enumerate(members)}
        following = [*members[1:], members[0]]
        self._paths = [network.connection(*pair).path for pair in zip(members, following, strict=True)]
        self._rates, self._latencies = lanes.rate.tolist(), lanes.latency.tolist()
        self._busy: list[_Message | None] = [None] * p
        self._carried = [0.0] * p  # bytes of which links do not know yet
        self._waiting = [deque[_Message]() for _ in members]  # until the lane is free
        self._open: dict[int, _Ring] = {}
        self._nbytes: dict[int, list[list[int]]] = {}
        self._seconds: dict[int, float] = {}  # that it takes to add so many bytes
        self._arrived: list[Any] = []  # and not yet recorded
        self._looks, self._arrivals = [self._look], [self._arrive]
        self._enqueues, self._begins = [self._enqueue], [self._begin]
        self._goes, self._adds = [self._next], [self._added]

    def enter(self, node: Node, vector: Vector, number: int, nbytes: np.ndarray) -> Event:
        """A worker enters the ring of that number, of messages of so many bytes by step and sender."""
        ring = self._open.get(number)
        if ring is None:
            if (sizes := self._nbytes.get(id(nbytes))) is None:  # one array for vectors that are alike
                sizes = self._nbytes[id(nbytes)] = nbytes.tolist()
            ring = self._open[number] = _Ring(len(vector), sizes)
            ring.vectors = [None] * len(self._members)
        if len(vector) != ring.length:
            raise Disturbed
        lane, done = self._lanes[node.rank], Event()
        wait = (RING, self._members[lane - 1], None, done)
        ring.vectors[lane], ring.waits[lane] = vector, wait
        node.mailbox.waiting.append(wait)
        ring.missing -= 1
        if not ring.missing:
            ring.total = self._add(ring.vectors)
            ring.vectors.clear()
        self._send(ring, lane)
        return done

    def end(self) -> None:
        """The run, or all rings, are over: record what has arrived, let links know what they have carried."""
        self._count()
        if self._arrived:
            start, left, end, lane, nbytes = (np.array(each) for each in zip(*self._arrived, strict=True))
            members = np.array(self._members)
            columns = {"node": members[lane], "peer": np.roll(members, -1)[lane], "nbytes": nbytes}
            columns |= {"start": start, "left": left, "end": end}
            self._simulation.recorder.many("message", RING, **columns)
            self._arrived.clear()

    def _count(self) -> None:
        """Let links know what they have carried, and carry now."""
        for lane, message in enumerate(self._busy):
            carried, self._carried[lane] = self._carried[lane], 0.0
            for link in self._paths[lane]:
                link.entered += carried
                if message is None or message.gone is not None:
                    link.flows.clear()
                else:
                    link.flows = {message: message.path}

    def _schedule(self, event: Any, at: float) -> None:
        heappush(self._queue, (at, NORMAL, next(self._numbers), event))

    def _send(self, ring: _Ring, lane: int) -> None:
        """Send the next message; go on if that of the one before has come."""
        now = self._environment.now
        ring.step[lane] = step = ring.step[lane] + 1
        path, rate = self._paths[lane], self._rates[lane]
        ring.sent[lane] = message = _Message(ring, lane, path, ring.nbytes[step][lane], rate, now)
        if overhead := self._network.message_overhead:
            ready, rank = self._network.ready, self._members[lane]
            ready[rank] = max(now, ready[rank]) + overhead
            message.callbacks = self._enqueues
            self._schedule(message, now + (ready[rank] - now))
        else:
            self._enqueue(message)
        if ring.came[lane] > step:
            self._take(ring, lane)
        else:
            ring.receiving[lane] = True

    def _enqueue(self, message: _Message) -> None:
        if self._busy[message.lane] is not None:
            self._waiting[message.lane].append(message)
        else:
            self._begin(message)

    def _begin(self, message: _Message) -> None:
        lane, size = message.lane, message.size
        self._busy[lane] = message
        message.begun = now = self._environment.now
        if not message.path or not size:
            message.gone = now
            self._gone(message)
            return
        self._carried[lane] += size
        message.callbacks = self._looks
        heappush(self._queue, (now + size / message.rate, NORMAL, next(self._numbers), message))

    def _look(self, message: _Message) -> None:
        """A message has left, as a flow of `Flows`."""
        message.gone, flows = self._environment.now, self._flows
        flows.unwatched -= 1
        if flows.unwatched <= 0:
            self._count()
            flows.ended(0)
        self._gone(message)

    def _gone(self, message: _Message) -> None:
        ring, lane, now = message.ring, message.lane, self._environment.now
        if ring.sending[lane] and ring.sent[lane] is message:
            ring.sending[lane] = False
            self._schedule(_At(self._goes, ring, lane), now)
        message.callbacks = self._arrivals
        heappush(self._queue, (now + self._latencies[lane], NORMAL, next(self._numbers), message))
        if self._waiting[lane]:
            following = self._waiting[lane].popleft()
            following.callbacks = self._begins
            self._schedule(following, now)
        else:
            self._busy[lane] = None

    def _arrive(self, message: _Message) -> None:
        ring, lane = message.ring, message.lane
        self._arrived.append((message.start, message.gone, self._environment.now, lane, message.size))
        following = lane + 1 if lane + 1 < len(self._members) else 0
        ring.came[following] += 1
        if ring.receiving[following]:
            ring.receiving[following] = False
            self._take(ring, following)

    def _take(self, ring: _Ring, lane: int) -> None:
        """Add what has come at this step, or pass it on: a worker's work is done in turn, as in `Node`."""
        step = ring.step[lane]
        if step < len(self._members) - 1:
            nbytes = ring.nbytes[step][lane - 1]
            seconds = self._seconds.get(nbytes)
            if seconds is None:
                seconds = self._seconds[nbytes] = self._simulation.apply_s(3 * nbytes)
            if seconds:
                now, node = self._environment.now, self._simulation.nodes[self._members[lane]]
                end = node.busy.charge(node, now, seconds)
                self._schedule(_At(self._adds, ring, lane), now + (end - now))
                return
        self._go_on(ring, lane)

    def _added(self, event: _At) -> None:
        self._go_on(event.ring, event.lane)

    def _go_on(self, ring: _Ring, lane: int) -> None:
        """With the next step, as soon as the message of this one has left."""
        if ring.sent[lane].gone is None:
            ring.sending[lane] = True
        else:
            self._proceed(ring, lane)

    def _next(self, event: _At) -> None:
        self._proceed(event.ring, event.lane)

    def _proceed(self, ring: _Ring, lane: int) -> None:
        if ring.step[lane] + 1 < len(ring.nbytes):
            self._send(ring, lane)
            return
        ring.inside -= 1
        if not ring.inside:
            self._open = {number: other for number, other in self._open.items() if other is not ring}
            if not self._open or len(self._arrived) > _MANY:
                self.end()
        waited = ring.waits[lane]
        self._simulation.nodes[self._members[lane]].mailbox.waiting.remove(waited)
        waited[-1].happen(ring.total)
