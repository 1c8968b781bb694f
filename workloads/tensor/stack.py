"""A stack of layers, as `mlp` and `cnn` are, cut by features and channels; by rows: rows.py.

Of two layers the first is cut by its outputs, the second by its inputs, which ends in a sum (Megatron's
pair). The last of an odd number, and with `all-gather` every convolution, is cut by its outputs, which are
then put together.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from lockstep.workloads.tensor.cutting import Range, lengths, share, shares
from lockstep.workloads.tensor.steps import COPY, REDUCE, Compute, Context, Crossing, Step, Weight, gather
from lockstep.workloads.tensor.steps import gather_split as split_again

Tensors = tuple[Tensor, ...]
ELEMENTWISE = (
    *(nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish),
    *(
        nn.Tanh,
        nn.Hardtanh,
        nn.Sigmoid,
        nn.Hardsigmoid,
        nn.Hardswish,
        nn.LogSigmoid,
        nn.Softplus,
        nn.Softsign,
    ),
)
KINDS = (nn.Linear, nn.Conv2d, nn.MaxPool2d, nn.Dropout, nn.Flatten, *ELEMENTWISE)


class Layer(NamedTuple):
    """A module with weights, and those without that stand before it (in the model's first) and behind it."""

    number: int
    name: str
    module: nn.Linear | nn.Conv2d
    before: Sequence[nn.Module]
    behind: Sequence[nn.Module]
    weights: Sequence[int]

    @property
    def convolves(self) -> bool:
        """Else it is fully connected."""
        return isinstance(self.module, nn.Conv2d)

    @property
    def outputs(self) -> int:
        """Features or channels."""
        its = self.module
        return its.out_channels if isinstance(its, nn.Conv2d) else its.out_features

    @property
    def inputs(self) -> int:
        """Features or channels."""
        its = self.module
        return its.in_channels if isinstance(its, nn.Conv2d) else its.in_features

    def compute(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """What the module does, with other weights."""
        its = self.module
        if isinstance(its, nn.Linear):
            return functional.linear(x, weight, bias)
        return functional.conv2d(x, weight, bias, its.stride, its.padding, its.dilation, its.groups)


class Block(NamedTuple):
    """Which of something a device has, along dimension `dim`."""

    dim: int
    start: int
    stop: int
    total: int

    def of(self, whole: Tensor) -> Tensor:
        """That part of a tensor."""
        return whole.narrow(self.dim, self.start, self.stop - self.start)


def out_of_place(module: nn.Module) -> nn.Module:
    """What computes the same bits without changing what it is given, which others may need."""
    if not getattr(module, "inplace", False):
        return module
    other = copy(module)
    other.inplace = False  # type: ignore[assignment]
    return other


def go_on(modules: Iterable[nn.Module], x: Tensor, block: Block | None = None) -> Tensor:
    """Through modules without weights; `block`: which part of the whole x is."""
    for module in modules:
        if isinstance(module, nn.Dropout) and block is not None:
            shape = [*x.shape]
            shape[block.dim] = block.total
            mask = module(x.new_ones(shape))  # of all, so that each has its own part
            x = x * block.of(mask)
            continue
        if isinstance(module, nn.Flatten) and block is not None:
            assert block.dim == 1, "rows are put together before they are flattened"
            each = x[0, 0].numel()
            block = Block(1, block.start * each, block.stop * each, block.total * each)
        x = module(x)
    return x


def by_features(layers: Sequence[Layer], parts: int, part: int, pairs: Callable[[Layer], bool]) -> list[Step]:
    """The steps of consecutive layers; pairs: whether a layer is put together with the next."""
    found: list[Step] = []
    left = list(layers)
    while left:
        first = left.pop(0)
        blocks = shares(first.outputs, parts)
        own = share(first.outputs, parts, part, f"outputs of module {first.name}")
        found += [COPY, _by_outputs(first, own)]
        if left and pairs(first):
            second = left.pop(0)
            each = second.inputs // first.outputs  # 1, or pixels: channels have been flattened
            found += [_by_inputs(second, (own[0] * each, own[1] * each)), REDUCE, _with_bias(second)]
            continue
        sizes = lengths(blocks)
        if any(isinstance(module, nn.Flatten) for module in first.behind) and first.convolves:
            found[-1] = _by_outputs(first._replace(behind=first.behind[:-1]), own)
            found += [gather(1, sizes), Compute(lambda state, *_: (state[0].flatten(1),))]
        else:
            found.append(gather(1, sizes))
    return fused(found)


def fused(steps: Sequence[Step]) -> list[Step]:
    """Put together only to be cut again: backward, everyone needs its own block of the sum alone."""
    found = list(steps)
    for place, (one, two) in enumerate(pairwise(steps)):
        if isinstance(one, Crossing) and one.own and two is COPY and len({*one.sizes}) == 1:
            found[place : place + 2] = [split_again(one.dim, one.sizes), Compute(lambda state, *_: state)]
    return found


def _by_outputs(layer: Layer, own: Range) -> Compute:
    block = Block(1, *own, layer.outputs)

    def compute(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
        return (go_on(layer.behind, layer.compute(go_on(layer.before, state[0]), *given), block),)

    weights = tuple(Weight(number, 0, (own,)) for number in layer.weights)
    return Compute(compute, weights, layer.number, (own[1] - own[0]) / layer.outputs)


def _by_inputs(layer: Layer, own: Range) -> Compute:
    def compute(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
        return (layer.compute(state[0], given[0]),)

    weights = (Weight(layer.weights[0], 1, (own,)),)
    return Compute(compute, weights, layer.number, (own[1] - own[0]) / layer.inputs)


def _with_bias(layer: Layer) -> Compute:
    def compute(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
        (x,) = state
        if given:
            x = x + given[0].view(-1, *[1] * (x.dim() - 2))
        return (go_on(layer.behind, x),)

    return Compute(compute, tuple(map(Weight, layer.weights[1:])), layer.number)
