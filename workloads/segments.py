"""A model's stages, computed for real: what a device does with micro-batches of its own consecutive layers.

A mini-batch is cut into `micro_batches` equal micro-batches. The loss of each is divided by their number, so
that the sum of their gradients, from the first to the last, is the gradient of the mini-batch's mean loss; it
has the same bits wherever the model is cut, on one kind of machine. Normalisation sees a micro-batch, or
those of all replicas (tensor/norms.py). What is random in a layer, such as dropout, is a function of the
seed, the micro-batch and the layer; or of the sample (dropout.py). In mixed precision (precision.py) a layer
is given what the one before made, of its type, also where it came over a network as float32.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.parallelism import Parallelism
from lockstep.workloads import models, tracing, users
from lockstep.workloads.alignment import aligned
from lockstep.workloads.base import Learner
from lockstep.workloads.classifier import Classifier
from lockstep.workloads.embedding import Embedding
from lockstep.workloads.guarded import Guarded, GuardedPart
from lockstep.workloads.keeping import Keeping, storage_of
from lockstep.workloads.problems import Logistic, Quadratic
from lockstep.workloads.streams import finished
from lockstep.workloads.task import inputs as given
from lockstep.workloads.task import lost
from lockstep.workloads.tracing import Piece

UNSPLIT = Parallelism()


class Micro(NamedTuple):
    """A micro-batch: part `number` (from 0) of mini-batch `step` of a replica."""

    replica: int
    step: int
    number: int


class Segment(Protocol):
    """What one stage computes. All vectors are flat, of float32, and not changed by anybody."""

    went_through: int  # bytes that the last pass back went through to its end, kept or computed again

    def forward(
        self, parameters: Tensor, micro: Micro, inputs: Tensor | None = None, segment: int = 0
    ) -> Tensor:
        """Return the activation of a micro-batch, for the next stage; the last one its share of the loss.

        `parameters`: the stage's own, of shape (own,), kept for the backward pass. `inputs`: what the stage
        before returned; of the first stage nothing, it takes the samples. The loss has shape (1,); the shares
        of a mini-batch add up to its mean. `segment`: which, where a stage's layers are cut (tensor/part.py).
        """

    def recompute(self, micro: Micro, inputs: Tensor | None, segment: int) -> Tensor:
        """Return the same again, where the backward pass cannot do that by itself."""

    def backward(
        self, micro: Micro, error: Tensor | None = None, segment: int = 0
    ) -> tuple[Tensor | None, Tensor]:
        """Return what the two below return, with the same bits, but sooner; then nothing is kept."""

    def backward_inputs(self, micro: Micro, error: Tensor | None = None, segment: int = 0) -> Tensor | None:
        """Return the gradient of what came in, for the stage before; None in the first stage.

        `error`: what the next stage returned; nothing in the last one.
        """

    def backward_weights(self, micro: Micro) -> Tensor:
        """Return the gradient of the stage's parameters, once `backward_inputs` has been called."""

    def kept(self, micro: Micro) -> int:
        """Bytes that are kept for the backward pass of a micro-batch, but for parameters; 0: nothing is."""


def segments(
    learner: Learner, bounds: Sequence[int], micro_batches: int, split: Parallelism = UNSPLIT, part: int = 0
) -> list[Segment]:
    """Return what each stage computes: stage s has the layers from bounds[s] to before bounds[s + 1].

    With `recompute` a stage keeps only what comes in, and repeats its forward pass before the backward pass.
    `part`: of the layers, where several devices share them.
    Raises `ScenarioError`, key `parallelism.micro_batches`, if their number does not divide the mini-batch.
    """
    batch = learner.sizes.batch_size
    if batch % micro_batches:
        problem = f"must divide the mini-batch of {batch} samples, not {micro_batches}"
        raise ScenarioError(problem, key="parallelism.micro_batches")
    if not isinstance(learner, Classifier):
        assert isinstance(learner, Quadratic | Logistic | Embedding)
        return [_Whole(learner, micro_batches)]
    if isinstance(learner, Guarded):
        found = users.guarded(learner.code, _of_classifier, learner, bounds, micro_batches, split, part)
        return [GuardedPart(learner.code, each) for each in found]
    return _of_classifier(learner, bounds, micro_batches, split, part)


