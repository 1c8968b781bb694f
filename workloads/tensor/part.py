"""What a device computes of a piece whose layers are cut, on real numbers: segment by segment, both ways."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from lockstep.workloads import models
from lockstep.workloads.alignment import aligned
from lockstep.workloads.keeping import Keeping, storage_of
from lockstep.workloads.streams import finished
from lockstep.workloads.task import Loss
from lockstep.workloads.tensor.cut import Cut
from lockstep.workloads.tensor.steps import Compute, Context, Crossing

Tensors = tuple[Tensor, ...]
Errors = tuple[Tensor | None, ...]


@dataclass
class _Run:
    """A computation that has been, to go back through."""

    inputs: Tensors  # leaves of the graph
    outputs: list[
        GradientEdge | int | None
    ]  # an input that went past it, by its place; None: needs no gradient
    shapes: list[torch.Size]  # of the outputs
    dtypes: list[torch.dtype]  # likewise


@dataclass
class _Going:
    """A micro-batch on its way through the piece."""

    parameters: Tensor
    given: Tensor | None  # what came in
    state: Tensors = ()
    errors: Errors = ()
    runs: dict[int, _Run] = field(default_factory=dict)  # by step
    leaves: list[Tensor] = field(default_factory=list)  # the weights that it was computed with
    sent: dict[int, tuple[torch.Size, bool]] = field(default_factory=dict)  # by crossing: of what came to it
    gradients: dict[int, Tensor] = field(default_factory=dict)  # by weight
    later: dict[int, tuple[list[GradientEdge], list[Tensor]]] = field(
        default_factory=dict
    )  # weights' gradients
    kept: dict[Any, int] = field(default_factory=dict)  # bytes by storage

    @property
    def nbytes(self) -> int:
        """That it keeps between its passes."""
        return sum(self.kept.values())


class CutPart:
    """A `Segment` (workloads/segments.py) of a piece whose passes go segment by segment.

    In mixed precision what has crossed is float32, and errors become what they are errors of where they are
    gone back through.
    """

    def __init__(
        self,
        cut: Cut,
        device: torch.device,
        samples: Callable[[Any], tuple[Tensor, Any]],
        loss: Callable[[Any], Loss],
        random: Callable[[Any, int], AbstractContextManager[None]],
        micro_batches: int,
        recompute: bool,
        inputs: Sequence[int],
        dtype: torch.dtype = torch.float32,
        computing: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """samples: what the model is given of a micro-batch, and the batch; random: inside it a layer draws
        what is random in one; loss: of a micro-batch.

        inputs: the shape of what comes in, of one sample, on this device; dtype: its type, here.
        computing: inside it the device computes as precisely as it is to.
        """
        self._cut, self._device, self._samples, self._random = cut, device, samples, random
        self._loss = loss
        self._micro_batches, self._recompute = micro_batches, recompute
        self._inputs, self._dtype, self._computing = inputs, dtype, computing
        self._going: dict[Any, _Going] = {}
        self._leaves: tuple[Tensor, int, list[Tensor]] | None = None  # of the last forward pass
        self.went_through = 0

    def kept(self, micro: Any) -> int:
        """Bytes that are kept of a micro-batch."""
        return self._going[micro].nbytes if micro in self._going else 0

    def behind(self, micro: Any) -> dict[int, int]:
        """Bytes of what there is behind each crossing of the forward pass, by step; of rows, those sent."""
        crossings = [
            (place, self._cut.steps[place], sent[0]) for place, sent in self._going[micro].sent.items()
        ]
        return {
            place: torch.empty(_behind(step, shape), device="meta").nbytes
            for place, step, shape in crossings
            if isinstance(step, Crossing)
        }

    # ---------------------------------------------------------------- forward

    def forward(
        self, parameters: Tensor, micro: Any, inputs: Tensor | None = None, segment: int = 0
    ) -> Tensor:
        """What a segment comes to, flat. parameters: those that the device has of the piece, shape (n,)."""
        if segment == 0:
            self._going[micro] = _Going(parameters, inputs)
        return self._forward(micro, inputs, segment, keep=not self._recompute)

    def recompute(self, micro: Any, inputs: Tensor | None, segment: int) -> Tensor:
        """The same again, but that what the backward pass needs is kept."""
        return self._forward(micro, inputs if segment else self._going[micro].given, segment, keep=True)

    def _forward(self, micro: Any, given: Tensor | None, segment: int, keep: bool) -> Tensor:
        going, turns = self._going[micro], self._cut.forward
        x, batch = self._samples(micro)
        if segment == 0:
            first = x if given is None else self._came(given, len(x))
            state: Tensors = (first.detach().requires_grad_(given is not None),)
            going.leaves = self._weights(going.parameters)
            going.kept = {}
        else:
            state = self._met(going, turns[segment - 1].steps[-1], given, "forward", going.state)
        keeping = Keeping({storage_of(each) for each in going.leaves})
        context, out = Context(batch, self._loss(micro), self._micro_batches), None
        with keeping, models.deterministic(), self._computing(), nullcontext() if keep else torch.no_grad():
            for place in turns[segment].steps:
                step = self._cut.steps[place]
                if isinstance(step, Compute):
                    with self._random(micro, step.layer):
                        state = self._compute(going, place, step, state, context, keeping)
                    continue
                going.sent[place] = state[0].shape, state[0].requires_grad
                if step.forward:
                    out, state = _laid_out(step, step.forward, state[0]), state[1:]
        if segment == len(turns) - 1 and out is None:
            out, state = state[0], ()
        going.state = state
        if keep:
            going.kept |= keeping.kept
        elif going.given is not None:
            going.kept = {None: going.given.nbytes}
        none = x.new_empty(0, dtype=torch.float32)
        return finished(none if out is None else out.detach().reshape(-1).float())

    def _compute(
        self, going: _Going, place: int, step: Compute, state: Tensors, context: Context, keeping: Keeping
    ) -> Tensors:
        inputs = tuple(each.detach().requires_grad_(each.requires_grad) for each in state)
        given = [going.leaves[self._cut.at[weight.number]] for weight in step.weights]
        outputs = step.function(inputs, given, context)
        past = {id(each): number for number, each in enumerate(inputs)}
        edges: list[GradientEdge | int | None] = [
            past[id(each)] if id(each) in past else get_gradient_edge(each) if each.requires_grad else None
            for each in outputs
        ]
        if any(isinstance(edge, GradientEdge) for edge in edges):
            for each in inputs:
                keeping.note(each)
        shapes, dtypes = [each.shape for each in outputs], [each.dtype for each in outputs]
        going.runs[place] = _Run(inputs, edges, shapes, dtypes)
        return outputs

    def _weights(self, parameters: Tensor) -> list[Tensor]:
        """The device's part of each parameter as leaves, once for all micro-batches that use them."""
        version = parameters._version
        if self._leaves is None or self._leaves[0] is not parameters or self._leaves[1] != version:
            counts = [shape.numel() for shape in self._cut.shapes]
            each = torch.split(parameters.detach().to(self._device), counts)
            leaves = [
                aligned(one).view(shape).requires_grad_()
                for one, shape in zip(each, self._cut.shapes, strict=True)
            ]
            self._leaves = parameters, version, leaves
        return self._leaves[2]

    # ---------------------------------------------------------------- backward

    def backward(
        self, micro: Any, error: Tensor | None = None, segment: int = 0
    ) -> tuple[Tensor | None, Tensor]:
        """The gradient of what came in, or crosses before; behind the last segment, of the weights too."""
        found = self._backward(micro, error, segment, weights=True)
        last = segment == len(self._cut.backward) - 1
        return found, self._gradient(micro) if last else torch.empty(0, device=self._device)

    def backward_inputs(self, micro: Any, error: Tensor | None = None, segment: int = 0) -> Tensor | None:
        """As `backward`, but for the weights' gradient."""
        return self._backward(micro, error, segment, weights=False)

    def _backward(self, micro: Any, error: Tensor | None, segment: int, weights: bool) -> Tensor | None:
        going, turns = self._going[micro], self._cut.backward
        if segment:
            errors = self._met(going, turns[segment - 1].steps[-1], error, "backward", going.errors)
        else:
            last = going.runs[len(self._cut.steps) - 1] if going.runs else None
            shape = last.shapes[0] if last is not None else torch.Size()
            errors = (
                torch.ones(shape, device=self._device) if error is None else self._took(error).view(shape),
            )
        out: Tensor | None = None
        with models.deterministic():
            for place in turns[segment].steps:
                step = self._cut.steps[place]
                if isinstance(step, Compute):
                    errors = self._back(going, place, step, errors, weights)
                elif step.backward:
                    assert errors[0] is not None
                    out, errors = _laid_out(step, step.backward, errors[0]), errors[1:]
                elif step.own:
                    assert errors[0] is not None
                    errors = (_own(step, self._cut.part, errors[0]), *errors[1:])
        going.errors = errors
        if segment < len(turns) - 1:
            return finished(torch.empty(0, device=self._device) if out is None else out.reshape(-1).float())
        if self._cut.first:
            return None
        out = errors[0] if out is None else out
        assert out is not None
        return finished(out.reshape(-1).float())

    def backward_weights(self, micro: Any) -> Tensor:
        """The gradient of the device's parameters, once all segments have been gone back through."""
        going = self._going[micro]
        with models.deterministic():
            for place, (outputs, errors) in going.later.items():
                step = self._cut.steps[place]
                assert isinstance(step, Compute)
                self._add(going, step, torch.autograd.grad(outputs, self._leaves_of(going, step), errors))
        return self._gradient(micro)

    def _back(self, going: _Going, place: int, step: Compute, errors: Errors, weights: bool) -> Errors:
        run = going.runs.pop(place)
        found: list[Tensor | None] = [None] * len(run.inputs)
        outputs, behind = [], []
        for edge, dtype, error in zip(run.outputs, run.dtypes, errors, strict=True):
            if isinstance(edge, int):
                found[edge] = _sum(found[edge], error)
            elif edge is not None and error is not None:
                outputs.append(edge)
                behind.append(error.to(dtype))
        wanted = [number for number, each in enumerate(run.inputs) if each.requires_grad]
        leaves = self._leaves_of(going, step)
        if not outputs:
            return tuple(found)
        inputs = [run.inputs[number] for number in wanted]
        if leaves and not weights:
            going.later[place] = outputs, behind
        asked = [*inputs, *(leaves if weights else [])]
        if asked:
            keep = bool(leaves) and not weights
            each = torch.autograd.grad(outputs, asked, behind, allow_unused=True, retain_graph=keep)
            for number, error in zip(wanted, each, strict=False):
                found[number] = _sum(found[number], error)
            if weights:
                self._add(going, step, each[len(wanted) :])
        return tuple(found)

    def _leaves_of(self, going: _Going, step: Compute) -> list[Tensor]:
        return [going.leaves[self._cut.at[weight.number]] for weight in step.weights]

    def _add(self, going: _Going, step: Compute, gradients: Sequence[Tensor | None]) -> None:
        for weight, gradient in zip(step.weights, gradients, strict=True):
            total = _sum(going.gradients.get(weight.number), gradient)
            assert total is not None, "the loss depends on all weights"
            going.gradients[weight.number] = total

    def _gradient(self, micro: Any) -> Tensor:
        going = self._going.pop(micro)
        self.went_through = going.nbytes
        return finished(torch.cat([going.gradients[weight.number].flatten() for weight in self._cut.weights]))

    # ---------------------------------------------------------------- where devices meet

    def _met(self, going: _Going, place: int, given: Tensor | None, way: str, rest: Any) -> Any:
        """What there is behind the crossing that ended the segment before."""
        crossing = self._cut.steps[place]
        assert isinstance(crossing, Crossing)
        forward = way == "forward"
        exchange = crossing.forward if forward else crossing.backward
        if exchange == "halo":  # what comes is needed later
            return rest
        assert given is not None
        found = self._took(given)
        shape, needs = going.sent[place] if exchange else (found.shape, True)
        if exchange is None and not forward:  # the errors of the rows that were sent
            shape = shape if place not in going.sent else going.sent[place][0]
            return (found.view(shape), *rest)
        if not forward:
            shape = _behind(crossing, shape)
        block = _arranged(crossing, exchange, found, shape, self._cut.part)
        return ((block.requires_grad_(needs) if forward else block), *rest)

    def _came(self, inputs: Tensor, samples: int) -> Tensor:
        return self._took(inputs).view(samples, *self._inputs).to(self._dtype)

    def _took(self, vector: Tensor) -> Tensor:
        return aligned(vector.to(self._device))


