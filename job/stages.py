"""The pieces that a model is cut into, and what each costs: read off the model once, for both engines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import numpy as np

from lockstep.job.memory import high_water
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.section import any_of, divisors
from lockstep.strategies import Strategy
from lockstep.strategies.exchanges import Exchange, Exchanges
from lockstep.strategies.marks import InPasses
from lockstep.workloads import Sizes
from lockstep.workloads.cutting import Memory, cut
from lockstep.workloads.layers import Layer, kept, layers
from lockstep.workloads.slowness import lasting


class Segment(NamedTuple):
    """A piece is one, unless its layers are cut: then devices meet after each (strategies/tensor.py)."""

    share: float
    """Of the time of the piece's pass."""
    exchange: Exchange | None
    nbytes: int
    """Of a mini-batch, of what is exchanged."""


_ONE = (Segment(1.0, None, 0),)


@dataclass(frozen=True)
class Piece:
    """Consecutive layers of the model, or what one of several devices has of them."""

    layers: slice
    """Of the model."""
    parameters: tuple[slice, ...]
    """Of the whole vector: end to end they are the piece's."""
    forward: float
    """The share of a gradient's time that the forward pass of a mini-batch takes; likewise the next two."""
    inputs: float
    weights: float
    activation: int
    """Bytes of a mini-batch that leave it forward, and come to it backward; 0: of the last."""
    before: int
    """Bytes of a mini-batch that come to it forward, and leave it backward; 0: of the first."""
    kept: int
    """Bytes that it keeps of a mini-batch from its forward to its backward pass."""
    full: int
    """Bytes that it goes back through: more than it kept if it recomputes them."""
    there: tuple[Segment, ...] = _ONE
    """The segments of a forward pass."""
    back: tuple[Segment, ...] = _ONE
    """Those of a backward pass, from the end on."""
    partial: tuple[slice, ...] = ()
    """Of its parameters, those whose gradients are sums over the devices that share its layers."""

    @cached_property
    def length(self) -> int:
        """Elements of its parameters."""
        return sum(part.stop - part.start for part in self.parameters)

    @property
    def cut(self) -> bool:
        """Whether several devices share its layers."""
        return self.there is not _ONE

    def exchanges(self, recompute: bool) -> Exchanges:
        """What comes after each of its segments."""
        there, back = (tuple(each.exchange for each in segments) for segments in (self.there, self.back))
        return Exchanges(there, back, self.partial, again=recompute and self.cut)

    def share(self, kind: str, recompute: bool) -> float:
        """Of a gradient's time, the share that passes of that kind over a mini-batch take."""
        again = self.forward if recompute and not self.cut else 0.0
        return {
            "forward": self.forward,
            "backward": again + self.inputs + self.weights,
            "backward-inputs": again + self.inputs,
            "backward-weights": self.weights,
            "recompute": self.forward,
        }[kind]

    def passes(self, recompute: bool) -> float:
        """Of a gradient's time, the share that all passes over a mini-batch take."""
        kinds = ("forward", "backward", *["recompute"] * (recompute and self.cut))
        return sum(self.share(kind, recompute) for kind in kinds)

    def segments(self, kind: str) -> tuple[Segment, ...]:
        """Those that a pass of that kind goes through."""
        if kind == "backward-weights":
            return _ONE
        return self.there if kind in ("forward", "recompute") else self.back


def micro_batches_of(scenario: Scenario, strategy: Strategy) -> int:
    """The parts that a mini-batch is computed in.

    Raises ScenarioError (key ``parallelism.micro_batches``, ``chunks`` or ``order``).
    """
    split, batch, name = scenario.split, scenario.workload.batch_size, scenario.strategy.name
    units = strategy.pieces(scenario.strategy.parameters)
    own_passes = strategy.own_passes or units is not None
    if units is not None and split.pipeline > 1:
        ((key, _, mark),) = strategy.marks(InPasses)
        where = f" and {mark.key} {mark.values[0]}" if mark.key else ""
        said = f"must be 1 with {name}{where}, which computes the whole model in {key}; not {split.pipeline}"
        raise ScenarioError(said, key="parallelism.pipeline")
    if own_passes and split.chunks > 1:
        raise ScenarioError(f"must be 1 with {name}, not {split.chunks}", key="parallelism.chunks")
    if own_passes and split.order != "1f1b":
        raise ScenarioError(f"{name} has an order of its own; remove it", key="parallelism.order")
    if split.chunks > 1 and split.order != "interleaved":
        problem = f"only the order interleaved does several; {split.order} has 1"
        raise ScenarioError(problem, key="parallelism.chunks")
    found = split.micro_batches or strategy.micro_batches or split.pipeline
    if strategy.micro_batches == 1 and found != 1:
        problem = f"must be 1: {name} does not cut a mini-batch; not {found}"
        raise ScenarioError(problem, key="parallelism.micro_batches")
    rules: dict[str, Callable[[int], bool]] = {
        f"must divide workload.batch_size ({batch})": lambda parts: batch % parts == 0
    }
    if strategy.own_passes and not strategy.micro_batches:
        words = f"must be at least as many as the {split.pipeline} stages with {name}"
        rules[words] = lambda parts: parts >= split.pipeline
    if split.order == "interleaved":
        words = f"must be a multiple of the {split.pipeline} stages for the order interleaved"
        rules[words] = lambda parts: parts % split.pipeline == 0
    for problem, obeyed in rules.items():
        if not obeyed(found):
            valid = [parts for parts in divisors(batch) if all(rule(parts) for rule in rules.values())]
            said = f"{problem}: {any_of(valid, found)}; not {found}" if valid else f"{problem}, not {found}"
            said += "" if split.micro_batches else ", as many as stages because it is not given"
            said += "" if valid else "; no number would do here: change workload.batch_size"
            raise ScenarioError(said, key="parallelism.micro_batches")
    return found


