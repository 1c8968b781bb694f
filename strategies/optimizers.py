"""Optimizers: pure functions in the manner of optax, for local steps or for what a server does with a sum.

An optimizer turns a gradient into a step to add to the parameters. Its state is a tuple: the number of steps
made, then its moments, each 0.0 until the first step and then a vector of the gradient's shape.
"""

from collections.abc import Callable
from math import cos, pi
from typing import Any, Literal, NamedTuple

from strategies.bounds import Count, Momentum, Rate, Whole
from strategies.multiple import Multiple, multiple
from strategies.node import Vector

State = tuple[Any, ...]
Moments = tuple[Any, ...]
Optimizer = Literal["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam"]
ServerOptimizer = Literal["none", "sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam"]
Decay = Literal["constant", "linear", "cosine", "step", "inverse-sqrt"]

_RATES = {"adagrad": 0.01, "rmsprop": 0.001, "adam": 0.001}  # as in torch; 0.05 for the others
_SERVER_RATES = {"adagrad": 0.1, "rmsprop": 0.01, "adam": 0.01}  # 1 for the others


def default_rate(optimizer: str) -> float:
    """The learning rate of an optimizer that is given none."""
    return _RATES.get(optimizer, 0.05)


class Transformation(NamedTuple):
    """`initial` is the state before the first call; `step(gradient, state)` gives (step to add, state).

    Both may be multiples of vectors (multiple.py), which are multiplied as they are added.
    `ahead(state)` is what to add to the parameters to get those at which the next gradients are wanted; None:
    at the parameters themselves.
    """

    initial: State
    step: Callable[[Vector | Multiple, State], tuple[Any, State]]
    learning_rate: float = 1.0
    ahead: Callable[[State], Any] | None = None


def optimizer(
    *,
    optimizer: Optimizer = "sgd",
    learning_rate: Rate | None = None,
    momentum: Momentum | None = None,
    decay: Decay = "constant",
    decay_steps: Count = 1000,
    warmup_steps: Whole = 0,
) -> Transformation:
    """Of whoever sees the gradients: the server, or a worker that makes local steps.

    The learning rate is by default 0.05 for sgd, momentum and nesterov, 0.01 for adagrad, 0.001 for rmsprop
    and adam; momentum 0.9, but 0 for sgd. The rate rises linearly over the optimizer's first `warmup_steps`,
    and then follows `decay`: linear and cosine reach 0 after `decay_steps`, step falls to a tenth every
    `decay_steps`, inverse-sqrt is (1 + t/decay_steps)^−½.
    """
    rate = default_rate(optimizer) if learning_rate is None else learning_rate
    factor = None
    if decay != "constant" or warmup_steps:
        factor = lambda t: _factor(t, decay, decay_steps, warmup_steps)  # noqa: E731
    return _transformation(optimizer, rate, momentum, factor)


def server_optimizer(
    *,
    server_optimizer: ServerOptimizer = "none",
    server_learning_rate: Rate | None = None,
    server_momentum: Momentum | None = None,
) -> Transformation:
    """Of a server to which workers push how far they have moved: none adds that.

    The others take a move for a descent direction (Reddi et al. 2021, "Adaptive federated optimization",
    algorithm 1), at the rate 1, but 0.1 for adagrad and 0.01 for rmsprop and adam.
    """
    if server_optimizer == "none":
        return Transformation((0,), lambda move, state: (move, state))
    rate = server_learning_rate or _SERVER_RATES.get(server_optimizer, 1.0)
    inner = _transformation(server_optimizer, rate, server_momentum, None)
    return inner._replace(step=lambda move, state: inner.step(-multiple(move), state))


def block_momentum(momentum: float, rate: float, nesterov: bool) -> Transformation:
    """Block-wise model-update filtering: G the workers' mean move, Δ ← momentum·Δ + rate·G, W ← W + Δ.

    With `nesterov` workers start from W + momentum·Δ, and G is still measured from W (Chen and Huo 2016,
    "Scalable training of deep learning machines by incremental block training with intra-block parallel
    optimization and blockwise model-update filtering", eqs. 4–9).
    """

    def step(move: Any, state: State) -> tuple[Vector, State]:
        (delta,) = state[1:]
        moved = move + momentum * delta if nesterov else move
        delta = momentum * delta + rate * moved
        return delta, (state[0] + 1, delta)

    ahead = (lambda state: momentum * state[1]) if nesterov else None
    return Transformation((0, 0.0), step, ahead=ahead)


def _transformation(
    name: str, rate: float, momentum: float | None, factor: Callable[[int], float] | None
) -> Transformation:
    if momentum is None:
        momentum = 0.0 if name == "sgd" else 0.9
    if name == "sgd" and not momentum and factor is None:
        return Transformation((0,), lambda gradient, state: (-rate * multiple(gradient), state), rate)
    count, direction = _DIRECTIONS["momentum" if name == "sgd" and momentum else name]

    def step(gradient: Vector | Multiple, state: State) -> tuple[Multiple, State]:
        made, *moments = state
        towards, kept = direction(multiple(gradient), moments, made, momentum)
        now = rate if factor is None else rate * factor(made)
        return -now * multiple(towards), (made + 1, *kept)

    return Transformation((0, *[0.0] * count), step, rate)


def _factor(made: int, decay: str, decay_steps: int, warmup_steps: int) -> float:
    """What the learning rate is multiplied by, after so many steps."""
    if made < warmup_steps:
        return (made + 1) / warmup_steps
    t = (made - warmup_steps) / decay_steps
    return {
        "constant": lambda: 1.0,
        "linear": lambda: max(0.0, 1 - t),
        "cosine": lambda: (1 + cos(pi * min(1.0, t))) / 2,
        "step": lambda: 0.1 ** int(t),
        "inverse-sqrt": lambda: float((1 + t) ** -0.5),
    }[decay]()


# Each: (gradient, a multiple, moments, steps made before, momentum) → (direction to descend along, moments).


def _sgd(g: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    return g, ()


def _momentum(g: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    """Polyak 1964."""
    v = mu * moments[0] + g
    return v, (v,)


def _nesterov(g: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    """Nesterov 1983, with the parameters kept at the point that looks ahead (Sutskever et al. 2013, §2)."""
    v = mu * moments[0] + g
    return g + mu * v, (v,)


def _adagrad(g: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    """Duchi et al. 2011; ε = 1e-10."""
    h = moments[0] + g * g
    return g / (h**0.5 + 1e-10), (h,)


def _rmsprop(g: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    """Tieleman and Hinton 2012, with a decay of 0.99 and ε = 1e-8."""
    h = 0.99 * moments[0] + 0.01 * (g * g)
    return g / (h**0.5 + 1e-8), (h,)


def _adam(g: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    """Kingma and Ba 2015, with β₁ the momentum, β₂ = 0.999, ε = 1e-8."""
    m, v = mu * moments[0] + (1 - mu) * g, 0.999 * moments[1] + 0.001 * (g * g)
    corrected = v / (1 - 0.999 ** (made + 1))
    return m / (1 - mu ** (made + 1)) / (corrected**0.5 + 1e-8), (m, v)


_DIRECTIONS: dict[str, tuple[int, Callable[[Any, Any, int, float], tuple[Any, Moments]]]] = {
    "sgd": (0, _sgd),
    "momentum": (1, _momentum),
    "nesterov": (1, _nesterov),
    "adagrad": (1, _adagrad),
    "rmsprop": (1, _rmsprop),
    "adam": (2, _adam),
}
