"""Optimizers: pure functions in the manner of optax, for local steps or for what a server does with a sum.

An optimizer turns a gradient into a step to add to the parameters. Its state is a tuple: its age, then its
moments, each 0.0 until the first step and then a vector of the gradient's shape.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Protocol, get_args

from lockstep.strategies.bounds import Count, Fraction, Milestones, Momentum, NonNegative, Rate, Whole
from lockstep.strategies.marks import BelongsTo
from lockstep.strategies.multiple import Multiple, multiple
from lockstep.strategies.node import Vector
from lockstep.strategies.rates import BY_GAMMA, IN_STEPS, TO_A_FLOOR, Decay, schedule

State = tuple[Any, ...]
Moments = tuple[Any, ...]
Optimizer = Literal["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw"]
ServerOptimizer = Literal["none", "sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam"]

# else 0.05; as in torch, but for rmsprop, whose rate is that of Keras
_RATES = {"adagrad": 0.01, "rmsprop": 0.001, "adam": 0.001, "adamw": 0.001}
_WITH_MOMENTUM = ("sgd", "momentum", "nesterov", "adam")
WITH_SQUARES = ("adagrad", "rmsprop", "adam", "adamw")  # those with a moment that is never negative
_SERVER_RATES = {"adagrad": 0.1, "rmsprop": 0.01, "adam": 0.01}  # 1 for the others


def default_rate(optimizer: str) -> float:
    """The learning rate of an optimizer that is given none."""
    return _RATES.get(optimizer, 0.05)


class Age(NamedTuple):
    """How many steps the job has made, which schedules count, and how many this state has seen."""

    job: int = 0
    state: int = 0


def restored(state: State) -> State:
    """An optimizer's state as it comes out of a checkpoint, which knows tuples only."""
    return (Age(*state[0]), *state[1:])


class Step(Protocol):
    """What an optimizer does with a gradient."""

    def __call__(
        self,
        gradient: Vector | Multiple,
        state: State,
        parameters: Any,
        plain: Vector | Multiple | None = None,
        /,
    ) -> tuple[Any, State]:
        """What to add to the `parameters`, at which the gradient may be old, and the state after it.

        All vectors are of shape (n,); the first and the step may be multiples of one (multiple.py), which are
        multiplied as they are added. `plain` is the gradient without what only its rate was corrected by: an
        optimizer that divides by the gradient's size takes the size from there, or it would divide the
        correction away. None: it is the gradient.
        """
        ...


class Clipping(NamedTuple):
    """`factor(norm)` is what a gradient is multiplied by, `step` what is then done with it (clipping.py)."""

    factor: Callable[[float], float]
    step: Step


class Transformation(NamedTuple):
    """`initial` is the state before the first step.

    `ahead(state)` is what to add to the parameters to get those at which the next gradients are wanted; None:
    at the parameters themselves. `rate(t)` is what the learning rate is multiplied by after t steps of the
    job; `normalises`: whether a step's length does not depend on the gradient's. `clipping`: `step` clips
    what it is given, which has to be a whole gradient.
    """

    initial: State
    step: Step
    learning_rate: float = 1.0
    ahead: Callable[[State], Any] | None = None
    rate: Callable[[int], float] = lambda made: 1.0
    normalises: bool = False
    clipping: Clipping | None = None

    @property
    def moments(self) -> int:
        """Vectors of the parameters' size that its state has, once there has been a step."""
        return len(self.initial) - 1

    @property
    def of_parts(self) -> "Transformation":
        """For steps by parts of a gradient that is clipped already."""
        return self if self.clipping is None else self._replace(step=self.clipping.step, clipping=None)

    def afresh(self, made: int) -> State:
        """The state without a memory, in a job that has made so many steps: its rate goes on from there."""
        return (Age(job=made), *self.initial[1:])


