"""Runs of asynchronous workers and servers without a coroutine, an event or a message: a compiled loop.

As long as nothing is learned, and nothing disturbs the network, all that happens follows from the times of
gradients and the sizes of messages (asynchronous_kernel.py). Programs, events and messages remain the
oracle: records and utilisation have the same bits. Without numba, and in short runs, they are what runs.
"""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.analysis.columns import COLUMNS, FIELDS
from lockstep.simulator.asynchronous_kernel import (
    AT,
    DONE,
    EMPTY,
    ENDLESS,
    FULL,
    GRADIENTS,
    MESSAGES,
    MORE,
    PLACES,
    READ,
    STEPS,
    UNREAD,
    UPDATES,
    run,
)
from lockstep.simulator.flows_kernel import EVENTS, START, schedule
from lockstep.simulator.jit import able
from lockstep.simulator.links import Flow
from lockstep.simulator.ring import Disturbed
from lockstep.strategies.consistency import immediate
from lockstep.strategies.parameter_server import ParameterServer
from lockstep.strategies.updates import passes_of
from lockstep.strategies.worker_loops import every_batch
from lockstep.workloads.compute_time import mean_gradient_s

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation

_MANY = 50_000  # messages in such runs, after which it pays to load what is compiled
_ROWS = 1 << 14  # of records that are packed at once
_DRAWS = 1 << 16  # times of gradients that are drawn at once
_KINDS = ("pull", "push", "parameters", "leave")  # by their numbers
_EVENTS = ("message", "gradient", "update")
_LOOK_EVERY = 1 << 12  # steps, after which somebody may want to know how far the run is


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
    if (
        scenario.cluster.network.queue
        or scenario.cluster.servers.copies > 1
        or scenario.stop.updates is not None
    ):
        return False
    together = any(simulation.cores.shared(rank) for rank in plan.workers)
    return not together and all(time.steady for time in simulation.compute)


