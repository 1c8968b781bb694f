"""A torch model as pieces: where it can be cut, and what is between two cuts.

A cut needs three things. One float activation, with the samples along its first dimension, is all that
crosses it. The parameters before it precede those behind it in `model.parameters()`: a stage then owns one
slice of the flat vector, and no weight is used on both sides. And the next piece has parameters: an
activation function or a pooling belongs to what is before it. Pieces lie between all such cuts.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp, TensorMetadata

from lockstep.workloads import models
from lockstep.workloads.task import trained


class Piece(NamedTuple):
    """What is between two cuts, as a module of one input and one output."""

    module: fx.GraphModule  # with the model's own parameters, which have the names that they have there
    parameters: tuple[str, ...]  # their names, in the order of model.parameters()
    calls: tuple[str, ...]  # the names of the modules in it that have none inside
    inputs: tuple[int, ...]  # the shape of one sample before it
    dtype: torch.dtype  # the type of what is before it
    tied: str  # the parameter that forbids a cut within, because it is used twice; "" if there is none
    written: tuple[str, ...] = ()  # the names of the buffers that it writes into

    @property
    def weights(self) -> list[nn.Parameter]:
        """The model's own parameters in it."""
        return [self.module.get_parameter(name) for name in self.parameters]

    def __call__(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Compute with these weights instead; what it writes into buffers is gone afterwards."""
        given = dict(zip(self.parameters, weights, strict=True))
        given |= {name: self.module.get_buffer(name).clone() for name in self.written}
        found: Tensor = torch.func.functional_call(self.module, given, (x,))
        return found

    @property
    def owners(self) -> list[str]:
        """The modules that have its parameters."""
        return list(dict.fromkeys(name.rpartition(".")[0] or name for name in self.parameters))


def names(found: Sequence[Piece]) -> list[str]:
    """A name for each piece: the innermost module with all its parameters, else the first and the last.

    Where pieces share that module, the first in it with parameters, and `…`: from there on.
    """
    common = [_common(piece.owners) for piece in found]
    return [
        f"{piece.owners[0]}…{piece.owners[-1]}"
        if not name
        else f"{piece.owners[0]}…"
        if common.count(name) > 1
        else name
        for piece, name in zip(found, common, strict=True)
    ]


def _common(owners: Sequence[str]) -> str:
    levels = zip(*(owner.split(".") for owner in owners), strict=False)
    return ".".join(level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels))


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Not to be looked into: torch's own modules, dropout by sample, and the largest of 2 × 2."""
        return isinstance(m, nn.Dropout | models.Pool) or super().is_leaf_module(m, module_qualified_name)


class _WritingTracer(_Tracer):
    """Reads and writes of buffers are part of the graph, too."""

    proxy_buffer_attributes = True


class _Cut(NamedTuple):
    at: int  # the node that is the first behind it
    crossing: fx.Node


def pieces(model: nn.Module, x: Tensor) -> list[Piece]:
    """Cut a model wherever that can be; run it once with `x`, a mini-batch, to see how activations look.

    The model and `x` may lie on the meta device. Raises what torch raises if they do not fit.
    """
    graph, written = _traced(model)
    traced = fx.GraphModule(model, graph)
    with torch.no_grad(), models.seeded(x.device, 0):
        ShapeProp(traced).propagate(x)
    names = [*trained(model)]
    nodes = [node for node in traced.graph.nodes if node.op not in ("get_attr", "output")]
    number = {id(weight): place for place, weight in enumerate(trained(model).values())}
    used = list(_used(traced, nodes, number))
    if unused := {*range(len(names))}.difference(*used):
        raise ValueError(f"the parameter {names[min(unused)]} is not used")
    narrow = [cut for cut in _narrow(nodes, len(x)) if not written or not _splits(nodes, cut.at, written)]
    cuts, tied = _owning(narrow, used)
    (output,) = (node.args[0] for node in traced.graph.nodes if node.op == "output")
    found = [
        _piece(traced, nodes, before, behind, names, used, tied, written)
        for before, behind in pairwise([_Cut(1, nodes[0]), *cuts, _Cut(len(nodes), output)])
    ]
    assert [name for piece in found for name in piece.parameters] == names
    return found


def _traced(model: nn.Module) -> tuple[fx.Graph, set[str]]:
    """The graph of a model, and the buffers that it writes into, by name. The model is left as it was.

    A buffer is usually a constant, and so is what is computed of buffers alone: it is no part of the graph.
    What writes into one has written while it was traced, and the graph would not: it is traced again. Raises
    ValueError if it assigns to a buffer, which a graph cannot do.
    """
    places = [
        (module._buffers, own, f"{path}.{own}" if path else own, buffer, buffer.clone(), buffer._version)
        for path, module in model.named_modules(remove_duplicate=False)
        for own, buffer in module.named_buffers(recurse=False)
    ]
    written: set[str] = set()
    graph = fx.Graph()
    for tracer in (_Tracer, _WritingTracer):
        graph = tracer().trace(model)
        assigned = [name for where, own, name, buffer, *_ in places if where[own] is not buffer]
        for where, own, name, buffer, first, version in places:
            where[own] = buffer
            if buffer._version != version:
                buffer.copy_(first)
                written.add(name)
        if assigned:
            problem = f"its forward pass assigns to the buffer {assigned[0]}, as += does"
            raise ValueError(f"{problem}; change it in place, as with add_")
        if not written:
            break
    return graph, written


def _splits(nodes: Sequence[fx.Node], at: int, written: Collection[str]) -> bool:
    """Whether a buffer that is written into is used on both sides of a cut."""
    before, behind = (
        {str(each.target) for node in side for each in node.all_input_nodes if each.op == "get_attr"}
        for side in (nodes[:at], nodes[at:])
    )
    return not before.isdisjoint(behind & {*written})


def _used(traced: fx.GraphModule, nodes: Sequence[fx.Node], number: Mapping[int, int]) -> Iterator[set[int]]:
    """The parameters of each node, as numbers in the order of model.parameters(); `number`: by identity."""
    by_name = dict(traced.named_parameters(remove_duplicate=False))
    for node in nodes:
        attributes = [str(each.target) for each in node.all_input_nodes if each.op == "get_attr"]
        weights = [by_name[name] for name in attributes if name in by_name]
        if node.op == "call_module":
            weights += traced.get_submodule(str(node.target)).parameters()
        yield {number[id(weight)] for weight in weights if id(weight) in number}


def _narrow(nodes: Sequence[fx.Node], samples: int) -> Iterator[_Cut]:
    """Where one float activation is all that crosses."""
    place = {node: at for at, node in enumerate(nodes)}
    until = [max((place.get(user, len(nodes)) for user in node.users), default=0) for node in nodes]
    live: set[fx.Node] = set()
    for at, node in enumerate(nodes[:-1]):
        live = {each for each in (*live, node) if until[place[each]] > at}
        for crossing in live if len(live) == 1 else ():
            if at and _is_activation(crossing.meta.get("tensor_meta"), samples):
                yield _Cut(at + 1, crossing)


def _is_activation(meta: object, samples: int) -> bool:
    return isinstance(meta, TensorMetadata) and meta.dtype.is_floating_point and meta.shape[:1] == (samples,)


def _owning(cuts: Sequence[_Cut], used: Sequence[set[int]]) -> tuple[list[_Cut], set[int]]:
    """The cuts that leave each side parameters of its own; and the parameters used on both sides of one."""
    allowed, tied = [], set()
    for cut in cuts:
        before, behind = set().union(*used[: cut.at]), set().union(*used[cut.at :])
        tied |= before & behind
        if before and behind and max(before) < min(behind):
            allowed.append(cut)
    ends = [*(cut.at for cut in allowed[1:]), len(used)]
    return [cut for cut, end in zip(allowed, ends, strict=False) if any(used[cut.at : end])], tied


def _piece(
    traced: fx.GraphModule,
    nodes: Sequence[fx.Node],
    before: _Cut,
    behind: _Cut,
    names: list[str],
    used: Sequence[set[int]],
    tied: set[int],
    written: Collection[str],
) -> Piece:
    graph, own = fx.Graph(), nodes[before.at : behind.at]
    there = {before.crossing: graph.placeholder("x")}

    def copied(node: fx.Node) -> fx.Node:
        if node.op == "get_attr" and node not in there:
            there[node] = graph.node_copy(node)
        return there[node]

    for node in own:
        there[node] = graph.node_copy(node, copied)
    graph.output(there[behind.crossing])
    numbers = set().union(*used[before.at : behind.at])
    return Piece(
        fx.GraphModule(traced, graph),
        tuple(names[number] for number in sorted(numbers)),
        tuple(str(node.target) for node in own if node.op == "call_module"),
        tuple(before.crossing.meta["tensor_meta"].shape[1:]),
        before.crossing.meta["tensor_meta"].dtype,
        next((names[number] for number in sorted(numbers & tied)), ""),
        tuple(str(node.target) for node in graph.nodes if node.op == "get_attr" and node.target in written),
    )