def optimizer(
    *,
    optimizer: Optimizer = "sgd",
    learning_rate: Rate | None = None,
    momentum: Annotated[Momentum | None, BelongsTo("optimizer", (*_WITH_MOMENTUM, "adamw"))] = None,
    weight_decay: NonNegative | None = None,
    max_grad_norm: Rate | None = None,
    decay: Decay = "constant",
    decay_steps: Annotated[Count, BelongsTo("decay", IN_STEPS)] = 1000,
    milestones: Annotated[Milestones, BelongsTo("decay", ("multi-step",))] = (),
    gamma: Annotated[Fraction | None, BelongsTo("decay", BY_GAMMA)] = None,
    eta_min: Annotated[NonNegative, BelongsTo("decay", TO_A_FLOOR)] = 0.0,
    warmup_steps: Whole = 0,
) -> Transformation:
    """Of the node that uses the gradients: the server, or a worker that makes local steps.

    The learning rate is by default 0.05 for sgd, momentum and nesterov, 0.01 for adagrad, 0.001 for rmsprop,
    adam and adamw; momentum 0.9, but 0 for sgd. `weight_decay` times the parameters is added to the gradient;
    adamw, whose default is 0.01 and not 0, lets them decay by themselves. A gradient whose norm is above
    `max_grad_norm` is first multiplied to have that norm (torch's clip_grad_norm_).

    The rate rises linearly over the job's first `warmup_steps`, and then follows `decay`: linear and cosine
    reach `eta_min` after `decay_steps`; step falls to `gamma` (0.1) of it every `decay_steps`, multi-step at
    each of `milestones`, and exponential (0.999) at every step; inverse-sqrt is (1 + t/decay_steps)^−½. Steps
    are counted whatever becomes of the optimizer's state.
    """
    rate = default_rate(optimizer) if learning_rate is None else learning_rate
    factor = schedule(decay, decay_steps, warmup_steps, milestones, gamma, eta_min / rate)
    if weight_decay is None:
        weight_decay = 0.01 if optimizer == "adamw" else 0.0
    made = _transformation(optimizer, rate, momentum, factor, weight_decay)
    return made if max_grad_norm is None else _clipping(made, max_grad_norm)


def server_optimizer(
    *,
    server_optimizer: ServerOptimizer = "none",
    server_learning_rate: Annotated[
        Rate | None, BelongsTo("server_optimizer", get_args(ServerOptimizer)[1:])
    ] = None,
    server_momentum: Annotated[Momentum | None, BelongsTo("server_optimizer", _WITH_MOMENTUM)] = None,
) -> Transformation:
    """Of a server to which workers push deltas: none adds them.

    The others take a delta for a descent direction (Reddi et al. 2021, "Adaptive federated optimization",
    algorithm 1), at the rate 1, but 0.1 for adagrad and 0.01 for rmsprop and adam. Adam is theirs
    (algorithm 2), not that of `optimizer`: see `_fedadam`.
    """
    if server_optimizer == "none":
        return Transformation((Age(),), lambda delta, state, parameters, plain=None: (delta, state))
    rate = server_learning_rate or _SERVER_RATES.get(server_optimizer, 1.0)
    name = "fedadam" if server_optimizer == "adam" else server_optimizer
    inner = _transformation(name, rate, server_momentum, None)

    def step(delta: Any, state: State, parameters: Any, plain: Any = None) -> tuple[Any, State]:
        return inner.step(-multiple(delta), state, parameters, plain if plain is None else -multiple(plain))

    return inner._replace(step=step)


def block_momentum(momentum: float, rate: float, nesterov: bool) -> Transformation:
    """Block-wise model-update filtering: G the workers' mean delta, Δ ← momentum·Δ + rate·G, W ← W + Δ.

    With `nesterov` workers start from W + momentum·Δ, and G is measured from there: in both forms it is how
    far workers have moved (Chen and Huo 2016, "Scalable training of deep learning machines by incremental
    block training with intra-block parallel optimization and blockwise model-update filtering", eqs. 4–9; so
    do CNTK, fairseq and Horovod). W + momentum·Δ then goes as with Nesterov's momentum on the mean deltas.
    """

    def step(mean: Any, state: State, parameters: Any, plain: Any = None) -> tuple[Vector, State]:
        age, delta = state
        delta = momentum * delta + rate * mean
        return delta, (age, delta)

    ahead = (lambda state: momentum * state[1]) if nesterov else None
    return Transformation((Age(), 0.0), step, ahead=ahead)


