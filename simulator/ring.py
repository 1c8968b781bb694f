"""A ring all-reduce without an event for each of its p² messages: same times, same records, same bits.

As long as every message of the ring has its path for itself, a worker's next message starts when its last one
has left and the one before it in the ring has been received (and added); so all times follow from those at
which the workers enter, step by step, for all workers at once. They are computed when the last worker enters:
no worker can be done before. `strategies.collectives.ring` is what is computed, and remains the oracle.

Where workers on one host share a link inside it, the events of the ring's messages are gone through by
themselves (shared_ring.py).

Whether other messages meet the ring's is only known afterwards. If one is sent while a worker is in a ring,
or anything else happens that only messages can tell the effect of, `Disturbed` is raised, and the run is to
be made again without this shortcut.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache, cached_property, partial
from heapq import heappush
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from simpy.events import NORMAL

from lockstep.job.events import Event
from lockstep.job.node import Node
from lockstep.simulator.jit import able, compiled
from lockstep.simulator.network import Network
from lockstep.simulator.shared_ring import shared_ring
from lockstep.strategies import Vector
from lockstep.strategies.parameter_server import shard_of
from lockstep.workloads.memory import require

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation


_MANY = 30_000  # messages in rings over shared links, after which it pays to compile what computes them
_BYTES = 100  # of each of its messages: times, and a record


class Disturbed(BaseException):
    """Only messages can tell what happens in this run's rings."""


class Lanes(NamedTuple):
    """The path of each worker to the next, shape (p,): bytes/s (perhaps infinite), and latency in s."""

    rate: np.ndarray
    latency: np.ndarray
    links: np.ndarray | None = None  # where some share their only link: its number, else one of its own
    common: int = 0  # so many links are shared: the first


def separate_lanes(network: Network, workers: range, queued: bool = False) -> Lanes | None:
    """What the ring's messages go through; None if there are none, or if paths of several links share one.

    queued: also None if a queue in a switch would fill, since a card is faster than the rest of a path.
    """
    if len(workers) < 2:
        return None
    connections = [network.connection(rank, workers[rank - len(workers) + 1]) for rank in workers]
    links = [link for connection in connections for link in connection.path]
    shared = [link for link, crossing in Counter(links).items() if crossing > 1]
    if any(
        len(connection.path) > 1 and not set(shared).isdisjoint(connection.path) for connection in connections
    ):
        return None
    if queued and any(c.path and c.path[0].capacity > min(m.capacity for m in c.path) for c in connections):
        return None
    rates = [min((link.capacity for link in c.path), default=np.inf) for c in connections]
    latencies = np.array([c.latency for c in connections], float)
    if not shared:
        return Lanes(np.array(rates, float), latencies)
    common = {link: number for number, link in enumerate(shared)}
    numbers = [common.get(c.path[0], -1) if c.path else -1 for c in connections]
    own = np.arange(len(common), len(common) + len(workers))
    return Lanes(
        np.array(rates, float), latencies, np.where(np.array(numbers) < 0, own, numbers), len(common)
    )


class Times(NamedTuple):
    """When each message starts, has left, arrives, by step and sender, shape (2(p−1), p), and more. In s."""

    starts: np.ndarray
    left: np.ndarray
    ends: np.ndarray
    done: np.ndarray  # when each worker is done, shape (p,)
    ready: np.ndarray  # when each has done with its messages' overheads, shape (p,)
    sums: "Sums | None" = None  # None: they take no time
    order: list[int] | None = None  # of workers that are done at one instant; None: it does not matter


class Sums(NamedTuple):
    """When each addition is called for, starts and ends, by step and worker, shape (p−1, p). In s.

    NaN for one that takes no time. free: when each worker has done with its additions, shape (p,).
    """

    called: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    free: np.ndarray


