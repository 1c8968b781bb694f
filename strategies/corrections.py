"""What a server does to each update it is pushed, before it is applied: corrections for staleness.

Pure functions in the manner of optax: state and update in, state and update out. What is then done with the
sum of updates is the optimizer's business (optimizers.py); one that divides by the size of gradients is told
the size before a correction that means a rate, or it would undo it. At staleness 0 every correction changes
nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from lockstep.strategies.bounds import NonNegative, Rate
from lockstep.strategies.codecs import Codec
from lockstep.strategies.factors import staleness_correction
from lockstep.strategies.node import Vector
from lockstep.strategies.optimizers import Optimizer, Transformation
from lockstep.strategies.optimizers import optimizer as optimizer_of


class Arrival(NamedTuple):
    """How an update finds the server."""

    staleness: int
    parameters: Vector  # the server's now
    pulled: Vector  # those the update was computed from: the same, if nothing was applied since


class Correction(NamedTuple):
    """`initial` is the state before the first call; `correct(update, arrival, state)` gives both anew."""

    initial: Any
    correct: Callable[[Vector, Arrival, Any], tuple[Vector, Any]]
    looks_back: bool = False  # whether it needs what was pulled: a copy of the parameters per worker
    is_rate: bool = False  # whether it means another rate, and not another update: see `optimizers.Step`


class UpdateRule(NamedTuple):
    """What a server does with what it was pushed: decode, correct each, apply the sum, encode answers."""

    optimizer: Transformation
    correction: Correction | None = None
    codec: Codec = Codec("none")
    answer_codec: Codec = Codec("none")


@staleness_correction()
def scaled_by_staleness() -> Correction:
    """DynSGD as dist-keras has it: each update, as it comes, at a rate of 1/(τ + 1).

    After Jiang et al. 2017, "Heterogeneity-aware distributed parameter servers", who scale by delay too, but
    count it in the workers' clocks, average the updates of a clock, and revise what was applied before.
    """
    return Correction(
        None, lambda update, arrival, state: (update / (arrival.staleness + 1), state), is_rate=True
    )


@staleness_correction()
def rate_over_staleness() -> Correction:
    """Staleness-aware: each gradient at the rate α₀/τ, α₀ if τ = 0 (Zhang, Gupta et al. 2016, eq. 6)."""
    return Correction(
        None, lambda update, arrival, state: (update / max(arrival.staleness, 1), state), is_rate=True
    )


@staleness_correction()
def scaled_by_distance(*, optimizer: Optimizer = "sgd", learning_rate: Rate | None = None) -> Correction:
    """Δ ⊙ 1/((x̃ₜ − x̃ₜ₋τ)²/η + 1), elementwise: the less, the farther the server has moved (Hermans 2017)."""
    rate = optimizer_of(optimizer=optimizer, learning_rate=learning_rate).learning_rate

    def correct(update: Vector, arrival: Arrival, state: Any) -> tuple[Vector, Any]:
        moved = arrival.parameters - arrival.pulled
        return update / (moved * moved / rate + 1.0), state

    return Correction(None, correct, looks_back=True, is_rate=True)


@staleness_correction(of={"gradients"})
def delay_compensated(
    *, compensation: NonNegative | None = None, adaptive_compensation: bool = False
) -> Correction:
    """DC-ASGD: g + λ·g⊙g⊙(w − w_bak), with one backup per worker: the parameters that it pulled.

    Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation", eq. 10: λ is 0.04,
    or, if adaptive, λ₀/√(MS + 1e-7) with λ₀ = 2 and MS ← 0.95·MS + 0.05·g⊙g.
    """
    strength = (2.0 if adaptive_compensation else 0.04) if compensation is None else compensation

    def correct(gradient: Any, arrival: Arrival, mean_square: Any) -> tuple[Vector, Any]:
        weight: Any = strength
        if adaptive_compensation:
            mean_square = 0.95 * mean_square + 0.05 * (gradient * gradient)
            weight = strength / (mean_square + 1e-7) ** 0.5
        moved = arrival.parameters - arrival.pulled
        return gradient + weight * (gradient * gradient * moved), mean_square

    return Correction(0.0, correct, looks_back=True)