def pieces_of(
    scenario: Scenario, strategy: Strategy, sizes: Sizes, micro_batches: int, devices: Sequence[Sequence[int]]
) -> list[Piece]:
    """The pieces in the order of the model: as many as there are stages, times chunks.

    `devices`: the workers of each stage and place in it. Where they have limits of memory the model is cut so
    that each stage keeps to its own, if there is such a cut (lockstep/room.py says if not). A stage is as
    fast as its slowest device always is: kinds and persistent stragglers count. Raises ScenarioError (keys
    below ``parallelism``) where the model cannot be cut so.
    """
    split, cluster = scenario.split, scenario.cluster
    stages, chunks = split.pipeline, strategy.pieces(scenario.strategy.parameters) or split.chunks
    count = stages * chunks
    all_layers = layers(scenario.workload, count, scenario.workload.batch_size // micro_batches)
    for key, _, _ in strategy.marks(InPasses):
        if strategy.pieces(scenario.strategy.parameters) and count > len(all_layers):
            problem = f"must be at most {len(all_layers)}, as many as there are layers, not {count}"
            raise ScenarioError(problem, key=f"strategy.{key}")
    slowdowns = lasting(cluster)
    of_stage = [[*chain(*devices[at * split.tensor :][: split.tensor])] for at in range(stages)]
    speeds = [
        1 / max(slowdowns.get(worker, 1.0) for worker in of_stage[piece % stages]) for piece in range(count)
    ]
    limited = cluster.memory_of(0) is not None
    limits = [
        min(cluster.memory_of(worker) or 0.0 for worker in of_stage[piece % stages]) / chunks
        for piece in range(count if limited else 0)
    ]
    takes = None
    if limited or split.by == "memory":
        takes = _memory(scenario, strategy, sizes, micro_batches, devices[:: split.tensor], all_layers)
    try:
        bounds = cut(all_layers, count, split.by, speeds=speeds, memory=takes, limits=limits, chunks=chunks)
    except ScenarioError:
        if not limited:
            raise
        bounds = cut(all_layers, count, split.by, speeds=speeds, memory=takes, chunks=chunks)
    return list(_pieces(scenario, sizes, [all_layers[a:b] for a, b in pairwise(bounds)]))


def _memory(
    scenario: Scenario,
    strategy: Strategy,
    sizes: Sizes,
    micro_batches: int,
    devices: Sequence[Sequence[int]],
    all_layers: Sequence[Layer],
) -> Memory:
    """What a device takes with the layers from one to before another: of layers that are alike, once."""
    of = high_water(scenario, strategy, sizes, micro_batches, devices)
    nbytes = sizes.itemsize * sizes.batch_size
    parameters = np.array([0, *accumulate(layer.parameters for layer in all_layers)])
    saved = np.array([0.0, *accumulate(layer.saved for layer in all_layers)])
    shared = np.array([0.0, *accumulate(layer.shared for layer in all_layers)])
    outputs = np.array([0, *(round(layer.output * nbytes) for layer in all_layers)])
    start, stop = np.triu_indices(len(all_layers) + 1, 1)
    full = np.rint((saved[stop] - saved[start] - shared[stop] + shared[start + 1]) * nbytes).astype(int)
    every = parameters[stop] - parameters[start], outputs[stop], outputs[start], full
    different, which = np.unique(every, axis=1, return_inverse=True)
    pieces = [
        Piece(slice(0, 1), (slice(0, length // scenario.split.parts),), 0, 0, 0, after, before, kept, kept)
        for length, after, before, kept in different.T.tolist()
    ]
    place = np.zeros((len(all_layers) + 1,) * 2, int)
    place[start, stop] = which.ravel()
    places = place.tolist()

    @cache
    def totals(stage: int) -> list[int]:
        return [of(stage, [piece]).total for piece in pieces]

    return lambda number, start, stop: totals(number % scenario.split.pipeline)[places[start][stop]]


def whole(sizes: Sizes) -> list[Piece]:
    """The one piece of a model whose gradients are computed at once: nobody asks what its layers are."""
    return [Piece(slice(0, 1), (slice(0, sizes.parameters),), 1.0, 0.0, 0.0, 0, 0, sizes.kept, sizes.kept)]


def _pieces(scenario: Scenario, sizes: Sizes, parts: Sequence[Sequence[Layer]]) -> Iterator[Piece]:
    given = getattr(scenario.cluster.compute, "backward", None)
    timed = all(layer.seconds is not None for part in parts for layer in part)
    forward, backward = (
        [sum(getattr(layer, f"{way}_{'s' if timed else 'flops'}") for layer in part) for part in parts]
        for way in ("forward", "backward")
    )
    both = sum(forward) + sum(backward)
    counted = sum(backward) / both if both else 2 / 3
    share = counted if given is None else given
    nbytes = sizes.itemsize * sizes.batch_size
    start = before = layer = 0
    for part, its_forward, its_backward in zip(parts, forward, backward, strict=True):
        length, activation = sum(layer.parameters for layer in part), round(part[-1].output * nbytes)
        full = round(kept(part) * nbytes)
        half = share * its_backward / (sum(backward) or 1.0) / 2
        yield Piece(
            layers=slice(layer, layer + len(part)),
            parameters=(slice(start, start + length),),
            forward=(1 - share) * its_forward / (sum(forward) or 1.0),
            inputs=half,
            weights=half,
            activation=activation,
            before=before,
            kept=before if scenario.split.recompute else full,
            full=full,
        )
        start, before, layer = start + length, activation, layer + len(part)