def schedule(
    entered: np.ndarray,
    ready: np.ndarray,
    nbytes: np.ndarray,
    lanes: Lanes,
    overhead: float = 0.0,
    add_s: Callable[[int], float] = lambda nbytes: 0.0,
    free: np.ndarray | None = None,
) -> Times:
    """The times of a ring, from those at which its p workers enter it (NaN: not yet), shape (p,).

    ready: when each worker has done with earlier messages' overheads, shape (p,); nbytes: of each message,
    by step and sender; overhead: s a message costs its sender; add_s: s an addition takes that touches some
    bytes; free: when each worker has done with work of before, shape (p,). Added up in the order in which the
    network and SimPy do, so that the times have the same bits.
    """
    steps, p = nbytes.shape
    starts, gone, ends = np.empty((steps, p)), np.empty((steps, p)), np.empty((steps, p))
    previous = np.arange(p) - 1
    seconds = _seconds(nbytes, add_s)
    sums = None
    if seconds is not None:
        free = np.full(p, -np.inf) if free is None else free
        called, begun_at, done_at = (np.full((p - 1, p), np.nan) for _ in range(3))
        sums = Sums(called, begun_at, done_at, free)
    start = entered
    for step in range(steps):
        starts[step] = begun = start
        if overhead:
            ready = np.maximum(start, ready) + overhead
            begun = start + (ready - start)
        gone[step] = left = begun + nbytes[step] / lanes.rate
        np.add(left, lanes.latency, out=ends[step])
        received = np.maximum(start, ends[step, previous])
        if seconds is not None and sums is not None and step < p - 1:
            received, sums = _added(sums, step, received, seconds[step, previous])
        start = np.maximum(received, left)
    return Times(starts, gone, ends, start, ready, sums)


def schedule_shared(
    order: np.ndarray,
    entered: np.ndarray,
    ready: np.ndarray,
    nbytes: np.ndarray,
    lanes: Lanes,
    overhead: float,
    add_s: Callable[[int], float],
    free: np.ndarray,
    idle: np.ndarray | None = None,
    fast: bool = False,
) -> tuple[Times, np.ndarray] | None:
    """The same where lanes share links, and since when these are idle then; None: only messages can tell.

    order: the workers, all of whom have entered, as they did; idle: since when links are; fast: compiled.
    """
    assert lanes.links is not None
    steps, p = nbytes.shape
    seconds = _seconds(nbytes, add_s)
    idle = np.full(lanes.common, -np.inf) if idle is None else idle
    of_workers = [order, entered, ready.copy(), free.copy(), np.empty(p)]
    of_lanes = [lanes.rate, lanes.latency, lanes.links, idle.copy()]
    of_messages = [nbytes, np.zeros(nbytes.shape) if seconds is None else seconds]
    empty = [np.full(shape, np.nan) for shape in 3 * [(steps, p)] + 3 * [(p - 1, p)]]
    given: list[Any] = [array.ravel() for array in (*of_workers, *of_lanes, *of_messages, *empty)]
    if not fast:
        given = [array.tolist() for array in given]
    compute: Callable[..., bool] = compiled_ring() if fast else shared_ring
    if not compute(*given, overhead):
        return None
    _, _, ready, free, done, _, _, _, idle = map(np.array, given[:9])
    starts, left, ends = [np.reshape(each, (steps, p)) for each in given[11:14]]
    called, begun, added = [np.reshape(each, (p - 1, p)) for each in given[14:]]
    sums = None if seconds is None else Sums(called, begun, added, free)
    return Times(starts, left, ends, done, ready, sums, [int(worker) for worker in given[0]]), idle


@cache
def compiled_ring() -> Callable[..., bool]:
    """`shared_ring` by numba."""
    return compiled(shared_ring)


def _seconds(nbytes: np.ndarray, add_s: Callable[[int], float]) -> np.ndarray | None:
    """What it takes to add up each message, by step and sender; None if that takes no time."""
    adding = {size: add_s(3 * size) for size in np.unique(nbytes).tolist()}
    return np.vectorize(adding.get, otypes=[float])(nbytes) if any(adding.values()) else None


def _added(sums: Sums, step: int, received: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, Sums]:
    """When each worker has added what it received at a step, in so many seconds; the additions until then."""
    takes = seconds > 0
    begun = np.maximum(sums.free, received)
    done = begun + seconds
    for column, instants in zip(sums[:3], (received, begun, done), strict=True):
        column[step, takes] = instants[takes]
    sums = sums._replace(free=np.where(takes, done, sums.free))
    return np.where(takes, received + (done - received), received), sums