def _of_classifier(
    learner: Classifier, bounds: Sequence[int], micro_batches: int, split: Parallelism, part: int
) -> list[Segment]:
    batch = learner.sizes.batch_size
    with learner.precision.computing(learner.device):  # else activations would not have their types
        samples = given(learner.task.loss, learner.batch(0, 0))
        pieces = tracing.pieces(learner.module, samples[: batch // micro_batches])
    if split.parts > 1 or learner.synchronised:
        from lockstep.workloads.tensor.planning import computed

        return list(computed(learner, pieces, bounds, micro_batches, split, part))
    return [
        _Part(learner, pieces, range(start, stop), micro_batches, split.recompute)
        for start, stop in pairwise(bounds)
    ]


@dataclass
class _Run:
    """A layer's forward pass, to go back through."""

    inputs: Tensor  # a leaf of the graph
    weights: list[Tensor]  # leaves, too
    output: GradientEdge
    shape: torch.Size  # of the output
    dtype: torch.dtype  # likewise
    error: Tensor | None = None  # of the output, between the two halves of the backward pass


@dataclass
class _Pass:
    """A micro-batch between its forward and its backward pass."""

    parameters: Tensor
    inputs: Tensor | None
    runs: list[_Run]  # empty: still to be repeated
    nbytes: int


class _Part:
    """Some layers of a classifier's model."""

    def __init__(
        self, learner: Classifier, pieces: Sequence[Piece], own: range, micro_batches: int, recompute: bool
    ) -> None:
        self._learner, self._own, self._parts, self._recompute = learner, own, micro_batches, recompute
        self._pieces = [pieces[layer] for layer in own]
        self._has_loss = own.stop == len(pieces)
        self._shapes = [[weight.shape for weight in piece.weights] for piece in self._pieces]
        ends = [0, *accumulate(sum(weight.numel() for weight in piece.weights) for piece in pieces)]
        self.owned = slice(ends[own.start], ends[own.stop])
        self.went_through = 0
        self._buffers = {storage_of(buffer) for buffer in learner.module.buffers()}
        self._passes: dict[Micro, _Pass] = {}
        self._leaves: tuple[Tensor, int, list[list[Tensor]]] | None = None  # of the last forward pass

    def forward(
        self, parameters: Tensor, micro: Micro, inputs: Tensor | None = None, segment: int = 0
    ) -> Tensor:
        if inputs is not None:
            inputs = aligned(inputs.to(self._learner.device))
        with torch.no_grad() if self._recompute else nullcontext():
            output, runs, nbytes = self._run(parameters, micro, inputs)
        if self._recompute:
            nbytes = 0 if inputs is None else inputs.nbytes
        self._passes[micro] = _Pass(parameters, inputs, runs, nbytes)
        return finished(output.detach().reshape(-1).float())

    def backward(
        self, micro: Micro, error: Tensor | None = None, segment: int = 0
    ) -> tuple[Tensor | None, Tensor]:
        runs, behind = self._to_go_back(micro, error)
        before = behind

        def back(times: float, again: bool) -> Tensor:
            nonlocal before
            before, gradient = _back(runs, behind if times == 1 else behind * times, again)
            return gradient

        gradient = self._learner.precision.backward(back)  # repeated by whoever has the whole model alone
        self.went_through = self._passes.pop(micro).nbytes
        return self._before(before), finished(gradient)

    def recompute(self, micro: Micro, inputs: Tensor | None, segment: int) -> Tensor:
        raise AssertionError("the backward pass does it")

    def backward_inputs(self, micro: Micro, error: Tensor | None = None, segment: int = 0) -> Tensor | None:
        runs, behind = self._to_go_back(micro, error)
        with models.deterministic():
            for run in reversed(runs):
                run.error = behind
                if run.inputs.requires_grad:
                    (behind,) = torch.autograd.grad([run.output], [run.inputs], [behind], retain_graph=True)
        return self._before(behind)

    def backward_weights(self, micro: Micro) -> Tensor:
        gradients: list[Tensor] = []
        with models.deterministic():
            passed = self._passes.pop(micro)
            self.went_through = passed.nbytes
            for run in passed.runs:
                assert run.error is not None, "backward_inputs comes first"
                gradients += torch.autograd.grad([run.output], run.weights, [run.error])
        return finished(torch.cat([each.flatten() for each in gradients]))

    def kept(self, micro: Micro) -> int:
        found = self._passes.get(micro)
        return 0 if found is None else found.nbytes

    def _run(self, parameters: Tensor, micro: Micro, inputs: Tensor | None) -> tuple[Tensor, list[_Run], int]:
        """Compute forward; what comes out, what there is to go back through, and its bytes."""
        learner, runs = self._learner, []
        loss, batch = learner.loss_of(*micro), learner.batch(*micro, self._parts)
        with learner.precision.computing(learner.device):
            x = given(loss, batch)
        learner.forget()
        if inputs is not None:
            x = inputs.view(len(x), *self._pieces[0].inputs).to(self._pieces[0].dtype)
        leaves = self._weights(parameters)
        ours = {storage_of(weight) for weights in leaves for weight in weights}
        keeping = Keeping(self._buffers | ours)
        with keeping, models.deterministic(), learner.precision.computing(learner.device):
            for layer, piece, weights in zip(self._own, self._pieces, leaves, strict=True):
                x = x.detach().requires_grad_(layer > 0)
                with learner.random(*micro, self._parts, layer):
                    output = piece(x, weights)
                if self._has_loss and layer == self._own[-1]:
                    output = lost(loss, batch, output) / self._parts
                if output.requires_grad:
                    keeping.note(x)
                    runs.append(_Run(x, weights, get_gradient_edge(output), output.shape, output.dtype))
                x = output
        return x, runs, keeping.nbytes

    def _weights(self, parameters: Tensor) -> list[list[Tensor]]:
        """The parameters of each layer as leaves, once for all micro-batches that use them."""
        version = parameters._version
        if self._leaves is None or self._leaves[0] is not parameters or self._leaves[1] != version:
            counts = [shape.numel() for shapes in self._shapes for shape in shapes]
            each = iter(torch.split(parameters.detach().to(self._learner.device), counts))
            leaves = [
                [aligned(next(each)).view(shape).requires_grad_() for shape in shapes]
                for shapes in self._shapes
            ]
            self._leaves = parameters, version, leaves
        return self._leaves[2]

    def _to_go_back(self, micro: Micro, error: Tensor | None) -> tuple[list[_Run], Tensor]:
        found = self._passes[micro]
        if not found.runs:
            _, found.runs, found.nbytes = self._run(found.parameters, micro, found.inputs)
        last, device = found.runs[-1], self._learner.device
        if error is None:
            return found.runs, torch.ones(last.shape, dtype=last.dtype, device=device)
        return found.runs, aligned(error.to(device)).view(last.shape).to(last.dtype)

    def _before(self, error: Tensor) -> Tensor | None:
        return finished(error.flatten().float()) if self._own.start else None


def _back(runs: list[_Run], behind: Tensor, again: bool) -> tuple[Tensor, Tensor]:
    """Go back through some layers; return the error before them, and the gradient of their weights.

    `again`: may be asked once more. If not, what a layer has kept is let go once it has been gone through.
    """
    gradients: list[Tensor] = []
    left = [*runs] if again else runs
    with models.deterministic():
        while left:
            run = left.pop()
            inputs = [run.inputs] if run.inputs.requires_grad else []
            asked = [*inputs, *run.weights]
            found = torch.autograd.grad([run.output], asked, [behind], retain_graph=again)
            gradients = [*found[len(inputs) :], *gradients]
            behind = found[0]
    return behind, torch.cat([each.flatten() for each in gradients])


class _Whole:
    """A problem, which is one layer: its gradient is computed at once."""

    def __init__(self, learner: Quadratic | Logistic | Embedding, micro_batches: int) -> None:
        self._learner, self._parts = learner, micro_batches
        self.owned = slice(0, learner.sizes.parameters)
        self.went_through = 0
        self._gradients: dict[Micro, Tensor] = {}

    def forward(
        self, parameters: Tensor, micro: Micro, inputs: Tensor | None = None, segment: int = 0
    ) -> Tensor:
        gradient = self._learner.part(parameters, *micro, self._parts)
        self._gradients[micro] = gradient / self._parts
        return gradient.new_tensor([self._learner.loss / self._parts])

    def backward(
        self, micro: Micro, error: Tensor | None = None, segment: int = 0
    ) -> tuple[Tensor | None, Tensor]:
        return None, self.backward_weights(micro)

    def recompute(self, micro: Micro, inputs: Tensor | None, segment: int) -> Tensor:
        raise AssertionError("there is nothing to compute again")

    def backward_inputs(self, micro: Micro, error: Tensor | None = None, segment: int = 0) -> Tensor | None:
        return None

    def backward_weights(self, micro: Micro) -> Tensor:
        self.went_through = self.kept(micro)
        return self._gradients.pop(micro)

    def kept(self, micro: Micro) -> int:
        return self._gradients[micro].nbytes if micro in self._gradients else 0
