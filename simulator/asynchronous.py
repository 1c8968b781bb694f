"""Runs of asynchronous workers and servers in one loop (loop.py): as long as nothing is learned, and nothing
disturbs the network, all that happens follows from the times of gradients and the sizes of messages."""

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from lockstep.simulator.loop import Loop
from lockstep.strategies.consistency import immediate
from lockstep.strategies.parameter_server import ParameterServer
from lockstep.strategies.updates import passes_of
from lockstep.strategies.worker_loops import every_batch

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation


class Asynchronous(Loop):
    """The state of such a run: see asynchronous_kernel.py."""

    kernel: ClassVar = "asynchronous_kernel"
    instead: ClassVar = "cluster.servers.count", "give fewer, or fewer workers"

    @staticmethod
    def follows(simulation: "Simulation") -> bool:  # noqa: D102
        plan, scenario = simulation.plan, simulation.scenario
        strategy, given = plan.strategy, scenario.strategy.parameters
        if strategy.worker_loop is not every_batch or strategy.consistency is not immediate:
            return False
        if given.get("warm_start") or strategy.encodes(given) or scenario.cluster.servers.copies > 1:
            return False
        return simulation.undisturbed and not plan.relayed

    def __init__(self, simulation: "Simulation") -> None:
        from lockstep.simulator import asynchronous_kernel as kernel

        self._states = kernel
        plan, network = simulation.plan, simulation.network
        workers, servers = plan.workers, plan.owners.ranks
        self._servers = servers
        w, s = len(workers), len(servers)
        assert [*workers, *servers] == [*range(w + s)]
        up = [network.connection(worker, server) for worker in workers for server in servers]
        down = [network.connection(server, worker) for worker in workers for server in servers]
        self._begin(simulation, [*up, *down], 4 * (w + s) + 32, w)
        self._kinds = {"message": ("pull", "push", "parameters", "leave")}
        self._net[4][[kernel.VERSION, kernel.THERE]] = 0
        self._workers, self._of_servers = np.full((3, w), -1, np.int64), np.full((5, s), -1, np.int64)
        self._workers[[kernel.MADE, kernel.DRAWN]] = 0
        self._of_servers[[kernel.HAS, kernel.BUSY]] = 0
        self._busy, self._ready = np.zeros((3, s)), np.zeros(w + s)
        self._of_servers[kernel.SHARD], self._busy[kernel.TAKES] = self._sizes()
        self._columns = self._rows[:-1]  # work is nothing that is recorded
        self._start(workers)

    @classmethod
    def of(cls, simulation: "Simulation") -> "Asynchronous | None":  # noqa: D102
        servers = len(simulation.plan.owners.ranks)
        messages = 2.0 * len(simulation.plan.workers) * servers
        # on many hosts each takes longer
        return cls(simulation) if cls.pays(simulation, messages * max(1, servers // 4)) else None

    def _sizes(self) -> tuple[list[int], list[float]]:
        """Bytes of each server's shard, and the seconds of an update to it."""
        simulation, plan = self._simulation, self._simulation.plan
        worker = simulation.nodes[plan.workers[0]]
        server, initial = ParameterServer(worker), worker.initial_parameters()
        shard = [server.of(initial, number).nbytes for number in range(len(self._servers))]
        passes = passes_of(plan.strategy.rule(simulation.scenario.strategy.parameters), 1, False)
        ports = [simulation.nodes[rank].port for rank in self._servers]
        return shard, [port.cost(passes * nbytes).seconds for port, nbytes in zip(ports, shard, strict=True)]

    def _advance(self, until: float, overhead: float, waits: float, each: int, together: int) -> int:
        found: int = self._run(
            *(until, overhead, waits, each, together, self._queue, self._whole, self._real, self._net),
            *(self._workers, self._of_servers, self._busy, self._ready, self._draws, self._columns),
        )
        return found

    def _times_drawn(self) -> np.ndarray:
        found: np.ndarray = self._workers[self._states.DRAWN]
        return found

    def _tell(self) -> None:
        super()._tell()
        for rank, free, worked in zip(self._servers, *self._busy[1:].tolist(), strict=True):
            node = self._simulation.nodes[rank]
            node.busy.until, node.busy.total_s = free, worked
