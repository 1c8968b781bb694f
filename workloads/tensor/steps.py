"""The steps of layers that are cut between devices, as one device takes them: computations and crossings.

At a crossing the devices meet, forward or backward or both ways. Megatron's are `copy` (its f) and `reduce`
(its g): Shoeybi et al. 2019, "Megatron-LM", figure 3; for sequence parallelism `gather_split` and `scatter`
(its g and ḡ): Korthikanti et al. 2022, figure 5.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from lockstep.strategies.exchanges import Exchange

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.workloads.task import Loss


class Weight(NamedTuple):
    """What a device has of one of the model's parameters: of dimension `dim`, some ranges; -1: all of it."""

    number: int  # in the order of model.parameters()
    dim: int = -1
    ranges: tuple[tuple[int, int], ...] = ()


class Context(NamedTuple):
    """What a computation may need beside what comes in."""

    batch: Any
    """The micro-batch, as the task's loss is given it."""
    loss: "Loss"
    micro_batches: int


State = "tuple[Tensor, ...]"
"""What a device has between two steps. The first crosses, the others stay where they are."""


@dataclass(frozen=True)
class Compute:
    """What a device computes by itself."""

    function: "Callable[[tuple[Tensor, ...], Sequence[Tensor], Context], tuple[Tensor, ...]]"
    weights: tuple[Weight, ...] = ()
    layer: int = 0
    """Of the model."""
    work: float = 0.0
    """The share of the layer's FLOPs."""
    partial: bool = False
    """The gradients of its weights are sums over the group: each device sees a part of the values."""


@dataclass(frozen=True)
class Crossing:
    """Where the devices of a group meet."""

    forward: Exchange | None = None
    backward: Exchange | None = None
    dim: int = 0
    """Along which blocks of several devices are put together, or cut."""
    sizes: tuple[int, ...] = ()
    """Of each device's block along it."""
    own: bool = False
    """Everyone behind it computes the same: backward, each takes its own block of the error."""
    ends: tuple[bool, bool] = (False, False)
    """Whether a segment ends here although nothing is exchanged: forward, backward."""


COPY = Crossing(backward="all-reduce")
"""The same goes to all, who compute different parts with it: backward, their errors are added."""
REDUCE = Crossing(forward="all-reduce")
"""Each has a part of a sum."""
HALO = Crossing(forward="halo", ends=(False, True))
"""Rows of pixels go to the neighbours; what they send is needed at ARRIVE."""
ARRIVE = Crossing(backward="halo", ends=(True, False))


def gather(dim: int, sizes: Sequence[int]) -> Crossing:
    """Blocks are put together; all compute the same with them."""
    return Crossing("all-gather", None, dim, tuple(sizes), own=True)


def gather_split(dim: int, sizes: Sequence[int]) -> Crossing:
    """Blocks, as long as each other, are put together; with them, all compute different parts."""
    return Crossing("all-gather", "reduce-scatter", dim, tuple(sizes))


def scatter(dim: int, sizes: Sequence[int]) -> Crossing:
    """Each has a part of a sum, and gets its block of it."""
    return Crossing("reduce-scatter", "all-gather", dim, tuple(sizes))


Step = Compute | Crossing


class Turn(NamedTuple):
    """A segment: some computations, and the exchange after them, if there is one."""

    steps: tuple[int, ...]  # computations and crossings, in the order in which they are taken
    exchange: Exchange | None


def forward_turns(steps: Sequence[Step]) -> list[Turn]:
    """The segments of a forward pass. A crossing belongs to the segment that it ends."""
    return _turns(steps, range(len(steps)), lambda crossing: (crossing.forward, crossing.ends[0]))


def backward_turns(steps: Sequence[Step], first: bool) -> list[Turn]:
    """The segments of a backward pass; where the model begins, nobody needs the error of what came in."""
    weighty = [place for place, step in enumerate(steps) if isinstance(step, Compute) and step.weights]
    last = weighty[0] if first else 0
    return _turns(
        steps, range(len(steps) - 1, last - 1, -1), lambda crossing: (crossing.backward, crossing.ends[1])
    )


def _turns(
    steps: Sequence[Step], order: range, at: Callable[[Crossing], tuple[Exchange | None, bool]]
) -> list[Turn]:
    found: list[Turn] = []
    own: list[int] = []
    for place in order:
        own.append(place)
        step = steps[place]
        if isinstance(step, Crossing):
            exchange, ends = at(step)
            if exchange or ends:
                found.append(Turn(tuple(own), exchange))
                own = []
    if own or not found:
        found.append(Turn(tuple(own), None))
    return found