def _transformation(
    name: str,
    rate: float,
    momentum: float | None,
    factor: Callable[[int], float] | None,
    weight_decay: float = 0.0,
) -> Transformation:
    if momentum is None:
        momentum = 0.0 if name == "sgd" else 0.9
    if name == "sgd" and not momentum and factor is None and not weight_decay:

        def plainly(
            gradient: Any, state: State, parameters: Any, plain: Any = None
        ) -> tuple[Multiple, State]:
            return -rate * multiple(gradient), state

        return Transformation((Age(),), plainly, rate)
    coupled = bool(weight_decay) and name != "adamw"
    count, direction = _DIRECTIONS["momentum" if name == "sgd" and momentum else name]

    def step(gradient: Any, state: State, parameters: Any, plain: Any = None) -> tuple[Multiple, State]:
        age, *moments = state
        g, size = multiple(gradient), multiple(gradient if plain is None else plain)
        if coupled:
            g, size = (multiple(each + Multiple(weight_decay, parameters)) for each in (g, size))
        towards, kept = direction(g, size, moments, age.state, momentum)
        if weight_decay and not coupled:
            towards = towards + Multiple(weight_decay, parameters)
        now = rate if factor is None else rate * factor(age.job)
        return -now * multiple(towards), (Age(age.job + 1, age.state + 1), *kept)

    made = Transformation((Age(), *[0.0] * count), step, rate, normalises=name in _NORMALISING)
    return made if factor is None else made._replace(rate=factor)


def _clipping(inner: Transformation, most: float) -> Transformation:
    """As `inner`, of gradients whose norm is at most `most`, to six digits: as in torch."""

    def factor(norm: float) -> float:
        return min(1.0, most / (norm + 1e-6))

    def step(gradient: Any, state: State, parameters: Any, plain: Any = None) -> tuple[Any, State]:
        g = multiple(gradient)
        by = factor(g.norm())
        return inner.step(by * g, state, parameters, plain if plain is None else by * multiple(plain))

    return inner._replace(step=step, clipping=Clipping(factor, inner.step))


# Each: (gradient, the one whose size counts, both multiples, moments, steps that they have seen, momentum) →
# (direction to descend along, moments).


def _sgd(g: Any, size: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    return g, ()


def _momentum(g: Any, size: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    """Polyak 1964."""
    v = mu * moments[0] + g
    return v, (v,)


def _nesterov(g: Any, size: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    """Nesterov 1983, with the parameters kept at the point that looks ahead (Sutskever et al. 2013, §2)."""
    v = mu * moments[0] + g
    return g + mu * v, (v,)


def _adagrad(g: Any, size: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    """Duchi et al. 2011; ε = 1e-10."""
    h = moments[0] + size * size
    return g / (h**0.5 + 1e-10), (h,)


def _rmsprop(g: Any, size: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    """Tieleman and Hinton 2012, with a decay of 0.99 and ε = 1e-8."""
    h = 0.99 * moments[0] + 0.01 * (size * size)
    return g / (h**0.5 + 1e-8), (h,)


def _adam(g: Any, size: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    """Kingma and Ba 2015, with β₁ the momentum, β₂ = 0.999, ε = 1e-8.

    AdamW is this with weights that decay by themselves (Loshchilov and Hutter 2019, algorithm 2).
    """
    m, v = mu * moments[0] + (1 - mu) * g, 0.999 * moments[1] + 0.001 * (size * size)
    return m / (1 - mu ** (made + 1)) / ((v / (1 - 0.999 ** (made + 1))) ** 0.5 + 1e-8), (m, v)


def _fedadam(g: Any, size: Any, moments: Any, made: int, mu: float) -> tuple[Any, Moments]:
    """FedAdam (Reddi et al. 2021, algorithm 2): β₂ = 0.99, τ = 1e-3 for ε, and no correction of the bias.

    Instead of that, v begins at τ² ("v₋₁ ≥ τ²"): at 0, as in Flower, first steps by small deltas are twice as
    long.
    """
    before = moments[1] if made else 1e-3**2
    m, v = mu * moments[0] + (1 - mu) * g, 0.99 * before + 0.01 * (size * size)
    return m / (v**0.5 + 1e-3), (m, v)


_DIRECTIONS: dict[str, tuple[int, Callable[[Any, Any, Any, int, float], tuple[Any, Moments]]]] = {
    "sgd": (0, _sgd),
    "momentum": (1, _momentum),
    "nesterov": (1, _nesterov),
    "adagrad": (1, _adagrad),
    "rmsprop": (1, _rmsprop),
    "adam": (2, _adam),
    "adamw": (2, _adam),
    "fedadam": (2, _fedadam),
}
_NORMALISING = ("adagrad", "rmsprop", "adam", "adamw", "fedadam")
