"""What programs do in a mini-batch (trace.py), as the loop takes it (traced_kernel.py)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.simulator.operations import (
    Compute,
    Computed,
    Operation,
    Receive,
    ReceiveAny,
    Reply,
    Send,
    Sent,
    Trace,
    Update,
    Work,
)

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation


class Packed:
    """The operations of all nodes, as arrays; kernel: traced_kernel.py."""

    def __init__(self, kernel: Any, simulation: "Simulation", traces: Sequence[Trace]) -> None:
        self._kernel = kernel
        self._share, self._length = simulation.backward, len(simulation.initial(0))
        spans = [(*trace.before, *trace.again, *trace.after) for trace in traces]
        sends = [
            (rank, each.to) for rank, span in enumerate(spans) for each in span if isinstance(each, Send)
        ]
        waits = [each.before for span in spans for each in span if isinstance(each, Sent)]
        receives = [
            (each.sender, rank)
            for rank, span in enumerate(spans)
            for each in span
            if isinstance(each, Receive)
        ]
        self.ends = [*dict.fromkeys([*sends, *receives])]  # of each connection: from whom, to whom
        self.back = max(waits, default=0)  # messages before the last one that are waited for
        self.most = max(sum(map(_size, span)) for span in spans)  # that a node does
        self._places = {pair: place for place, pair in enumerate(self.ends)}
        self.spans: list[tuple[int, int, int, int]] = []  # of each node, see traced_kernel.py
        self.sorts: dict[str, int] = {}  # kinds of messages
        self.works: dict[str, int] = {}
        self.updates: list[tuple[int, int, int]] = []
        self._operations: list[tuple[int, int, int, int]] = []
        self._seconds: list[float] = []
        self._parts: list[float] = []
        self._begun: dict[int, int] = {}  # parts of the last gradient, by their places: how many come first
        for trace in traces:
            self._add(trace)

    def _add(self, trace: Trace) -> None:
        """Those of the next node."""
        rank, places = len(self.spans), [len(self._operations)]
        for number, span in enumerate(trace):
            for each in span:
                self._operations.append(self._packed(rank, each))
                self._seconds.append(each.seconds if isinstance(each, Work) else 0.0)
            if number < 2:
                self._operations.append((self._kernel.REPEAT, 0, 0, 0))
                self._seconds.append(0.0)
            places.append(len(self._operations))
        self.spans.append((places[0], places[1], places[2], places[3]))

    def _packed(self, rank: int, each: Operation) -> tuple[int, int, int, int]:
        kernel = self._kernel
        match each:
            case Send(to, kind, nbytes):
                sort = self.sorts.setdefault(kind, len(self.sorts))
                return kernel.SEND, self._places[rank, to], nbytes, sort
            case Sent(before):
                return kernel.AWAIT_SENT, before, 0, 0
            case Receive(sender):
                return kernel.RECEIVE, self._places[sender, rank], 0, 0
            case ReceiveAny():
                return kernel.RECEIVE_ANY, 0, 0, 0
            case Reply(kind, nbytes):
                return kernel.REPLY, 0, nbytes, self.sorts.setdefault(kind, len(self.sorts))
            case Compute(places):
                shares = {at: 1 - self._share * at / self._length for at in places}
                instants = sorted({*shares.values(), 1.0})
                self._begun = {at: 1 + instants.index(share) for at, share in shares.items()}
                self._parts += instants
                return kernel.COMPUTE, len(self._parts) - len(instants), len(instants), 0
            case Computed(at):
                return kernel.AWAIT_COMPUTED, self._begun.get(at, 1), 0, 0
            case Work(_, kind):
                work = -1 if kind is None else self.works.setdefault(kind, len(self.works))
                return kernel.BE_BUSY, 0, 0, work
            case Update(ahead, contributions):
                first = len(self.updates)
                self.updates += [(part.worker, part.staleness, part.batches) for part in contributions]
                return kernel.UPDATE, first, len(contributions), ahead

    def connections(self) -> np.ndarray:
        """Of each: from whom, to whom, and the one back, -1: there is none; shape (3, n)."""
        back = [self._places.get((to, sender), -1) for sender, to in self.ends]
        found = np.array([[sender, to] for sender, to in self.ends], np.int64).reshape(-1, 2)
        return np.array([*found.T, back], np.int64)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As traced_kernel.py takes them."""
        return (
            np.array(self._operations, np.int64).reshape(-1, 4).T.copy(),
            np.array(self._seconds),
            np.array(self._parts),
            np.array(self.updates, np.int64).reshape(-1, 3).T.copy(),
        )


def _size(each: Operation) -> int:
    """How much room it takes at most: events, messages or records."""
    match each:
        case Compute(parts):
            return 2 + len(parts)
        case Update(_, contributions):
            return len(contributions)
    return 1
