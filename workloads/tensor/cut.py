"""A piece whose layers are cut, as one device has it: its segments, its parameters, how much of the work."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

import torch

from lockstep.workloads.tensor.recipes import Recipe
from lockstep.workloads.tensor.steps import Compute, Turn, Weight, backward_turns, forward_turns


class Cut:
    """A recipe, and what a device has of the parameters, which are of these shapes in the model."""

    def __init__(self, recipe: Recipe, shapes: Sequence[torch.Size], parts: int, part: int) -> None:
        self.steps, self.parts, self.part = recipe.steps, parts, part
        self.first, self.last = recipe.own.start == 0, recipe.last
        self.forward: list[Turn] = forward_turns(self.steps)
        self.backward: list[Turn] = backward_turns(self.steps, self.first)
        used = {w.number: w for step in self.computations for w in step.weights}
        self.weights = [used[number] for number in sorted(used)]
        starts = [0, *accumulate(shape.numel() for shape in shapes)]
        self.ranges = tuple(
            each for w in self.weights for each in _ranges(w, shapes[w.number], starts[w.number])
        )
        self.shapes = [_shape(w, shapes[w.number]) for w in self.weights]
        ends = [0, *accumulate(shape.numel() for shape in self.shapes)]
        self.place = {w.number: slice(a, b) for w, (a, b) in zip(self.weights, pairwise(ends), strict=True)}
        self.at = {w.number: place for place, w in enumerate(self.weights)}
        self.length = ends[-1]
        partial = {w.number for step in self.computations if step.partial for w in step.weights}
        self.partial = tuple(_joined([self.place[number] for number in sorted(partial)]))

    @property
    def computations(self) -> Iterator[Compute]:
        """Those of the steps."""
        return (step for step in self.steps if isinstance(step, Compute))

    def work(self, turn: Turn, of_layer: Callable[[int], float]) -> float:
        """Of a segment, if a layer's whole work is `of_layer(number)`."""
        steps = [self.steps[place] for place in turn.steps]
        return sum(
            step.work * of_layer(step.layer) for step in steps if isinstance(step, Compute) and step.work
        )


def _ranges(weight: Weight, shape: torch.Size, start: int) -> Iterator[slice]:
    """Of the flat vector of all parameters."""
    if weight.dim < 0:
        yield slice(start, start + shape.numel())
        return
    inner = shape[weight.dim + 1 :].numel()
    outer = shape[: weight.dim].numel()
    for row in range(outer):
        base = start + row * shape[weight.dim] * inner
        yield from (slice(base + a * inner, base + b * inner) for a, b in weight.ranges)


def _shape(weight: Weight, shape: torch.Size) -> torch.Size:
    if weight.dim < 0:
        return shape
    found = list(shape)
    found[weight.dim] = sum(b - a for a, b in weight.ranges)
    return torch.Size(found)


def _joined(parts: Sequence[slice]) -> Iterator[slice]:
    """Without those that end where the next begins."""
    start = stop = None
    for part in parts:
        if part.start == stop:
            stop = part.stop
            continue
        if start is not None:
            yield slice(start, stop)
        start, stop = part.start, part.stop
    if start is not None:
        yield slice(start, stop)
