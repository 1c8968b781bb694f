"""The ring all-reduces of a simulation, computed where ring.py can.

Of all workers, or of a group with one on each host, as in `two-level` sums: what is sent inside hosts then
meets no message of the ring. Those of all may go on beside each other (beside.py).

Whether other messages meet the ring's is only known afterwards. If one is sent while a worker is in a ring,
or anything else happens that only messages can tell the effect of, `Disturbed` is raised, and the run is to
be made again without this shortcut.
"""

from collections.abc import Sequence
from functools import partial
from heapq import heappush
from typing import TYPE_CHECKING, Any

import numpy as np
from simpy.events import NORMAL

from lockstep.job.events import Event
from lockstep.job.node import Node
from lockstep.simulator.beside import Beside
from lockstep.simulator.jit import able
from lockstep.simulator.ring import Disturbed, Lanes, Times, schedule, schedule_shared, separate_lanes
from lockstep.strategies import Vector
from lockstep.strategies.collectives import RING
from lockstep.strategies.node import Group
from lockstep.strategies.parameter_server import shard_of
from lockstep.workloads.memory import require

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation


_MANY = 30_000  # messages in rings over shared links, after which it pays to compile what computes them
_BYTES = 100  # of each of its messages: times, and a record


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
        self.waits: list[Any] = [None] * p  # as in `Mailbox.waiting`
        self.missing = self.inside = p  # workers that have still to enter; that are not done
        self.times: Times | None = None


