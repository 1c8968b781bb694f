"""Batch normalisation over what several devices compute at the same time: PyTorch's SyncBatchNorm.

Before each such layer the devices add up, channel by channel, the sums and the sums of squares of its input,
and how many values these are of; backward, the errors of these. A piece of the model is cut there; what is
alive at such a place stays on the device. The variance is the mean square less the squared mean.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import TensorMetadata
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.workloads.tensor.stack import out_of_place
from lockstep.workloads.tensor.steps import Compute, Context, Crossing, Step, Weight
from lockstep.workloads.tracing import Piece

Tensors = tuple[Tensor, ...]
_TOTAL = Crossing(forward="all-reduce", backward="all-reduce")
_IN_PLACE: Mapping[Any, Callable[..., Any]] = {
    operator.iadd: operator.add,
    operator.imul: operator.mul,
    operator.isub: operator.sub,
    operator.itruediv: operator.truediv,
}


def norms(model: nn.Module) -> list[nn.Module]:
    """The layers that normalise over a batch."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def statistics(x: Tensor) -> Tensor:
    """Of each channel the sum and the sum of squares, end to end, and of how many values."""
    x = x.float()  # in 16 bits sums would be far off
    dims = [dim for dim in range(x.dim()) if dim != 1]
    count = x.new_full((1,), x.numel() // x.shape[1])
    return torch.cat([x.sum(dims), x.square().sum(dims), count])


def normalised(x: Tensor, total: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """By the statistics of all devices."""
    channels = x.shape[1]
    sums, squares, count = torch.split(total, [channels, channels, 1])
    mean = sums / count
    variance = (squares / count - mean.square()).clamp(min=0)
    scale = torch.rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    shape = [1, channels, *[1] * (x.dim() - 2)]
    return (x * scale.view(shape) + shift.view(shape)).to(x.dtype)


def steps_of(piece: Piece, layer: int, numbers: Sequence[int]) -> list[Step]:
    """A layer of the model; numbers: of its parameters, in the order of model.parameters()."""
    stretches = list(_stretches(piece))
    whole = sum(stretch.flops for stretch in stretches)
    found: list[Step] = []
    for place, stretch in enumerate(stretches):
        share = stretch.flops / whole if whole else float(place == 0)
        names = [name for name in piece.parameters if name in stretch.parameters]
        weights = tuple(Weight(numbers[piece.parameters.index(name)]) for name in names)
        found += [Compute(_computed(stretch.module, names), weights, layer, share), _TOTAL]
    return found[:-1]


class _Stretch(NamedTuple):
    """What is between two normalisations: of what is alive before it, with the statistics, what is behind."""

    module: fx.GraphModule
    parameters: frozenset[str]
    flops: int  # of a forward pass, of convolutions and linear layers


def _computed(module: nn.Module, names: Sequence[str]) -> Callable[..., Tensors]:
    def compute(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
        found = torch.func.functional_call(module, dict(zip(names, given, strict=True)), state)
        return found if isinstance(found, tuple) else (found,)

    return compute


def _stretches(piece: Piece) -> Iterator[_Stretch]:
    nodes = [node for node in piece.module.graph.nodes if node.op not in ("get_attr", "output")]
    (output,) = (node.args[0] for node in piece.module.graph.nodes if node.op == "output")
    last = {
        node: max((nodes.index(user) for user in node.users if user.op != "output"), default=0)
        for node in nodes
    }
    places = [place for place, node in enumerate(nodes) if _normalises(piece, node)]
    alive, start = [nodes[0]], 1
    for stop in [*places, len(nodes)]:
        graph, own = fx.Graph(), nodes[start:stop]
        there: dict[fx.Node, fx.Node] = {}
        before = nodes[start - 1] if start > 1 else None  # the normalisation that the stretch begins with
        total = graph.placeholder("total") if before is not None else None
        for node in alive:
            there[node] = graph.placeholder(node.name)
        if before is not None and total is not None:
            there[before] = _normalised(piece, graph, before, there, total)
        flops = sum(_copied(piece, graph, node, there) for node in own)
        if stop == len(nodes):
            graph.output(there[output])
        else:
            alive = _alive(nodes, stop, last, output)
            graph.output(
                (graph.call_function(statistics, (there[alive[0]],)), *(there[node] for node in alive))
            )
        module = _out_of_place(fx.GraphModule(piece.module, graph))
        used = {id(parameter) for parameter in module.parameters()}
        names = zip(piece.parameters, piece.weights, strict=True)
        yield _Stretch(module, frozenset(name for name, weight in names if id(weight) in used), flops)
        start = stop + 1


def _normalises(piece: Piece, node: fx.Node) -> bool:
    return node.op == "call_module" and isinstance(piece.module.get_submodule(str(node.target)), _BatchNorm)


def _alive(nodes: Sequence[fx.Node], at: int, last: Mapping[fx.Node, int], output: fx.Node) -> list[fx.Node]:
    """What the normalisation takes, and what else is needed from there on."""
    (taken,) = nodes[at].all_input_nodes
    others = [node for node in nodes[:at] if node is not taken and (last[node] >= at or node is output)]
    for node in others:
        known = isinstance(node.meta.get("tensor_meta"), TensorMetadata) or node.op == "placeholder"
        assert known, f"{node.name} is no tensor, and is needed on both sides of {nodes[at].target}"
    return [taken, *others]


def _normalised(
    piece: Piece, graph: fx.Graph, node: fx.Node, there: Mapping[fx.Node, fx.Node], total: fx.Node
) -> fx.Node:
    (x,), module = node.all_input_nodes, piece.module.get_submodule(str(node.target))
    assert isinstance(module, _BatchNorm)
    weights = (
        [graph.get_attr(f"{node.target}.{name}") for name in ("weight", "bias")]
        if module.affine
        else [None] * 2
    )
    return graph.call_function(normalised, (there[x], total, *weights, module.eps))


def _copied(piece: Piece, graph: fx.Graph, node: fx.Node, there: dict[fx.Node, fx.Node]) -> int:
    """Copy a node; its FLOPs."""

    def argument(other: fx.Node) -> fx.Node:
        if other not in there:
            assert other.op == "get_attr"
            there[other] = graph.node_copy(other)
        return there[other]

    there[node] = copied = graph.node_copy(node, argument)
    if node.op == "call_function":
        copied.target = _IN_PLACE.get(node.target, node.target)
        copied.kwargs = {key: value for key, value in copied.kwargs.items() if key != "inplace"}
    if node.op != "call_module":
        return 0
    module, made = piece.module.get_submodule(str(node.target)), node.meta["tensor_meta"]
    if not isinstance(module, nn.Conv2d | nn.Linear):
        return 0
    return 2 * int(made.shape.numel()) * module.weight[0].numel()


def _out_of_place(module: fx.GraphModule) -> fx.GraphModule:
    """What is alive between two stretches must not be changed: with the same bits elsewhere instead."""
    for name, each in list(module.named_modules()):
        if (other := out_of_place(each)) is not each:
            module.set_submodule(name, other)
    return module
