"""Learning rates that follow a schedule: those of torch.optim.lr_scheduler, by the job's steps."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import cos, pi
from typing import Literal

Decay = Literal["constant", "linear", "cosine", "step", "multi-step", "exponential", "inverse-sqrt"]
IN_STEPS: tuple[Decay, ...] = ("linear", "cosine", "step", "inverse-sqrt")  # that last for decay_steps
TO_A_FLOOR: tuple[Decay, ...] = ("linear", "cosine")
BY_GAMMA: tuple[Decay, ...] = ("step", "multi-step", "exponential")
_GAMMAS = {"exponential": 0.999}  # else 0.1; torch has none for this one


def schedule(
    decay: Decay,
    decay_steps: int,
    warmup_steps: int,
    milestones: Sequence[int],
    gamma: float | None,
    floor: float,
) -> Callable[[int], float] | None:
    """What the learning rate is multiplied by after t steps of the job; None: nothing, ever.

    `floor`: the least that linear and cosine come to. Steps of `decay` are counted after the warm-up.
    """
    if decay == "constant" and not warmup_steps:
        return None
    base = _GAMMAS.get(decay, 0.1) if gamma is None else gamma
    above: dict[str, Callable[[float], float]] = {
        "constant": lambda t: 1.0,
        "linear": lambda t: _between(floor, 1 - min(1.0, t / decay_steps)),
        "cosine": lambda t: _between(floor, (1 + cos(pi * min(1.0, t / decay_steps))) / 2),
        "step": lambda t: base ** int(t / decay_steps),
        "multi-step": lambda t: base ** bisect_right(milestones, t),
        "exponential": lambda t: base**t,
        "inverse-sqrt": lambda t: float((1 + t / decay_steps) ** -0.5),
    }
    after = above[decay]
    return lambda made: (made + 1) / warmup_steps if made < warmup_steps else after(made - warmup_steps)


def _between(floor: float, share: float) -> float:
    return floor + (1 - floor) * share