class Rings:
    """The ring all-reduces of a simulation."""

    messages = 0  # in rings over lanes that share links, of all runs of this process

    def __init__(self, simulation: "Simulation") -> None:
        self.simulation = simulation
        self.watchful = False  # whether a message may disturb
        self._inside: set[int] = set()  # workers that are in a ring
        self._all = tuple(simulation.workers)
        self._members: Sequence[int] = ()  # of all rings; (): nobody has asked yet
        self._places: dict[int, int] = {}  # of the members
        self._lanes: Lanes | None = None
        self._in_part = False  # the others are workers too, to whom members talk inside hosts
        self.beside: Beside | None = None  # if rings go on beside each other
        self._open: list[Ring] = []  # at most two: some may have entered the next before all are done
        self._nbytes: dict[tuple[int, int], np.ndarray] = {}
        self._idle: np.ndarray | None = None  # since when links are that several lanes share

    def _ask(self, members: Sequence[int], beside: bool) -> None:
        """Find out whether rings of these can be computed, of the first who ask."""
        simulation, network = self.simulation, self.simulation.network
        hosts, queued = simulation.plan.hosts, bool(simulation.scenario.cluster.network.queue)
        self._members = members
        self._places = {rank: place for place, rank in enumerate(members)}
        self._in_part = len(members) < len(simulation.workers)
        if self._in_part and (
            network.between_hosts() or len({hosts[rank] for rank in members}) < len(members)
        ):
            return
        if beside and (self._in_part or queued or network.messages or len(simulation.roles) > len(members)):
            return
        lanes = separate_lanes(network, members, queued)
        if lanes is None or (beside and lanes.links is not None):
            return
        self._lanes, self.watchful = lanes, self._in_part or beside
        if beside:
            self.beside = Beside(simulation, members, lanes, self._sum)

    def enter(self, node: Node, vector: Vector, among: Group | None, beside: int) -> Event | None:
        """Let a worker take part in a ring that is computed; what happens when it is done, with the sum.

        None: by messages. beside: if not 0, which of those it is beside which the worker goes on
        (`Port.collective`).
        """
        members = self._all if among is None else among.ranks
        if not self._members:
            self._ask(members, bool(beside))
        if self._lanes is None or members != self._members or bool(beside) != (self.beside is not None):
            return None
        if self.beside is not None:
            return self.beside.enter(node, vector, beside, self._sizes(vector))
        if not self._open or not self._open[-1].missing:
            if self.simulation.network.messages and not self._in_part:
                raise Disturbed
            self._open.append(Ring(len(vector), self._sizes(vector)))
        ring, index = self._open[-1], self._places[node.rank]
        if len(vector) != ring.length:
            raise Disturbed
        done = Event()
        wait = (RING, self._members[index - 1], None, done)
        ring.entered[index], ring.vectors[index], ring.waits[index] = node.clock.now, vector, wait
        node.mailbox.waiting.append(wait)
        ring.order.append(index)
        self._inside.add(node.rank)
        self.watchful = self.simulation.network.flows.uncounted = True
        ring.missing -= 1
        if not ring.missing:
            self._complete(ring)
        return done

    def meet(self, sender: int, to: int) -> None:
        """See a message that may disturb. Raises Disturbed unless it stays in a host, away from all rings."""
        hosts = self.simulation.plan.hosts
        if not self._in_part or hosts[sender] != hosts[to] or sender in self._inside:
            raise Disturbed

    def end(self) -> None:
        """Record what has arrived by now of the rings under way: the run is over."""
        now, stop = self.simulation.environment.now, self.simulation.scenario.stop
        if self._open and self._lanes is not None and self._lanes.links is not None:
            raise Disturbed  # what shared links have carried by now does not follow from the times
        if self.beside is not None:
            self.beside.end()
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
            p = len(self._members)
            instead = "take fewer, or an algorithm with fewer messages, such as two-level"
            require(2 * p * p * _BYTES, f"a ring of {p:,} workers", "cluster.workers", instead)
            chunks = np.array([shard_of(vector, chunk, p).nbytes for chunk in range(p)])
            self._nbytes[key] = chunks[(np.arange(p) - np.arange(2 * (p - 1))[:, None]) % p]
        return self._nbytes[key]

    def _complete(self, ring: Ring) -> None:
        """Everyone has entered: see that everyone leaves when done."""
        simulation = self.simulation
        total = self._sum(ring.vectors)
        ring.vectors.clear()  # no longer needed
        ring.times = self._times(ring)
        for rank, instant in zip(self._members, ring.times.ready.tolist(), strict=True):
            simulation.network.ready[rank] = instant
        if ring.times.sums is not None:
            for rank, instant in zip(self._members, ring.times.sums.free.tolist(), strict=True):
                simulation.nodes[rank].busy.until = instant
        done: dict[float, list[int]] = {}
        instants = ring.times.done.tolist()
        for worker in ring.times.order or range(len(instants)):
            done.setdefault(instants[worker], []).append(worker)
        for instant, workers in done.items():
            At(simulation.environment, instant, partial(self._leave, ring, workers, total))

    def _sum(self, vectors: list[Any]) -> Any:
        """What the vectors of all come to."""
        if self.simulation.learner is None:
            return vectors[0]
        return self.simulation.arithmetic(0).concatenate(ring_sum(vectors))

    def _times(self, ring: Ring) -> Times:
        network, lanes = self.simulation.network, self._lanes
        assert lanes is not None
        ready = np.array([network.ready[rank] for rank in self._members])
        overhead, add_s = network.message_overhead, self.simulation.apply_s
        nodes = self.simulation.nodes
        free = np.array([nodes[rank].busy.until for rank in self._members])
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
        self._inside.difference_update([self._members[worker] for worker in workers])
        self.watchful = self._in_part or bool(self._inside)
        ring.inside -= len(workers)
        if not ring.inside:
            assert ring.times is not None
            self._open.remove(ring)
            self._record(ring.times, ring.nbytes)
            self._count(ring.times, ring.nbytes, np.inf)
            if not self._open:  # else links have carried bytes of the next ring, not counted yet
                self.simulation.network.flows.uncounted = False
                self.simulation.network.flows.ended(ring.nbytes.size)
            total_bytes = len(ring.nbytes) * int(ring.nbytes[0].sum())  # each step sends all chunks once
            self.simulation.network.bytes_sent += total_bytes
            self.simulation.network.bytes_arrived += total_bytes
        for worker in workers:
            waited = ring.waits[worker]
            self.simulation.nodes[self._members[worker]].mailbox.waiting.remove(waited)
            waited[-1].happen(total)

    def _count(self, times: Times, nbytes: np.ndarray, now: float) -> None:
        """Let the links know what they have carried by now."""
        assert self._lanes is not None
        seconds = nbytes / self._lanes.rate
        under_way = (times.left > now) & (seconds > 0)
        waiting = np.minimum((times.left - now)[under_way] / seconds[under_way], 1.0)  # share of the message
        sent = nbytes.astype(float)
        sent[under_way] *= 1.0 - waiting
        carried = sent.sum(axis=0)
        members, network = self._members, self.simulation.network
        for index, count in enumerate(carried.tolist()):
            for link in network.connection(members[index], members[(index + 1) % len(members)]).path:
                link.entered += count

    def _record(self, times: Times, nbytes: np.ndarray, now: float = np.inf) -> None:
        """Record the messages that have arrived by now, and the additions that have been called for."""
        workers = np.array(self._members)
        columns = {"node": workers, "peer": np.roll(workers, -1), "nbytes": nbytes}
        columns |= {"start": times.starts, "left": times.left, "end": times.ends}
        self._record_some("message", RING, columns, ... if now == np.inf else times.ends < now)
        if (sums := times.sums) is not None:
            columns = {"node": workers, "start": sums.starts, "end": sums.ends}
            self._record_some("work", "apply", columns, sums.called < now)

    def _record_some(self, event: str, kind: str, columns: dict[str, np.ndarray], which: Any) -> None:
        """Record those of some events that a mask chooses; `...` for all."""
        shape = columns["end"].shape
        chosen = {name: np.broadcast_to(column, shape)[which] for name, column in columns.items()}
        self.simulation.recorder.many(event, kind, **chosen)
