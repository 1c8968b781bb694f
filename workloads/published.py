"""Layers from profiles: PipeDream's published ones (graph.txt), and those that `lockstep calibrate` writes.

A graph.txt has a line for each node, `node4 -- Conv2d(3, 64) -- forward_compute_time=1.5,
backward_compute_time=3.2, activation_size=524288.0, parameter_size=7168.0`, and one for each edge, `node4 --
node5`. Times are milliseconds and sizes bytes, of a mini-batch; a size may be a list, `[1024.0; 2048.0]`.
What else a line has is not looked at.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from lockstep.scenarios import ScenarioError, profile
from lockstep.workloads.layers import Layer

_ITEMSIZE = 4
_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_EDGE = re.compile(r"(\S+) -- (\S+)")
_NODE = re.compile(r"(\S+) -- (.*) -- (\S+=.*)")


@dataclass(frozen=True)
class _Node:
    name: str
    forward_s: float
    backward_s: float
    activation: float  # bytes of a mini-batch
    parameters: float  # bytes


def graph(path: Path, batch_size: int) -> tuple[Layer, ...]:
    """Return the layers of a graph.txt, which was measured with mini-batches of `batch_size` samples.

    Where a graph has branches, what is between two nodes that all paths lead through is one layer; nodes
    without parameters belong to what is before them. Every activation counts as kept, the layer's input too;
    work is not known.
    Raises `ScenarioError`, with the file and line, for what is not in this format.
    """
    nodes, edges = _read(path)
    before = {name: [one for one, two in edges if two == name] for name in nodes}
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise ScenarioError(f"its edges go round in a circle: {error.args[1]}", file=str(path)) from None
    groups: list[list[_Node]] = []
    owns = False
    for atom in _atoms(order, edges):
        group = [nodes[name] for name in atom]
        owned = any(node.parameters for node in group)
        if groups and not (owns and owned):
            groups[-1] += group
        else:
            groups.append(group)
        owns = owns or owned
    found: list[Layer] = []
    for number, group in enumerate(groups):
        came_in = found[-1].output if found else 0.0
        goes_on = group[-1].activation / (_ITEMSIZE * batch_size) if number + 1 < len(groups) else 0.0
        made = sum(node.activation for node in group) / (_ITEMSIZE * batch_size)
        found.append(_layer(group, came_in, made, goes_on))
    return tuple(found)


def _atoms(order: Sequence[str], edges: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    """Nodes between cuts that only the activation of the last of them crosses."""
    place = {name: at for at, name in enumerate(order)}
    until = [0] * len(order)
    for one, two in edges:
        until[place[one]] = max(until[place[one]], place[two])
    start, farthest = 0, 0  # the farthest node that an activation from before this one goes to
    for at in range(len(order)):
        if farthest <= at or at + 1 == len(order):
            yield list(order[start : at + 1])
            start = at + 1
        farthest = max(farthest, until[at])


def _layer(group: Sequence[_Node], came_in: float, made: float, goes_on: float) -> Layer:
    return Layer(
        "…".join(dict.fromkeys([group[0].name, group[-1].name])),
        round(sum(node.parameters for node in group) / _ITEMSIZE),
        0.0,
        0.0,
        goes_on,
        came_in + made,
        came_in,
        forward_s=sum(node.forward_s for node in group),
        backward_s=sum(node.backward_s for node in group),
    )


def _read(path: Path) -> tuple[dict[str, _Node], list[tuple[str, str]]]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ScenarioError(f"cannot be read: {reason}", file=str(path)) from None
    nodes: dict[str, _Node] = {}
    edges: list[tuple[str, str, int]] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        node, edge = _NODE.fullmatch(text), _EDGE.fullmatch(text)
        if node is not None:
            name, about, values = node.groups()
            nodes[name] = _Node(f"{name} {about.split('(')[0]}".strip(), *_values(values, path, number))
        elif edge is not None:
            edges.append((edge[1], edge[2], number))
        elif text:
            form = "a node, 'node1 -- Linear -- forward_compute_time=1.0, …', or an edge, 'node1 -- node2'"
            raise ScenarioError(f"must be {form}; not {text[:60]!r}", file=str(path), line=number)
    for one, two, number in edges:
        for name in (one, two):
            if name not in nodes:
                raise ScenarioError(f"there is no {name} in the file", file=str(path), line=number)
    if not nodes:
        raise ScenarioError("has no nodes; give a profile such as PipeDream's graph.txt", file=str(path))
    return nodes, [(one, two) for one, two, _ in edges]


def _values(text: str, path: Path, line: int) -> tuple[float, float, float, float]:
    given = dict(re.findall(r"(\w+)=(\[[^\]]*\]|[^,\s]+)", text))
    values = []
    for field in _FIELDS:
        if field not in given:
            raise ScenarioError(f"{field} is missing", file=str(path), line=line)
        try:
            value = sum(float(part) for part in given[field].strip("[]").split(";"))
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e18:
            problem = f"{field} must be a number that is 0 or more, not {given[field][:60]!r}"
            raise ScenarioError(problem, file=str(path), line=line)
        values.append(value)
    return values[0] / 1e3, values[1] / 1e3, values[2], values[3]


def timed(layers: Sequence[Layer], path: Path, keys: dict[str, object]) -> tuple[Layer, ...]:
    """Return the layers with the seconds that a profile of `lockstep calibrate` has for a workload.

    `keys`: the workload's. Raises `ScenarioError` if the profile has none for it.
    """
    found = profile.read(path)
    for entry in found.compute:
        if profile.is_of(entry.workload, keys):
            name = profile.called(entry.workload)
            rows = found.evidence.get("compute", {}).get(name, {}).get("layers", [])
            if rows:
                return tuple(_with_seconds(layer, rows) for layer in layers)
    known = "; ".join(", ".join(map(str, entry.workload.values())) for entry in found.compute) or "none"
    problem = f"the profile has no times of this model's layers (it has: {known}); calibrate with it"
    raise ScenarioError(problem, key="workload.layer_times")


def _with_seconds(layer: Layer, rows: Sequence[tuple[str, float, float]]) -> Layer:
    own = [
        row for row in rows if any(row[0] == name or row[0].startswith(f"{name}.") for name in layer.modules)
    ]
    forward, backward = (sum(float(row[place]) for row in own) for place in (1, 2))
    return replace(layer, forward_s=forward, backward_s=backward)