class Asynchronous:
    """The state of such a run, as arrays."""

    messages = 0.0  # in all such runs of this process

    def __init__(self, simulation: "Simulation", run: Callable[..., int] = run) -> None:
        self._simulation, self._run = simulation, run
        plan, network = simulation.plan, simulation.network
        workers, servers = plan.workers, plan.owners.ranks
        self._servers = servers
        count, w, s = 2 * len(workers) * len(servers), len(workers), len(servers)
        up = [network.connection(worker, server) for worker in workers for server in servers]
        down = [network.connection(server, worker) for worker in workers for server in servers]
        self._connections = [*up, *down]
        self._links = simulation.network.topology.links
        self._net(count)
        self._flows: list[Flow | None] = [None] * count

        def ints(length: int, value: int = 0, kind: Any = np.int64) -> np.ndarray:
            return np.full(length, value, kind)

        shard, takes = self._sizes()
        latency = np.array([connection.latency for connection in self._connections], float)
        start, left = np.zeros(count), np.zeros(count)
        there = ints(w * s, 0, np.bool_)
        self._messages = ints(count), ints(count), start, left, latency, ints(count, -1), there
        self._workers = ints(w), ints(w, -1), ints(w)
        busy = ints(s, 0, np.bool_)
        of_servers = ints(s), busy, ints(s, -1), ints(s, -1), shard, takes, np.zeros(s), np.zeros(s)
        self._of_servers = of_servers
        self._ranks = np.array([*workers, *servers], np.int64), np.zeros(w + s)
        room = 2 * max(count, len(self._links)) + 8 * (w + s) + 64
        self._queue: tuple[np.ndarray, ...] = np.empty(room), ints(room), ints(room)
        self._whole, self._real = ints(PLACES), np.array([simulation.environment.now, 0.0, 0.0])
        self._whole[AT] = -1
        self._rows = tuple(
            [tuple([np.zeros(_ROWS + w, COLUMNS[name][0]) for name in FIELDS[event]]) for event in _EVENTS]
        )
        self._finished = ints(max(count, len(self._links)), 0, np.int32)
        self._draws = self._drawn()
        for worker in range(w):
            schedule(self._queue, self._whole, float(self._real[0]), 0, START, worker)

    @classmethod
    def pays(cls, simulation: "Simulation") -> bool:
        """Whether there has been so much to do that it pays to load what is compiled, if that can be."""
        plan, stop = simulation.plan, simulation.scenario.stop
        steps: float = plan.quota.in_all(plan.replicas) or inf
        mean = mean_gradient_s(simulation.scenario, simulation.sizes)
        if stop.time is not None and mean > 0:
            steps = min(steps, len(plan.workers) * stop.time / mean)
        cls.messages += 2 * steps * len(plan.owners.ranks)
        return cls.messages > _MANY and able()

    def _net(self, count: int) -> None:
        """The arrays of links and flows: see `asynchronous_kernel.run`."""
        links = self._links
        places = {link: place for place, link in enumerate(links)}
        longest = max(1, *[len(connection.path) for connection in self._connections])
        shift = (longest - 1).bit_length()
        route = np.full(count << shift, -1, np.int32)
        crossed = np.zeros(len(links) + 1, np.int64)
        for number, connection in enumerate(self._connections):
            for at, link in enumerate(connection.path, number << shift):
                route[at] = places[link]
                crossed[places[link] + 1] += 1

        def whole(length: int, value: int = 0) -> np.ndarray:
            return np.full(length, value, np.int32)

        n = len(links)
        capacity = np.array([link.capacity for link in links], float)
        sustained = np.array([link.sustained for link in links], float)
        entries = whole(len(route), -1), whole(len(route), -1), whole(len(route), -1)
        ends = whole(n, -1), whole(n, -1), whole(n, -1), whole(n, -1)
        counts, owners = (whole(n), whole(n), whole(n)), tuple([whole(count, -1) for _ in range(5)])
        floats = capacity, sustained, np.zeros(n), np.zeros(n)
        clocks = np.zeros(n), np.zeros(n), np.full(n, inf), np.full(n, inf)
        held, base = whole(int(crossed.sum())), np.cumsum(crossed)[:-1]
        heaps = held, base, whole(n), whole(count), np.zeros(count, np.int64), np.zeros(count)
        of_links = np.zeros(n), np.zeros(n, np.int64), np.ones(n, np.bool_)
        changes = whole(n), np.zeros(n, np.bool_)
        self._network = (
            *(shift, route, entries, ends, counts, owners, floats, clocks, heaps, of_links),
            changes,
        )

    def _sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of each server's shard, and the seconds of an update to it."""
        simulation, plan = self._simulation, self._simulation.plan
        worker = simulation.nodes[plan.workers[0]]
        server, initial = ParameterServer(worker), worker.initial_parameters()
        shard = [server.of(initial, number).nbytes for number in range(len(self._servers))]
        passes = passes_of(plan.strategy.rule(simulation.scenario.strategy.parameters), 1, False)
        ports = [simulation.nodes[rank].port for rank in self._servers]
        takes = [port.cost(passes * nbytes) for port, nbytes in zip(ports, shard, strict=True)]
        return np.array(shard, np.int64), np.array(takes, float)

    def _drawn(self) -> np.ndarray:
        """The next seconds of gradients of each worker, shape (workers, n)."""
        simulation, w = self._simulation, len(self._simulation.plan.workers)
        most = simulation.plan.quota.each or _DRAWS
        n = max(1, min(most, _DRAWS // w))
        return np.array([[time.draw(0.0) for _ in range(n)] for time in simulation.compute], float)

    def run(self) -> None:
        """Let time pass until the run is over. Raises Disturbed if programs must say what is wrong."""
        simulation = self._simulation
        stop, quota = simulation.scenario.stop, simulation.plan.quota
        until = inf if stop.time is None else stop.time
        each = ENDLESS if quota.each is None else quota.each
        together = ENDLESS if quota.together is None else quota.together
        overhead, whole = simulation.network.message_overhead, self._whole
        simulation.environment.give_up()
        while True:
            steps = whole[STEPS]
            reason = self._run(
                *(until, overhead, each, together, self._queue, whole, self._real, self._network),
                *(self._messages, self._workers, self._of_servers, self._ranks, self._draws, self._rows),
                self._finished,
            )
            simulation.count_steps(int(whole[STEPS] - steps))
            if reason == READ:
                self._tell()
                simulation.network.flows.unwatched = int(whole[UNREAD])
                simulation.network.flows.ended(0)
                whole[UNREAD] = simulation.network.flows.unwatched
            elif reason == MORE:
                self._draw_again()
            elif reason == FULL:
                self._make_room()
            elif reason == DONE:
                break
            else:
                raise Disturbed
        self._pack()
        self._tell()
        self._end()

    def _draw_again(self) -> None:
        _, _, drawn = self._workers
        length = self._draws.shape[1]
        for worker in np.flatnonzero(drawn == length).tolist():
            time = self._simulation.compute[worker]
            self._draws[worker] = [time.draw(0.0) for _ in range(length)]
        drawn[drawn == length] = 0
        self._whole[EMPTY] = 0

    def _make_room(self) -> None:
        self._pack()
        if 2 * self._whole[EVENTS] > len(self._queue[0]):
            self._queue = tuple([np.concatenate([each, np.empty_like(each)]) for each in self._queue])

    def _pack(self) -> None:
        """Give the records to who collects them."""
        recorder = self._simulation.recorder
        for event, place, rows in zip(_EVENTS, (MESSAGES, GRADIENTS, UPDATES), self._rows, strict=True):
            columns = {
                name: np.asarray(column)[: self._whole[place]]
                for name, column in zip(FIELDS[event], rows, strict=True)
            }
            recorder.rows(event, columns, _KINDS)
            self._whole[place] = 0

    def _tell(self) -> None:
        """Let those know who are asked how busy they have been, and when it is."""
        simulation, (shift, _, entries, ends, _, owners, floats, clocks, heaps, links, _) = (
            self._simulation,
            self._network,
        )
        simulation.environment.now = float(self._real[0])
        columns = clocks[0], floats[3], clocks[1], links[0], ends[0]
        of_links = zip(self._links, *[column.tolist() for column in columns], strict=True)
        for link, clock, rate, since, entered, entry in of_links:
            link.clock, link.rate, link.since, link.entered, link.flows = clock, rate, since, entered, {}
            while entry >= 0:
                flow = self._flow(entry >> shift)
                owner = int(owners[1][entry >> shift])
                flow.owner, flow.due = (
                    (self._links[owner] if owner >= 0 else None),
                    float(heaps[5][entry >> shift]),
                )
                link.flows[flow] = flow.path
                entry = int(entries[2][entry])
        _, _, _, _, _, _, free, worked = self._of_servers
        for rank, until, seconds in zip(self._servers, free.tolist(), worked.tolist(), strict=True):
            node = simulation.nodes[rank]
            node.busy_until, node.worked_s = until, seconds

    def _flow(self, number: int) -> Flow:
        flow = self._flows[number]
        if flow is None:
            s = len(self._servers)
            nbytes = int(self._of_servers[4][number % s])
            flow = self._flows[number] = Flow(self._connections[number].path, nbytes)
        return flow

    def _end(self) -> None:
        """Leave the simulation as one that its programs have made."""
        simulation = self._simulation
        for process in simulation.programs.values():
            process.alive = False
        network, (_, sent, arrived) = simulation.network, self._real.tolist()
        network.bytes_sent, network.bytes_arrived = int(sent), int(arrived)
        versions = self._of_servers[0].tolist()
        simulation.ending.versions = dict(zip(self._servers, versions, strict=True))
        simulation.ending.at(simulation.environment.now)
