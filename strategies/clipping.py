"""Clipping a gradient that its user has in parts: the norm is that of the whole."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from lockstep.strategies.multiple import Multiple
from lockstep.strategies.node import Node, Vector
from lockstep.strategies.optimizers import Clipping


async def clipped(
    node: Node,
    clipping: Clipping | None,
    parts: Iterable[tuple[int, Awaitable[Multiple]]],
    everyone: Callable[[Vector], Awaitable[Vector]] | None = None,
) -> AsyncIterator[tuple[int, Multiple]]:
    """Numbered parts of a gradient, clipped once all are there; without `clipping` each as it comes.

    `everyone`: from a vector of this node's to those of all who have parts, end to end; None: it has all.
    """
    if clipping is None:
        for number, part in parts:
            yield number, await part
        return
    there = [(number, await part) for number, part in parts]
    squares = await node.apply(
        lambda: sum(part.norm() ** 2 for _, part in there), sum(part.nbytes for _, part in there)
    )
    if everyone is not None:
        squares = sum((await everyone(node.vector([squares]))).tolist())
    by = clipping.factor(squares**0.5)
    for number, gradient in there:
        yield number, by * gradient
