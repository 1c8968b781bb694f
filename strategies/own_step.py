"""A step of a worker's own: it takes the worker's time, as an update takes the server's."""

from typing import Any

from lockstep.strategies.multiple import Multiple
from lockstep.strategies.node import Node, Vector
from lockstep.strategies.optimizers import State, Transformation
from lockstep.strategies.touched import passes_of_step


async def own_step(
    node: Node,
    optimizer: Transformation,
    gradient: Vector | Multiple,
    state: State,
    parameters: Vector,
    additions: int = 1,
) -> tuple[Any, State]:
    """What to add to the parameters, and the optimizer's state after it; to be added so many times."""
    passes = passes_of_step(optimizer, additions)
    return await node.apply(lambda: optimizer.step(gradient, state, parameters), passes * gradient.nbytes)
