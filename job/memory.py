"""What a device keeps in memory at its worst moment, predicted from the plan: its high-water mark.

Vectors of the slice of the parameters that the device has, and what is kept of micro-batches between their
passes; and those of servers whose shards lie there. Not counted: the programs themselves, and what a library
needs to compute.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from lockstep.scenarios import Scenario
from lockstep.scenarios import workload as described
from lockstep.strategies import Strategy
from lockstep.strategies.orders import ORDERS
from lockstep.strategies.shares import Held
from lockstep.workloads import Sizes

if TYPE_CHECKING:
    from lockstep.job.stages import Piece

_SERVES = 4  # of a server: its parameters, the new ones, the sum of pushes, a snapshot on its way
_OF_EACH = 2  # of a server: what a child has pushed, and where the answer to it lies
_CODED_TO = 2  # of a server: a push as it was and as it is decoded
_WHILE_MOMENTS_STEP = 3  # besides the new moments: what a formula has in between (strategies/optimizers.py)
_MASTER = 4  # bytes of an element of what mixed precision keeps in full: float32


class HighWater(NamedTuple):
    """Bytes of a device, by what they are of."""

    parameters: int
    gradient: int
    optimizer: int
    """State of the optimizer that the worker itself has; with mixed precision the parameters in full too."""
    stashed: int
    """Older versions of the parameters."""
    others: int
    """Other vectors of the parameters' size, as the strategy says (`kept`)."""
    in_full: int
    """Where workers share out parameters or gradients: those that are there in full for a while."""
    activations: int
    """Kept between passes, at the worst moment."""
    buffers: int
    """An activation and an error on their way: one micro-batch's each."""
    servers: int = 0
    """Of servers and relays that have their vectors there (`cluster.servers.device`)."""

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


Pieces = Sequence["Piece"]
Moment = tuple[tuple[int, int], ...]


def high_water(
    scenario: Scenario,
    strategy: Strategy,
    sizes: Sizes,
    micro_batches: int,
    devices: Sequence[Sequence[int]],
) -> Callable[[int, Pieces], HighWater]:
    """The high-water mark of the device of a stage, from 0, that has some pieces of the model.

    `devices`: the workers of each stage.
    """
    state = strategy.moments(scenario.strategy.parameters)
    hosts = [[*map(scenario.cluster.host_of, workers)] for workers in devices]

    def of(stage: int, pieces: Pieces) -> HighWater:
        return _of_device(scenario, strategy, sizes, micro_batches, hosts[stage], state, stage, pieces)

    return of


def _of_device(
    scenario: Scenario,
    strategy: Strategy,
    sizes: Sizes,
    micro_batches: int,
    hosts: Sequence[int],
    state: int | None,
    stage: int,
    pieces: Pieces,
) -> HighWater:
    split, workload = scenario.split, scenario.workload
    place = stage, split.pipeline
    order, micro = split.order, micro_batches
    if (
        in_units := strategy.pieces(scenario.strategy.parameters) is not None
    ):  # one micro-batch after the other
        order, micro = "interleaved", 1
    if strategy.own_passes:  # a pipeline without a flush has as many micro-batches under way as 1F1B
        order, micro = "1f1b", max(micro_batches, place[1])
    kept = [(piece.before // micro_batches, piece.full // micro_batches) for piece in pieces]
    moments = _moments(order, *place, micro, len(pieces), split.recompute)
    ends = [0, *accumulate(piece.length for piece in pieces)]
    slices = [slice(start, end) for start, end in pairwise(ends)]
    shares = strategy.shared(scenario.strategy.parameters, hosts, slices)
    together = split.devices * micro_batches > 1 or split.recompute
    held = Held(ends[-1], ends[-1], ends[-1], 0) if shares is None else shares.held(together)
    vector, optimizer = sizes.itemsize * ends[-1], sizes.itemsize * held.optimizer * (state or 0)
    if state is not None and isinstance(workload, described.Sizes) and workload.mixed:
        optimizer = _MASTER * held.optimizer * (1 + state)
    return HighWater(
        parameters=sizes.itemsize * held.parameters,
        gradient=sizes.itemsize * held.gradient,
        optimizer=optimizer,
        stashed=vector * (strategy.versions(*place) - 1),
        others=vector * strategy.kept(scenario.strategy.parameters),
        in_full=sizes.itemsize * held.in_full,
        activations=max(
            sum(
                inputs * before + whole * full
                for (inputs, whole), (before, full) in zip(moment, kept, strict=True)
            )
            for moment in moments
        ),
        buffers=0  # nothing is on its way between units
        if in_units
        else max(piece.before for piece in pieces) // micro_batches
        + max(piece.activation for piece in pieces) // micro_batches,
    )


def of_server(scenario: Scenario, strategy: Strategy, vector: int, shard: int, children: int) -> int:
    """Bytes of a server or relay, at the most, with a `shard` of a `vector` (bytes) and so many children."""
    given = scenario.strategy.parameters
    state = strategy.server_moments(given)
    serves = _SERVES + state + while_stepping(state) + strategy.encodes(given) * _CODED_TO
    return vector + shard * (serves + _OF_EACH * children)  # and the first parameters, of the whole vector


def while_stepping(moments: int) -> int:
    """Vectors that a step takes for a while because of its moments."""
    return moments and moments + _WHILE_MOMENTS_STEP


@lru_cache(1024)
def _moments(
    order: str, stage: int, stages: int, micro_batches: int, chunks: int, recompute: bool
) -> frozenset[Moment]:
    """The worst of the moments after each forward pass, and during each backward pass: of each chunk, how
    many micro-batches there are of which it keeps the inputs only, and how many of which it keeps all."""
    inputs, whole = [0] * chunks, [0] * chunks
    found = set()
    for kind, _, chunk in ORDERS[order](stage, stages, micro_batches, chunks):
        if kind == "forward":
            (inputs if recompute else whole)[chunk] += 1
        elif kind != "backward-weights" and recompute:  # forward again, of which it keeps all
            inputs[chunk] -= 1
            whole[chunk] += 1
        found.add(tuple(zip(inputs, whole, strict=True)))
        if kind in ("backward", "backward-weights"):
            whole[chunk] -= 1
    return frozenset(
        moment for moment in found if not any(moment != other and _most(moment, other) for other in found)
    )


def _most(moment: Moment, other: Moment) -> bool:
    """Whether the other has as many everywhere, or more."""
    return all(a <= c and b <= d for (a, b), (c, d) in zip(moment, other, strict=True))
