"""What the passes of a device come to: real numbers where something is learned, else bodies of the right
size."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import nan
from typing import Any

from lockstep.job.plan import Plan
from lockstep.job.port import PassOf
from lockstep.scenarios import ScenarioError
from lockstep.strategies.orders import KINDS
from lockstep.workloads.base import Learner
from lockstep.workloads.compute_time import ComputeTime


class Segments:
    """The pieces of the model. In one process of a real run it is asked for one device's alone."""

    def __init__(self, plan: Plan, learner: Learner | None, blank: Callable[[int], Any]) -> None:
        """blank: makes a body of so many bytes that means nothing."""
        self._plan, self._blank, self._learner = plan, blank, learner
        self._segments: dict[int, Sequence[Any]] = {}  # by a device's place in its stage
        self._losses: dict[Any, float] = {}

    def _of(self, rank: int) -> Sequence[Any]:
        """What computes each piece of the model, or a device's part of it."""
        plan, split = self._plan, self._plan.scenario.split
        place = plan.stages[rank].tensor
        if place not in self._segments:
            from lockstep.workloads.segments import segments

            assert self._learner is not None
            bounds = [0, *(piece.layers.stop for piece in plan.pieces)]
            found = segments(self._learner, bounds, plan.micro_batches, split, place % split.parts)
            self._segments[place] = found
        return self._segments[place]

    def warm_up(self, rank: int) -> bool:
        """Take the model apart, and compute first passes of a device's pieces: both are slow.

        Pieces that several devices share do not pass: they would meet each other. Returns whether any has.
        """
        import torch

        plan, stage, all_segments = self._plan, self._plan.stages[rank], self._of(rank)
        assert self._learner is not None
        whole, micro = self._learner.initial(), _micro((stage.replica, 0, 0))
        for chunk, piece in enumerate(plan.group(rank).pieces):
            if piece.cut:
                continue
            segment = all_segments[chunk * stage.count + stage.index]
            own = torch.cat([whole[part] for part in piece.parameters])
            inputs, error = (
                torch.zeros(nbytes // (plan.micro_batches * plan.sizes.itemsize)) if nbytes else None
                for nbytes in (piece.before, piece.activation)
            )
            with suppress(ScenarioError):  # of a user's layer that refuses zeros: it gets other numbers
                segment.forward(own, micro, inputs)
                segment.backward(micro, error)
        return not all(piece.cut for piece in plan.group(rank).pieces)

    def do(self, rank: int, parameters: Any, step: int, of: PassOf) -> tuple[Any, float]:
        """The result of a pass, and behind the last piece the micro-batch's part of the loss; else nan."""
        plan = self._plan
        stage = plan.stages[rank]
        if self._learner is None:
            return self._sized(plan.group(rank).pieces[of.chunk], parameters, of), nan
        number, all_segments = of.chunk * stage.count + stage.index, self._of(rank)
        segment, micro = all_segments[number], _micro((stage.replica, step, of.micro))
        its, at = stage.exchanges[of.chunk], of.segment
        key, last = (rank, number, micro), number == len(all_segments) - 1
        if of.kind == "recompute":
            return segment.recompute(micro, of.given, at), nan
        if of.kind == "forward":
            value = segment.forward(parameters, micro, of.given, at)
            if last and at == len(its.forward) - 1:
                self._losses[key] = float(value)
            return value, nan
        if of.kind == "backward-weights":
            return segment.backward_weights(micro), nan
        ends = at == len(its.backward) - 1
        loss = self._losses.pop(key, nan) if ends else nan
        if of.kind == "backward":
            return segment.backward(micro, of.given, at), loss
        return segment.backward_inputs(micro, of.given, at), loss

    def _sized(self, piece: Any, own: Any, of: PassOf) -> Any:
        if of.kind == "backward-weights":
            return own
        segments, micro_batches = piece.segments(of.kind), self._plan.micro_batches
        ends = of.segment == len(segments) - 1
        at_end = piece.activation if of.kind in ("forward", "recompute") else piece.before
        exchanged = segments[of.segment].exchange is not None
        found = self._blank(
            (segments[of.segment].nbytes if exchanged or not ends else at_end) // micro_batches
        )
        return (found, own) if of.kind == "backward" else found

    def kept(self, rank: int, step: int, of: PassOf) -> int:
        """Bytes of a micro-batch that were really kept during a pass; predicted where nothing is learned."""
        stage = self._plan.stages[rank]
        if self._learner is None:
            return predicted(self._plan, rank, of)
        segment = self._of(rank)[of.chunk * stage.count + stage.index]
        last = of.segment == len(self._plan.group(rank).pieces[of.chunk].segments(of.kind)) - 1
        if last and of.kind in ("backward", "backward-weights"):
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
    """How long the passes of a device take: shares of a time that is drawn once for the mini-batch.

    The first one waits for the mini-batch, where others read it.
    """

    def __init__(self, plan: Plan, rank: int, compute: ComputeTime) -> None:
        split, pieces = plan.scenario.split, plan.group(rank).pieces
        self._compute = compute
        self._shares = {  # of kind, chunk and segment: how much of a whole gradient's time
            (kind, chunk, number): piece.share(kind, split.recompute) * segment.share / plan.micro_batches
            for chunk, piece in enumerate(pieces)
            for kind in KINDS
            for number, segment in enumerate(piece.segments(kind))
        }
        self._overhead = plan.scenario.cluster.pass_overhead
        self._drawn: dict[int, float] = {}  # mini-batch → seconds of its gradient, without reading
        self._under_way = split.pipeline  # mini-batches at once, at most

    def seconds(self, now: float, step: int, of: PassOf) -> float:
        """Of a pass that begins `now`, in s since the start."""
        drawn, waited = self._drawn.get(step), 0.0
        if drawn is None:
            self._drawn = {old: s for old, s in self._drawn.items() if old > step - self._under_way}
            drawn = self._compute.draw(now)
            waited = self._compute.waited
            self._drawn[step] = drawn = drawn - waited
        return waited + drawn * self._shares[of.kind, of.chunk, of.segment] + self._overhead
