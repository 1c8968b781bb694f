"""What the passes of a device come to: real numbers where something is learned, else bodies of the right
size."""

from collections.abc import Callable
from math import nan
from typing import Any

from lockstep.job.plan import Plan
from lockstep.job.port import PassOf
from lockstep.strategies.orders import KINDS
from lockstep.workloads.base import Learner
from lockstep.workloads.compute_time import ComputeTime


class Segments:
    """The pieces of the model. In one process of a real run it is asked for one device's alone."""

    def __init__(self, plan: Plan, learner: Learner | None, blank: Callable[[int], Any]) -> None:
        """blank: makes a body of so many bytes that means nothing."""
        self._plan, self._blank = plan, blank
        self._segments: list[Any] | None = None
        self._losses: dict[Any, float] = {}
        if learner is not None:
            from lockstep.workloads.segments import segments

            bounds = [0, *(piece.layers.stop for piece in plan.pieces)]
            self._segments = segments(learner, bounds, plan.micro_batches, plan.scenario.split.recompute)

    def do(self, rank: int, parameters: Any, step: int, of: PassOf) -> tuple[Any, float]:
        """The result of a pass, and behind the last piece the micro-batch's part of the loss; else nan."""
        plan = self._plan
        stage = plan.stages[rank]
        number = of.chunk * stage.count + stage.index
        if self._segments is None:
            return self._sized(plan.pieces[number], parameters, of), nan
        segment, micro = self._segments[number], (stage.replica, step, of.micro)
        key, last = (number, micro), number == len(self._segments) - 1
        if of.kind == "forward":
            value = segment.forward(parameters, _micro(micro), of.given)
            if last:
                self._losses[key] = float(value)
            return value, nan
        if of.kind == "backward-weights":
            return segment.backward_weights(_micro(micro)), nan
        back = segment.backward if of.kind == "backward" else segment.backward_inputs
        return back(_micro(micro), of.given), self._losses.pop(key, nan)

    def _sized(self, piece: Any, own: Any, of: PassOf) -> Any:
        micro_batches = self._plan.micro_batches
        if of.kind == "forward":
            return self._blank(piece.activation // micro_batches)
        if of.kind == "backward-weights":
            return own
        error = self._blank(piece.before // micro_batches)
        return (error, own) if of.kind == "backward" else error

    def kept(self, rank: int, step: int, of: PassOf) -> int:
        """Bytes of a micro-batch that were really kept during a pass; predicted where nothing is learned."""
        stage = self._plan.stages[rank]
        if self._segments is None:
            return predicted(self._plan, rank, of)
        segment = self._segments[of.chunk * stage.count + stage.index]
        if of.kind in ("backward", "backward-weights"):
            return segment.went_through  # type: ignore[no-any-return]
        kept: int = segment.kept(_micro((stage.replica, step, of.micro)))
        return kept


def predicted(plan: Plan, rank: int, of: PassOf) -> int:
    """Bytes that a device keeps of a micro-batch during a pass, as its layers say."""
    piece = plan.group(rank).pieces[of.chunk]
    return (piece.kept if of.kind == "forward" else piece.full) // plan.micro_batches


def _micro(micro: tuple[int, int, int]) -> Any:
    from lockstep.workloads.segments import Micro

    return Micro(*micro)


class PassTimes:
    """How long the passes of a device take: shares of a time that is drawn once for the mini-batch."""

    def __init__(self, plan: Plan, rank: int, compute: ComputeTime) -> None:
        split, pieces = plan.scenario.split, plan.group(rank).pieces
        self._compute = compute
        self._shares = {  # of kind and chunk: how much of a whole gradient's time
            (kind, chunk): piece.share(kind, split.recompute) / plan.micro_batches
            for chunk, piece in enumerate(pieces)
            for kind in KINDS
        }
        self._overhead = plan.scenario.cluster.pass_overhead
        self._drawn: dict[int, float] = {}  # mini-batch → seconds of its whole gradient
        self._under_way = split.pipeline  # mini-batches at once, at most

    def seconds(self, now: float, step: int, of: PassOf) -> float:
        """Of a pass that begins `now`, in s since the start."""
        drawn = self._drawn.get(step)
        if drawn is None:
            self._drawn = {old: s for old, s in self._drawn.items() if old > step - self._under_way}
            self._drawn[step] = drawn = self._compute.draw(now)
        return drawn * self._shares[of.kind, of.chunk] + self._overhead