def ring_sum(vectors: list[Any]) -> list[Any]:
    """The chunks of the sum, added in the order of the ring: chunk c starts at worker c."""
    p = len(vectors)
    chunks = []
    for chunk in range(p):
        total = shard_of(vectors[chunk], chunk, p)
        for step in range(1, p):
            total = total + shard_of(vectors[(chunk + step) % p], chunk, p)
        chunks.append(total)
    return chunks


class At:
    """A function called at an instant: a delay would be rounded."""

    _ok = True

    def __init__(self, environment: Any, at: float, call: Any) -> None:
        self.callbacks = [call]
        heappush(environment._queue, (at, NORMAL, next(environment._eid), self))


class Ring:
    """One all-reduce, from the first worker that enters until the last is done."""

    def __init__(self, length: int, nbytes: np.ndarray) -> None:
        p = nbytes.shape[1]
        self.length = length
        self.nbytes = nbytes
        self.entered = np.full(p, np.nan)
        self.order: list[int] = []  # in which workers enter
        self.vectors: list[Any] = [None] * p
        self.waits: list[Any] = [None] * p  # as in `Node.waiting`
        self.missing = self.inside = p  # workers that have still to enter; that are not done
        self.times: Times | None = None


class Rings:
    """The ring all-reduces of a simulation."""

    messages = 0  # in rings over lanes that share links, of all runs of this process

    def __init__(self, simulation: "Simulation") -> None:
        self.simulation = simulation
        self.inside = 0  # workers that are in a ring
        self._open: list[Ring] = []  # at most two: some may have entered the next before all are done
        self._nbytes: dict[tuple[int, int], np.ndarray] = {}
        self._idle: np.ndarray | None = None  # since when links are that several lanes share

    @cached_property
    def lanes(self) -> Lanes | None:
        """What the messages would go through; None: they share links, and only messages can tell."""
        network = self.simulation.network
        queued = bool(self.simulation.scenario.cluster.network.queue)
        return separate_lanes(network, range(len(self.simulation.workers)), queued)

    def enter(self, node: Node, vector: Vector) -> Event:
        """Let a worker take part, there being lanes; what happens when it is done, with the sum."""
        if not self._open or not self._open[-1].missing:
            if self.simulation.network.messages:
                raise Disturbed
            self._open.append(Ring(len(vector), self._sizes(vector)))
        ring, index = self._open[-1], node.index
        if len(vector) != ring.length:
            raise Disturbed
        done = Event()
        wait = ("ring", self.simulation.workers[index - 1], None, done)
        ring.entered[index], ring.vectors[index], ring.waits[index] = node.clock.now, vector, wait
        node.waiting.append(wait)
        ring.order.append(index)
        self.inside += 1
        ring.missing -= 1
        if not ring.missing:
            self._complete(ring)
        return done

    def give_up(self) -> NoReturn:
        """A message is sent while workers are in a ring."""
        raise Disturbed

    def end(self) -> None:
        """Record what has arrived by now of the rings under way: the run is over."""
        now, stop = self.simulation.environment.now, self.simulation.scenario.stop
        if self._open and self.lanes is not None and self.lanes.links is not None:
            raise Disturbed  # what shared links have carried by now does not follow from the times
        for ring in self._open:
            times = ring.times or self._times(ring)
            instants = [times.ends, *(times.sums[:1] if times.sums else ())]
            if now != stop.time and any((each == now).any() for each in instants):
                raise Disturbed  # the end may have come before these messages or after
            self._record(times, ring.nbytes, now)
            self._count(times, ring.nbytes, now)

    def _sizes(self, vector: Vector) -> np.ndarray:
        """Bytes of each message, by step and sender."""
        key = len(vector), vector.nbytes
        if key not in self._nbytes:
            p = len(self.simulation.workers)
            instead = "take fewer, or an algorithm with fewer messages, such as two-level"
            require(2 * p * p * _BYTES, f"a ring of {p:,} workers", "cluster.workers", instead)
            chunks = np.array([shard_of(vector, chunk, p).nbytes for chunk in range(p)])
            self._nbytes[key] = chunks[(np.arange(p) - np.arange(2 * (p - 1))[:, None]) % p]
        return self._nbytes[key]

    def _complete(self, ring: Ring) -> None:
        """Everyone has entered: see that everyone leaves when done."""
        simulation = self.simulation
        total = ring.vectors[0]
        if simulation.learner is not None:
            total = simulation.arithmetic(0).concatenate(ring_sum(ring.vectors))
        ring.vectors.clear()  # no longer needed
        ring.times = self._times(ring)
        simulation.network.ready[: len(ring.entered)] = ring.times.ready.tolist()
        if ring.times.sums is not None:
            for worker, instant in enumerate(ring.times.sums.free.tolist()):
                simulation.nodes[worker].busy_until = instant
        done: dict[float, list[int]] = {}
        instants = ring.times.done.tolist()
        for worker in ring.times.order or range(len(instants)):
            done.setdefault(instants[worker], []).append(worker)
        for instant, workers in done.items():
            At(simulation.environment, instant, partial(self._leave, ring, workers, total))

    def _times(self, ring: Ring) -> Times:
        network, lanes = self.simulation.network, self.lanes
        assert lanes is not None
        ready = np.array(network.ready[: len(ring.entered)])
        overhead, add_s = network.message_overhead, self.simulation.apply_s
        nodes = self.simulation.nodes
        free = np.array([nodes[rank].busy_until for rank in range(len(ready))])
        if lanes.links is None:
            return schedule(ring.entered, ready, ring.nbytes, lanes, overhead, add_s, free)
        Rings.messages += ring.nbytes.size
        fast = Rings.messages > _MANY and able()
        found = schedule_shared(
            np.array(ring.order),
            ring.entered,
            ready,
            ring.nbytes,
            lanes,
            overhead,
            add_s,
            free,
            self._idle,
            fast,
        )
        if found is None or len(ring.order) < len(ring.entered):
            raise Disturbed
        times, self._idle = found
        return times

    def _leave(self, ring: Ring, workers: list[int], total: Vector, _: Any) -> None:
        """Let the workers go on that are done at this instant."""
        self.inside -= len(workers)
        ring.inside -= len(workers)
        if not ring.inside:
            assert ring.times is not None
            self._open.remove(ring)
            self._record(ring.times, ring.nbytes)
            self._count(ring.times, ring.nbytes, np.inf)
            if not self._open:  # else links have carried bytes of the next ring, not counted yet
                self.simulation.network.flows.ended(ring.nbytes.size)
            total_bytes = len(ring.nbytes) * int(ring.nbytes[0].sum())  # each step sends all chunks once
            self.simulation.network.bytes_sent += total_bytes
            self.simulation.network.bytes_arrived += total_bytes
        for worker in workers:
            waited = ring.waits[worker]
            self.simulation.nodes[worker].waiting.remove(waited)
            waited[-1].happen(total)

    def _count(self, times: Times, nbytes: np.ndarray, now: float) -> None:
        """Let the links know what they have carried by now."""
        assert self.lanes is not None
        seconds = nbytes / self.lanes.rate
        under_way = (times.left > now) & (seconds > 0)
        waiting = np.minimum((times.left - now)[under_way] / seconds[under_way], 1.0)  # share of the message
        sent = nbytes.astype(float)
        sent[under_way] *= 1.0 - waiting
        carried = sent.sum(axis=0)
        workers = self.simulation.workers
        for index, count in enumerate(carried.tolist()):
            for link in self.simulation.network.connection(index, (index + 1) % len(workers)).path:
                link.entered += count

    def _record(self, times: Times, nbytes: np.ndarray, now: float = np.inf) -> None:
        """Record the messages that have arrived by now, and the additions that have been called for."""
        workers = np.arange(nbytes.shape[1])
        columns = {"node": workers, "peer": (workers + 1) % len(workers), "nbytes": nbytes}
        columns |= {"start": times.starts, "left": times.left, "end": times.ends}
        self._record_some("message", "ring", columns, ... if now == np.inf else times.ends < now)
        if (sums := times.sums) is not None:
            columns = {"node": workers, "start": sums.starts, "end": sums.ends}
            self._record_some("work", "apply", columns, sums.called < now)

    def _record_some(self, event: str, kind: str, columns: dict[str, np.ndarray], which: Any) -> None:
        """Record those of some events that a mask chooses; `...` for all."""
        shape = columns["end"].shape
        chosen = {name: np.broadcast_to(column, shape)[which] for name, column in columns.items()}
        self.simulation.recorder.many(event, kind, **chosen)
