"""Update rules: pure functions in the manner of optax.

An optimizer turns a gradient into a step to add to the parameters. The same one serves on a worker (local
steps) or on a server. A rule is what a server does with the update it was sent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from strategies.bounds import Momentum, Rate
from strategies.node import Vector

State = Any  # whatever the transformation wants back at its next call


class Transformation(NamedTuple):
    """`initial` is the state before the first call; `step(update, state)` gives (step to add, state)."""

    initial: State
    step: Callable[[Vector, State], tuple[Vector, State]]


def sgd(*, learning_rate: Rate = 0.05, momentum: Momentum = 0.0) -> Transformation:
    """Stochastic gradient descent: v ← momentum·v + g, step −learning_rate·v (Polyak 1964)."""

    def step(gradient: Vector, velocity: State) -> tuple[Vector, State]:
        if momentum:
            gradient = velocity = momentum * velocity + gradient
        return -learning_rate * gradient, velocity

    return Transformation(0.0, step)


def add() -> Transformation:
    """The worker has already scaled what it sends: add it as it is."""
    return Transformation(None, lambda update, state: (update, state))
