"""A whole run in one compiled loop, without a coroutine, an event or a message: its state, and its pauses.

What happens follows from times and sizes alone there (asynchronous.py, traced.py). Programs, events and
messages remain the oracle: records and utilisation have the same bits. Without numba, and in short runs, they
are what runs.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lockstep.simulator.jit import installed
from lockstep.simulator.links import Flow
from lockstep.simulator.native import native, ready
from lockstep.simulator.network import Connection
from lockstep.simulator.ring import Disturbed
from lockstep.workloads.compute_time import mean_gradient_s
from lockstep.workloads.memory import require

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation

_FEW = 1_500  # messages in such runs, some 25 ms, after which it pays to load what is compiled
_MANY = 200_000  # and to compile it
_BYTES = 1_200  # of the arrays, a connection or a part of one
_ROWS = 1 << 14  # of records that are packed at once
_DRAWS = 1 << 16  # times of gradients that are drawn at once
_HEAP = 8  # times as many entries as flows cross a link, of which three may come before there is more room
# The columns of records, whole numbers and times in turn, as the kernels have them.
_COLUMNS = {
    "message": (("node", "peer", "kind", "nbytes"), ("start", "left", "end")),
    "gradient": (("node", "version"), ("start", "end")),
    "update": (("node", "peer", "version", "staleness", "batches"), ("end",)),
    "work": (("node", "kind"), ("start", "end")),
}
_TYPES = np.int64, np.float64


class Loop:
    """The state of such a run, as arrays: see kernel.py, flows_kernel.py and loop_kernel.py."""

    kernel: ClassVar[str]  # whose `run` makes the run
    _states: Any  # that kernel
    messages: ClassVar[float] = 0.0  # in all such runs of this process, as `pays` counts them
    instead: ClassVar[tuple[str, str]] = "cluster.workers", "take fewer"  # where connections are too many

    def __init__(self, simulation: "Simulation") -> None:
        raise NotImplementedError

    @staticmethod
    def follows(simulation: "Simulation") -> bool:
        """Whether all that happens follows from times and sizes, as far as can be said at once."""
        raise NotImplementedError

    @classmethod
    def of(cls, simulation: "Simulation") -> "Loop | None":
        """What makes the run, if that pays."""
        raise NotImplementedError

    def _begin(
        self, simulation: "Simulation", connections: Sequence[Connection], events: int, rows: int
    ) -> None:
        """Make room.

        events: that one event may schedule, beside three of each flow; rows: of records that it makes.
        """
        from lockstep.simulator import loop_kernel as kernel

        self._simulation, self._kernel = simulation, kernel
        self._run = native(self.kernel, "run") or self._states.run
        self._kinds: Mapping[str, Sequence[str]] = {}  # of records, by their numbers
        self._links = simulation.network.topology.links
        self._connections = connections
        self._paths = [connection.path for connection in connections]
        if simulation.scenario.cluster.network.queue:  # a message may go as two flows: queues_kernel.py
            whole = [*self._paths]
            self._paths += [path[:1] for path in whole] + [path[1:] for path in whole]
        count = len(self._paths)
        require(_BYTES * count, f"the state of {count:,} connections", *self.instead)
        self._flows: list[Flow | None] = [None] * count
        self._net = self._cleared()
        # twice what an event may schedule, so that there is room again once it is doubled
        self._queue = _heap(2 * (3 * self._net[4].shape[1] + events))
        self._whole, self._real = np.zeros(kernel.PLACES, np.int64), np.array([simulation.environment.now])
        self._whole[kernel.AT] = -1
        room = _ROWS + rows
        self._rows = tuple(
            tuple(np.zeros((len(names), room), kind) for names, kind in zip(columns, _TYPES, strict=True))
            for columns in _COLUMNS.values()
        )
        self._counts = kernel.MESSAGES, kernel.GRADIENTS, kernel.UPDATES, kernel.WORKS
        self._draws = self._drawn()

    def _start(self, ranks: Sequence[int]) -> None:
        """Let programs start now, in this order, before anything else: in their order events are a heap."""
        from lockstep.simulator.flows_kernel import EVENTS, ORDER, START

        (keys, numbers, items), count = self._queue, len(ranks)
        keys[:count], numbers[:count] = self._real[0], np.arange(count)
        items[:count] = START + (np.array(ranks) << 4)
        self._whole[[EVENTS, ORDER]] = count

    @classmethod
    def may_pay(cls, simulation: "Simulation", most: float) -> bool:
        """Whether it may, with so many messages at most in a mini-batch of each worker."""
        return installed() and Loop.messages + most * _batches(simulation) > cls._enough()

    @classmethod
    def pays(cls, simulation: "Simulation", messages: float) -> bool:
        """Whether there has been so much to do that it pays to load what is compiled, if that can be.

        messages: of all workers in a mini-batch of each; one that takes long counts as several.
        """
        Loop.messages += messages * _batches(simulation)
        return Loop.messages > cls._enough() and cls.able()

    @classmethod
    def _enough(cls) -> int:
        return min(_FEW, _MANY) if ready(cls.kernel, "run") else _MANY

    @classmethod
    def able(cls) -> bool:
        """Whether what is compiled is there, or can be made, which takes time."""
        return native(cls.kernel, "run") is not None

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        from lockstep.simulator.flows_kernel import EVENTS

        return not self._whole[EVENTS]

    def run(self, until: float | None = None) -> None:
        """Let time pass until the run is over, or until an instant (s) before that.

        Raises Disturbed if programs must say what is wrong.
        """
        simulation, kernel, whole = self._simulation, self._kernel, self._whole
        flows, quota, stop = simulation.network.flows, simulation.plan.quota, simulation.scenario.stop
        simulation.environment.give_up()
        if until is None:
            until = inf if stop.time is None else stop.time
        given = until, simulation.network.message_overhead, simulation.scenario.cluster.network.queue
        bounds = [
            kernel.ENDLESS if bound is None else min(bound, kernel.ENDLESS - 1)
            for bound in (quota.each, quota.together)
        ]
        while True:
            steps = int(whole[kernel.STEPS])
            reason = self._advance(*given, *bounds)
            simulation.environment.now = float(self._real[0])
            simulation.count_steps(int(whole[kernel.STEPS]) - steps)
            if reason == kernel.READ:
                self._tell()
                flows.unwatched = int(whole[kernel.UNREAD])
                flows.ended(0)
                whole[kernel.UNREAD] = flows.unwatched
            elif reason == kernel.MORE:
                self._draw_again()
            elif reason == kernel.FULL:
                self._make_room()
            elif reason == kernel.DONE:
                break
            elif reason != kernel.PAUSE:
                raise Disturbed
        self._pack()
        self._tell()
        self._end()

    def _advance(self, until: float, overhead: float, waits: float, each: int, together: int) -> int:
        """Let the kernel go on: why it stops."""
        raise NotImplementedError

    def _cleared(self) -> tuple[Any, ...]:
        """Links and flows when nothing has happened: the `net` of flows_kernel.py."""
        from lockstep.simulator import flows_kernel as flows
        from lockstep.simulator.kernel import CAPACITY, NEW, SUSTAINED

        links, count = self._links, len(self._connections)
        places = {link: place for place, link in enumerate(links)}
        shift = (max([1, *map(len, self._paths)]) - 1).bit_length()
        ew = np.full((6, len(self._paths) << shift), -1, np.int64)
        lengths = [len(path) for path in self._paths]
        first = np.cumsum([0, *lengths[:-1]])
        entries = np.arange(sum(lengths)) + np.repeat((np.arange(len(lengths)) << shift) - first, lengths)
        route = np.array([places[link] for path in self._paths for link in path], np.int64)
        ew[flows.ROUTE, entries], crossed = route, np.bincount(route, minlength=len(links))
        lr, lw = np.zeros((flows.NET_REALS, len(links))), np.zeros((flows.NET_WHOLES, len(links)), np.int64)
        lr[CAPACITY] = [link.capacity for link in links]
        lr[SUSTAINED] = [link.sustained for link in links]
        lr[[flows.BOUND, flows.LOOK_AT]] = inf
        lw[: len(NEW)] = np.array(NEW)[:, None]
        lw[flows.ENOUGH], lw[flows.BOTTLENECK] = (_HEAP - 3) * crossed, 1
        room = _HEAP * crossed
        lw[flows.BASE] = np.cumsum(room) - room
        lw[[flows.FIRST_TOLD, flows.LAST_TOLD]] = -1
        fr = np.zeros((6, len(self._paths)))
        fw = np.full((16, max(len(self._paths), len(links))), -1, np.int64)
        fr[self._kernel.LATENCY, :count] = [connection.latency for connection in self._connections]
        return shift, lr, lw, fr, fw, ew, _heap(int(room.sum()))

    def _drawn(self) -> np.ndarray:
        """The next seconds of gradients of each worker, shape (workers, n)."""
        times, most = self._simulation.compute, self._simulation.plan.quota.each or _DRAWS
        n = max(1, min(most, _DRAWS // len(times)))
        return np.array([time.draws(n) for time in times])

    def _draw_again(self) -> None:
        drawn, length = self._times_drawn(), self._draws.shape[1]
        for worker in np.flatnonzero(drawn == length).tolist():
            self._draws[worker] = self._simulation.compute[worker].draws(length)
        drawn[drawn == length] = 0
        self._whole[self._kernel.EMPTY] = 0

    def _times_drawn(self) -> np.ndarray:
        """How many of the times each worker has used, shape (workers,)."""
        raise NotImplementedError

    def _make_room(self) -> None:
        from lockstep.simulator.flows_kernel import BASE, ENOUGH, EVENTS, LENGTH, TIGHT

        self._pack()
        if 2 * self._whole[EVENTS] > len(self._queue[0]):
            keys, numbers, items = [np.concatenate([each, np.empty_like(each)]) for each in self._queue]
            self._queue = keys, numbers, items
        if self._whole[TIGHT]:
            lw, held, self._whole[TIGHT] = self._net[2], self._net[-1], 0
            twice = _heap(2 * len(held[0]))
            for base, length in zip(lw[BASE].tolist(), lw[LENGTH].tolist(), strict=True):
                for before, after in zip(held, twice, strict=True):
                    after[2 * base : 2 * base + length] = before[base : base + length]
            lw[ENOUGH] += np.diff(lw[BASE], append=len(held[0]))
            lw[BASE] *= 2
            self._net = *self._net[:-1], twice

    def _pack(self) -> None:
        """Give the records to who collects them."""
        for (event, names), place, rows in zip(_COLUMNS.items(), self._counts, self._rows, strict=True):
            cells = [row[: self._whole[place]] for each in rows for row in each]
            columns = dict(zip([name for each in names for name in each], cells, strict=True))
            self._simulation.recorder.rows(event, columns, self._kinds.get(event, ()))
            self._whole[place] = 0

    def _tell(self) -> None:
        """Let those know who are asked how busy they have been."""
        from lockstep.simulator import flows_kernel as flows
        from lockstep.simulator.kernel import AFTER, HEAD, OWNER, PATH, RATE

        shift, lr, lw, fr, fw, ew, _ = self._net
        links, there = self._links, np.flatnonzero(ew[PATH, :: 1 << shift] >= 0)
        under_way = {number: self._flow(number) for number in there.tolist()}
        owners, dues = fw[OWNER, there].tolist(), fr[flows.DUE, there].tolist()
        for flow, owner, due in zip(under_way.values(), owners, dues, strict=True):
            flow.owner = links[owner] if owner >= 0 else None
            flow.due = flow.size = due
        after = ew[AFTER].tolist()
        columns = *lr[[flows.CLOCK, RATE, flows.SINCE, flows.ENTERED]].tolist(), lw[HEAD].tolist()
        for link, clock, rate, since, entered, entry in zip(links, *columns, strict=True):
            link.clock, link.rate, link.since, link.entered, link.flows = clock, rate, since, entered, {}
            while entry >= 0:
                flow = under_way[entry >> shift]
                link.flows[flow] = flow.path
                entry = after[entry]

    def _flow(self, number: int) -> Flow:
        flow = self._flows[number]
        if flow is None:
            flow = self._flows[number] = Flow(self._paths[number], 0.0)
        return flow

    def _end(self) -> None:
        """Leave the simulation as one that its programs have made."""
        simulation, network = self._simulation, self._simulation.network
        for process in simulation.programs.values():
            process.alive = False
        sent = self._whole[[self._kernel.SENT, self._kernel.CAME]].tolist()
        network.bytes_sent, network.bytes_arrived = sent
        simulation.ending.at(simulation.environment.now)


def _batches(simulation: "Simulation") -> float:
    """Of each worker, in a run; 0: nobody knows."""
    plan, stop = simulation.plan, simulation.scenario.stop
    steps: float = plan.quota.in_all(plan.replicas) or inf
    mean = mean_gradient_s(simulation.scenario, simulation.sizes)
    if stop.time is not None and mean > 0:
        steps = min(steps, len(plan.workers) * stop.time / mean)
    return steps / len(plan.workers) if steps < inf else 0.0


def _heap(room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys, numbers and items, none of which is there."""
    return np.zeros(room), np.zeros(room, np.int64), np.zeros(room, np.int64)
