"""The steps of consecutive layers of a model, as one of the devices takes them that share these layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.parallelism import Parallelism
from lockstep.workloads.task import lost
from lockstep.workloads.tensor import blocks, norms, stack
from lockstep.workloads.tensor.rows import by_rows
from lockstep.workloads.tensor.steps import Compute, Context, Step
from lockstep.workloads.tracing import Piece
from lockstep.workloads.transformer import Attention


@dataclass(frozen=True)
class Recipe:
    """How a device computes a piece of the model."""

    steps: Sequence[Step]
    own: range
    """Layers of the model."""
    last: bool
    """The loss is at its end."""


def recipe(model: nn.Module, pieces: Sequence[Piece], own: range, split: Parallelism, part: int) -> Recipe:
    """Of the layers `own` of the model's `pieces`. Raises ScenarioError where they cannot be cut so."""
    numbers, count = [], 0
    for piece in pieces:
        numbers.append(range(count, count + len(piece.parameters)))
        count += len(piece.parameters)
    found = _steps(model, pieces, own, numbers, split, part)
    if not isinstance(found[-1], Compute):
        found.append(Compute(lambda state, *_: state))
    return Recipe(found, own, own.stop == len(pieces))


def synchronised(pieces: Sequence[Piece], own: range) -> Recipe:
    """Of the layers `own`, which no other device shares, but for the statistics of normalisation."""
    starts = [0, *accumulate(len(piece.parameters) for piece in pieces)]
    found: list[Step] = []
    for layer in own:
        if pieces[layer].written:
            problem = f"must be local, because the model writes into the buffer {pieces[layer].written[0]}"
            raise ScenarioError(problem, key="workload.batch_norm")
        found += norms.steps_of(pieces[layer], layer, range(starts[layer], starts[layer + 1]))
    last = own.stop == len(pieces)
    return Recipe([*found, Compute(_lose)] if last else found, own, last)


def _steps(
    model: nn.Module,
    pieces: Sequence[Piece],
    own: range,
    numbers: Sequence[Sequence[int]],
    split: Parallelism,
    part: int,
) -> list[Step]:
    modules = [_whole(model, pieces[number]) for number in own]
    if any(isinstance(module, Attention) for module in model.modules()):
        length = pieces[own.stop - 1].inputs[0] if split.sequence else None
        cutter, found = blocks.Blocks(split.parts, part, length), list[Step]()
        for number, module in zip(own, modules, strict=True):
            name = ".".join(pieces[number].owners[0].split(".")[:2])
            found += cutter.steps(number, name, module, numbers[number])
        return found
    if split.sequence:
        raise ScenarioError("this model has no sequences to cut; remove it", key="parallelism.sequence")
    layers = [_layer(model, pieces[number], number, numbers[number]) for number in own]
    found = []
    if split.convolutions == "halo" and layers[0].convolves:
        of_rows = [layer for layer in layers if layer.convolves]
        layers = layers[len(of_rows) :]
        found = by_rows(of_rows, split.parts, part, pieces[own.start].inputs[1])
        flat = [module for module in of_rows[-1].behind if isinstance(module, nn.Flatten)]
        if layers:
            layers[0] = layers[0]._replace(before=flat)
        elif flat:
            found.append(Compute(lambda state, *_: (state[0].flatten(1),)))

    def pairs(layer: stack.Layer) -> bool:
        return split.convolutions == "all-reduce" or not layer.convolves

    found = stack.fused([*found, *stack.by_features(layers, split.parts, part, pairs)])
    return [*found, Compute(_lose)] if own.stop == len(pieces) else found


def _lose(state: tuple[Tensor, ...], given: Sequence[Tensor], context: Context) -> tuple[Tensor, ...]:
    return (lost(context.loss, context.batch, state[0]) / context.micro_batches,)


def _whole(model: nn.Module, piece: Piece) -> nn.Module:
    """The innermost module that has all of a layer's parameters."""
    owners = [name.split(".") for name in piece.owners]
    common = []
    for level in zip(*owners, strict=False):
        if len({*level}) > 1:
            break
        common.append(level[0])
    return model.get_submodule(".".join(common))


def _layer(model: nn.Module, piece: Piece, number: int, weights: Sequence[int]) -> stack.Layer:
    modules = [stack.out_of_place(model.get_submodule(call)) for call in piece.calls]
    weighty = [module for module in modules if list(module.parameters())]
    other = next((module for module in modules if not isinstance(module, stack.KINDS)), None)
    if other is not None or len(weighty) != 1 or not isinstance(model, nn.Sequential):
        said = f"{type(other).__name__} in it" if other is not None else "it is no stack of layers"
        problem = (
            "only fully connected layers and convolutions, with pooling, dropout and elementwise functions "
            f"between them, and the transformer can be cut, not this model's ({said}); must be 1"
        )
        raise ScenarioError(problem, key="parallelism.tensor")
    (module,) = weighty
    assert isinstance(module, nn.Linear | nn.Conv2d)
    place = modules.index(module)
    if (reason := _uncut(module, modules[:place], piece.inputs)) is not None:
        problem = f"{piece.owners[0]} cannot be cut between devices: {reason}; must be 1"
        raise ScenarioError(problem, key="parallelism.tensor")
    return stack.Layer(number, piece.owners[0], module, modules[:place], modules[place + 1 :], list(weights))


def _uncut(module: nn.Linear | nn.Conv2d, before: Sequence[nn.Module], inputs: Sequence[int]) -> str | None:
    """Why a layer of a user's cannot be cut as the shipped ones are; None: it can. inputs: of a sample."""
    if not all(weight.requires_grad for weight in module.parameters()):
        return "one of its parameters is frozen"
    if isinstance(module, nn.Linear):
        flat = len(inputs) == 1 or any(isinstance(each, nn.Flatten) for each in before)
        return None if flat else f"each sample has shape {tuple(inputs)} there, and not features alone"
    if module.groups > 1:
        return f"its channels are in {module.groups} groups"
    return None if module.padding_mode == "zeros" else f"its padding is {module.padding_mode}"


def local(weight: Tensor, dim: int, ranges: Sequence[tuple[int, int]]) -> Tensor:
    """What a device has of a parameter."""
    if dim < 0:
        return weight
    return torch.cat([weight.narrow(dim, start, stop - start) for start, stop in ranges], dim)