def _behind(crossing: Crossing, shape: torch.Size) -> torch.Size:
    """The shape of what is behind a crossing."""
    found = list(shape)
    if crossing.forward == "all-gather":
        found[crossing.dim] = sum(crossing.sizes)
    elif crossing.forward == "reduce-scatter":
        found[crossing.dim] = crossing.sizes[0]
    return torch.Size(found)


def _laid_out(crossing: Crossing, exchange: str, x: Tensor) -> Tensor:
    """As it goes: blocks one after the other."""
    if exchange != "reduce-scatter":
        return x
    return torch.cat([block.flatten() for block in torch.split(x, list(crossing.sizes), crossing.dim)])


def _arranged(crossing: Crossing, exchange: str | None, came: Tensor, shape: torch.Size, part: int) -> Tensor:
    """What came of a tensor of that shape that was sent."""
    if exchange is None:
        return came
    lengths = list(shape)
    if exchange == "reduce-scatter":
        lengths[crossing.dim] = crossing.sizes[part]
        return came.view(lengths)
    if exchange == "all-gather":
        each = [[*lengths[: crossing.dim], size, *lengths[crossing.dim + 1 :]] for size in crossing.sizes]
        counts = [torch.Size(one).numel() for one in each]
        return torch.cat(
            [block.view(one) for block, one in zip(torch.split(came, counts), each, strict=True)],
            crossing.dim,
        )
    return came.view(shape)


def _own(crossing: Crossing, part: int, whole: Tensor) -> Tensor:
    start = sum(crossing.sizes[:part])
    return whole.narrow(crossing.dim, start, crossing.sizes[part])


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one + other
