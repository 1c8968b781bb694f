"""Runs of asynchronous workers and servers without a coroutine, an event or a message: a compiled loop.

As long as nothing is learned, and nothing disturbs the network, all that happens follows from the times of
gradients and the sizes of messages (asynchronous_kernel.py). Programs, events and messages remain the
oracle: records and utilisation have the same bits. Without numba, and in short runs, they are what runs.
"""

from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.simulator.jit import able
from lockstep.simulator.links import Flow
from lockstep.simulator.ring import Disturbed
from lockstep.strategies.consistency import immediate
from lockstep.strategies.parameter_server import ParameterServer
from lockstep.strategies.updates import passes_of
from lockstep.strategies.worker_loops import every_batch
from lockstep.workloads.compute_time import mean_gradient_s
from lockstep.workloads.memory import require

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation

_MANY = 200_000  # messages in such runs, some 3 s, after which it pays to load what is compiled
_BYTES = 470  # of the arrays, a connection or a part of one
_ROWS = 1 << 14  # of records that are packed at once
_DRAWS = 1 << 16  # times of gradients that are drawn at once
_HEAP = 4  # times as many entries as flows cross a link, of which three may come before there is more room
_KINDS = ("pull", "push", "parameters", "leave")  # by their numbers
_EVENTS = ("message", "gradient", "update")
# The columns of their records, whole numbers and times in turn, as asynchronous_kernel.py has them.
_COLUMNS = (
    *(("node", "peer", "kind", "nbytes"), ("start", "left", "end")),
    *(("node", "version"), ("start", "end")),
    *(("node", "peer", "version", "staleness", "batches"), ("end",)),
)
_TYPES = 3 * (np.int64, np.float64)


def follows(simulation: "Simulation") -> bool:
    """Whether all that happens follows from times and sizes."""
    plan, scenario = simulation.plan, simulation.scenario
    strategy, given = plan.strategy, scenario.strategy.parameters
    if strategy.worker_loop is not every_batch or strategy.consistency is not immediate:
        return False
    if simulation.rings is None or plan.stages or plan.relayed or scenario.with_faults:
        return False
    if given.get("warm_start") or strategy.encodes(given) or scenario.workload.learns:
        return False
    if scenario.cluster.servers.copies > 1 or scenario.stop.updates is not None:
        return False
    together = any(simulation.cores.shared(rank) for rank in plan.workers)
    return not together and all(time.steady for time in simulation.compute)


