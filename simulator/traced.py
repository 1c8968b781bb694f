"""Runs of strategies that do the same in every mini-batch, in one loop (loop.py): what their programs do is
written down once (trace.py), and done again and again (traced_kernel.py)."""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lockstep.simulator.loop import Loop
from lockstep.simulator.ring import Disturbed, separate_lanes

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation
    from lockstep.simulator.operations import Trace

_FEW = 8  # mini-batches of each worker, of which the first ones are made to write them down
_MESSAGES = 1 << 10  # of which there is room for at first
_AT_ONCE = 5000  # messages in a mini-batch, from which on it takes longer to solve the network than all else
_PARTS = 8  # messages at most, about, that a node sends each other in a mini-batch


class Traced(Loop):
    """The state of such a run: see traced_kernel.py."""

    kernel: ClassVar = "traced_kernel"

    @staticmethod
    def follows(simulation: "Simulation") -> bool:  # noqa: D102
        quota = simulation.plan.quota
        endless = quota.each is None and simulation.scenario.stop.time is not None
        if not simulation.plan.strategy.repeats or quota.together is not None:
            return False
        if simulation.plan.relayed or simulation.scenario.cluster.servers.copies > 1:
            return False
        if not simulation.undisturbed:
            return False
        return endless or (quota.each is not None and quota.each >= _FEW)

    def __init__(self, simulation: "Simulation", traces: "list[Trace] | None" = None) -> None:
        """traces: of all nodes, if they are there. Raises Untraceable if only programs can tell."""
        from lockstep.simulator import traced_kernel as kernel
        from lockstep.simulator.packed import Packed

        self._states, network = kernel, simulation.network
        program = Packed(kernel, simulation, _traces(simulation) if traces is None else traces)
        self._more = 16 + 2 * program.most
        self._begin(simulation, [network.connection(*pair) for pair in program.ends], self._more, self._more)
        self._kinds = {"message": [*program.sorts], "work": [*program.works]}
        count = len(simulation.roles)
        self._nodes = np.zeros((14, count), np.int64)
        self._nodes[kernel.FIRST_IN] = -1
        self._nodes[[kernel.POINT, kernel.AGAIN, kernel.AFTER, kernel.END]] = np.array(program.spans).T
        self._nodes[kernel.OWNER_OF] = [simulation.nodes[rank].owner for rank in range(count)]
        self._busy = np.zeros((3, count))
        self._gone = np.full((count, 1 + program.back), np.inf)
        self._program = program.arrays()
        ends = program.connections()
        self._ends = np.concatenate([ends, np.zeros_like(ends)])
        self._pool: Any = None
        self._add_messages(max(_MESSAGES, 4 * self._more))
        self._start(range(count))

    @classmethod
    def of(cls, simulation: "Simulation") -> "Traced | None":
        """Traced to find out how many messages there are, if there may be many. Raises Untraceable."""
        if not cls.may_pay(simulation, float(_PARTS * len(simulation.roles) ** 2)):
            return None
        from lockstep.simulator.operations import Send

        found = _traces(simulation)
        messages: float = sum(isinstance(each, Send) for trace in found for each in trace.again)
        return cls(simulation, found) if cls.pays(simulation, messages * (1 + messages / _AT_ONCE)) else None

    def _add_messages(self, room: int) -> None:
        """Make room for so many messages altogether."""
        kernel, whole = self._kernel, self._whole
        before = 0 if self._pool is None else self._pool[0].shape[1]
        messages, sent_at = np.zeros((5, room), np.int64), np.zeros((2, room))
        if self._pool is not None:
            messages[:, :before], sent_at[:, :before] = self._pool[0], self._pool[1]
        messages[self._states.NEXT, before:] = np.arange(before + 1, room + 1)
        messages[self._states.NEXT, -1] = whole[kernel.FREE_ONE] if whole[kernel.FREE_ONES] else -1
        whole[kernel.FREE_ONE] = before
        whole[kernel.FREE_ONES] += room - before
        self._pool = messages, sent_at, self._ends

    def _make_room(self) -> None:
        super()._make_room()
        if self._whole[self._kernel.FREE_ONES] < self._more:
            self._add_messages(2 * self._pool[0].shape[1])

    def _advance(self, until: float, overhead: float, waits: float, each: int, together: int) -> int:
        found: int = self._run(
            *(until, overhead, waits, each, self._more, self._queue, self._whole, self._real, self._net),
            *self._program,
            *(self._nodes, self._busy, self._pool, self._gone, self._draws, self._rows),
        )
        return found

    def _times_drawn(self) -> np.ndarray:
        found: np.ndarray = self._nodes[self._states.DRAWN]
        return found

    def _end(self) -> None:
        done = self._nodes[self._states.POINT] == self._nodes[self._states.END]
        if self.over and not done.all():
            raise Disturbed  # they wait for each other
        super()._end()

    def _tell(self) -> None:
        super()._tell()
        kernel, simulation = self._states, self._simulation
        for rank in range(len(simulation.plan.workers), len(simulation.roles)):
            busy = simulation.nodes[rank].busy
            busy.until, busy.total_s = self._busy[[kernel.FREE, kernel.WORKED], rank].tolist()


def _traces(simulation: "Simulation") -> "list[Trace]":
    """But for rings of all workers, which rings.py computes. Raises Untraceable."""
    from lockstep.simulator.trace import traces  # for many messages only

    queued = bool(simulation.scenario.cluster.network.queue)
    lanes = separate_lanes(simulation.network, simulation.plan.workers, queued)
    return traces(simulation, rings=lanes is None)