def _heap(room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys, numbers and items, none of which is there."""
    return np.zeros(room), np.zeros(room, np.int64), np.zeros(room, np.int64)


class Asynchronous:
    """The state of such a run, as arrays: see kernel.py, flows_kernel.py and asynchronous_kernel.py."""

    messages = 0.0  # in all such runs of this process

    def __init__(self, simulation: "Simulation") -> None:
        from lockstep.simulator import asynchronous_kernel as kernel  # imports numba: half a second
        from lockstep.simulator.flows_kernel import START, schedule

        self._simulation, self._kernel = simulation, kernel
        plan, network = simulation.plan, simulation.network
        workers, servers = plan.workers, plan.owners.ranks
        self._servers, self._links = servers, network.topology.links
        w, s = len(workers), len(servers)
        assert [*workers, *servers] == [*range(w + s)]
        up = [network.connection(worker, server) for worker in workers for server in servers]
        down = [network.connection(server, worker) for worker in workers for server in servers]
        self._connections = [*up, *down]
        self._paths = [connection.path for connection in self._connections]
        if simulation.scenario.cluster.network.queue:  # a message may go as two flows: queues_kernel.py
            whole = [*self._paths]
            self._paths += [path[:1] for path in whole] + [path[1:] for path in whole]
        count, instead = len(self._paths), "give fewer, or fewer workers"
        require(_BYTES * count, f"the state of {count:,} connections", "cluster.servers.count", instead)
        self._flows: list[Flow | None] = [None] * len(self._paths)
        self._net = self._cleared()
        self._workers, self._of_servers = np.full((3, w), -1, np.int64), np.full((5, s), -1, np.int64)
        self._workers[[kernel.MADE, kernel.DRAWN]] = 0
        self._of_servers[[kernel.HAS, kernel.BUSY]] = 0
        self._busy, self._ready = np.zeros((3, s)), np.zeros(w + s)
        self._of_servers[kernel.SHARD], self._busy[kernel.TAKES] = self._sizes()
        # twice what an event may schedule, so that there is room again once it is doubled
        room = 2 * self._net[4].shape[1] + 8 * (w + s) + 64
        self._queue = _heap(room)
        self._whole, self._real = np.zeros(kernel.PLACES, np.int64), np.array([simulation.environment.now])
        self._whole[kernel.AT] = -1
        rows = [np.zeros((len(names), _ROWS + w), kind) for names, kind in zip(_COLUMNS, _TYPES, strict=True)]
        self._rows = tuple(zip(rows[::2], rows[1::2], strict=True))
        self._draws = self._drawn()
        for worker in workers:
            schedule(self._queue, self._whole, float(self._real[0]), 0, START, worker)

    @classmethod
    def pays(cls, simulation: "Simulation") -> bool:
        """Whether there has been so much to do that it pays to load what is compiled, if that can be."""
        plan, stop = simulation.plan, simulation.scenario.stop
        steps: float = plan.quota.in_all(plan.replicas) or inf
        mean = mean_gradient_s(simulation.scenario, simulation.sizes)
        if stop.time is not None and mean > 0:
            steps = min(steps, len(plan.workers) * stop.time / mean)
        if steps < inf:  # on many hosts each takes longer
            cls.messages += 2 * steps * len(plan.owners.ranks) * max(1, len(plan.owners.ranks) // 4)
        return cls.messages > _MANY and able()

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        from lockstep.simulator.flows_kernel import EVENTS

        return not self._whole[EVENTS]

    def _cleared(self) -> tuple[Any, ...]:
        """Links and flows when nothing has happened: the `net` of flows_kernel.py."""
        from lockstep.simulator import flows_kernel as flows
        from lockstep.simulator.kernel import CAPACITY, NEW, SUSTAINED

        links, count = self._links, len(self._connections)
        places = {link: place for place, link in enumerate(links)}
        longest = max(1, *[len(path) for path in self._paths])
        shift = (longest - 1).bit_length()
        ew = np.full((6, len(self._paths) << shift), -1, np.int64)
        crossed = np.zeros(len(links), np.int64)
        for number, path in enumerate(self._paths):
            for at, link in enumerate(path, number << shift):
                ew[flows.ROUTE, at] = places[link]
                crossed[places[link]] += 1
        lr, lw = np.zeros((9, len(links))), np.zeros((16, len(links)), np.int64)
        lr[CAPACITY] = [link.capacity for link in links]
        lr[SUSTAINED] = [link.sustained for link in links]
        lr[[flows.BOUND, flows.LOOK_AT]] = inf
        lw[: len(NEW)] = np.array(NEW)[:, None]
        lw[flows.ENOUGH], lw[flows.BOTTLENECK] = crossed, 1
        room = _HEAP * crossed
        lw[flows.BASE] = np.cumsum(room) - room
        lw[[flows.FIRST_TOLD, flows.LAST_TOLD]] = -1
        fr = np.zeros((6, len(self._paths)))
        fw = np.full((16, max(len(self._paths), len(links))), -1, np.int64)
        fr[self._kernel.LATENCY, :count] = [connection.latency for connection in self._connections]
        fw[[self._kernel.VERSION, self._kernel.THERE]] = 0
        return shift, lr, lw, fr, fw, ew, _heap(int(room.sum()))

    def _sizes(self) -> tuple[list[int], list[float]]:
        """Bytes of each server's shard, and the seconds of an update to it."""
        simulation, plan = self._simulation, self._simulation.plan
        worker = simulation.nodes[plan.workers[0]]
        server, initial = ParameterServer(worker), worker.initial_parameters()
        shard = [server.of(initial, number).nbytes for number in range(len(self._servers))]
        passes = passes_of(plan.strategy.rule(simulation.scenario.strategy.parameters), 1, False)
        ports = [simulation.nodes[rank].port for rank in self._servers]
        return shard, [port.cost(passes * nbytes) for port, nbytes in zip(ports, shard, strict=True)]

    def _drawn(self) -> np.ndarray:
        """The next seconds of gradients of each worker, shape (workers, n)."""
        times, most = self._simulation.compute, self._simulation.plan.quota.each or _DRAWS
        n = max(1, min(most, _DRAWS // len(times)))
        return np.array([[time.draw(0.0) for _ in range(n)] for time in times], float)

    def run(self, until: float | None = None) -> None:
        """Let time pass until the run is over, or until an instant (s) before that.

        Raises Disturbed if programs must say what is wrong.
        """
        simulation, kernel, whole = self._simulation, self._kernel, self._whole
        flows, quota, stop = simulation.network.flows, simulation.plan.quota, simulation.scenario.stop
        simulation.environment.give_up()
        if until is None:
            until = inf if stop.time is None else stop.time
        overhead, waits = simulation.network.message_overhead, simulation.scenario.cluster.network.queue
        each = kernel.ENDLESS if quota.each is None else min(quota.each, kernel.ENDLESS - 1)
        together = kernel.ENDLESS if quota.together is None else min(quota.together, kernel.ENDLESS - 1)
        while True:
            steps = int(whole[kernel.STEPS])
            reason = kernel.run(
                *(until, overhead, waits, each, together, self._queue, whole, self._real, self._net),
                *(self._workers, self._of_servers, self._busy, self._ready, self._draws, self._rows),
            )
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

    def _draw_again(self) -> None:
        drawn, length = self._workers[self._kernel.DRAWN], self._draws.shape[1]
        for worker in np.flatnonzero(drawn == length).tolist():
            time = self._simulation.compute[worker]
            self._draws[worker] = [time.draw(0.0) for _ in range(length)]
        drawn[drawn == length] = 0
        self._whole[self._kernel.EMPTY] = 0

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
        kernel = self._kernel
        places = kernel.MESSAGES, kernel.GRADIENTS, kernel.UPDATES
        for number, (event, place, rows) in enumerate(zip(_EVENTS, places, self._rows, strict=True)):
            names = *_COLUMNS[2 * number], *_COLUMNS[2 * number + 1]
            columns = dict(
                zip(names, [row[: self._whole[place]] for each in rows for row in each], strict=True)
            )
            self._simulation.recorder.rows(event, columns, _KINDS)
            self._whole[place] = 0

    def _tell(self) -> None:
        """Let those know who are asked how busy they have been."""
        from lockstep.simulator import flows_kernel as flows
        from lockstep.simulator.kernel import AFTER, HEAD, OWNER, RATE

        simulation, (shift, lr, lw, fr, fw, ew, _) = self._simulation, self._net
        columns = *lr[[flows.CLOCK, RATE, flows.SINCE, flows.ENTERED]].tolist(), lw[HEAD].tolist()
        for link, clock, rate, since, entered, entry in zip(self._links, *columns, strict=True):
            link.clock, link.rate, link.since, link.entered, link.flows = clock, rate, since, entered, {}
            while entry >= 0:
                number = entry >> shift
                flow, owner = self._flow(number), int(fw[OWNER, number])
                flow.owner = self._links[owner] if owner >= 0 else None
                flow.due = flow.size = float(fr[flows.DUE, number])
                link.flows[flow] = flow.path
                entry = int(ew[AFTER, entry])
        for rank, free, worked in zip(self._servers, *self._busy[1:].tolist(), strict=True):
            node = simulation.nodes[rank]
            node.busy_until, node.worked_s = free, worked

    def _flow(self, number: int) -> Flow:
        flow = self._flows[number]
        if flow is None:
            flow = self._flows[number] = Flow(self._paths[number], 0.0)
        return flow

    def _end(self) -> None:
        """Leave the simulation as one that its programs have made."""
        simulation, kernel = self._simulation, self._kernel
        for process in simulation.programs.values():
            process.alive = False
        network, versions = simulation.network, self._of_servers[kernel.HAS].tolist()
        network.bytes_sent, network.bytes_arrived = self._whole[[kernel.SENT, kernel.CAME]].tolist()
        simulation.ending.versions = dict(zip(self._servers, versions, strict=True))
        simulation.ending.at(simulation.environment.now)
