"""A piece of the model whose layers are cut between devices: segments, and what is exchanged between them.

A segment is what a device computes by itself. Where a layer's output is spread over the devices of a group
(`node.stage.group`), or each of them has a part of a sum, they meet before the next segment.
"""

from collections.abc import Awaitable, Callable, Sequence

from lockstep.strategies.collectives import all_gather, reduce_scatter, ring
from lockstep.strategies.exchanges import Exchange
from lockstep.strategies.node import Node, Vector

_COLLECTIVES = {"all-reduce": ring, "all-gather": all_gather, "reduce-scatter": reduce_scatter}


async def forward(
    node: Node, parameters: Vector, micro: int, inputs: Vector | None, chunk: int = 0
) -> Vector:
    """Forward through a piece of the model, segment by segment."""
    found = await _through(
        node,
        lambda given, segment: node.forward(parameters, micro, given, chunk, segment),
        node.stage.exchanges[chunk].forward,
        inputs,
    )
    assert found is not None
    return found


async def backward(
    node: Node, micro: int, error: Vector | None, chunk: int = 0
) -> tuple[Vector | None, Vector]:
    """Backward through it: the gradient of the loss with respect to what came in, and to its parameters."""
    gradient: list[Vector] = []

    async def do(given: Vector | None, segment: int) -> Vector | None:
        found, weights = await node.full_backward(micro, given, chunk, segment)
        gradient[:] = [weights]
        return found

    await _again(node, micro, chunk)
    return await _through(node, do, node.stage.exchanges[chunk].backward, error), gradient[0]


async def backward_inputs(node: Node, micro: int, error: Vector | None, chunk: int = 0) -> Vector | None:
    """As `backward`, but for the parameters' gradient, which nobody else waits for."""
    await _again(node, micro, chunk)
    return await _through(
        node,
        lambda given, segment: node.backward_inputs(micro, given, chunk, segment),
        node.stage.exchanges[chunk].backward,
        error,
    )


async def completed(node: Node, gradient: Vector, chunk: int = 0) -> Vector:
    """A piece's gradient, summed over the group where each has seen a part of the samples' values."""
    partial = node.stage.exchanges[chunk].partial
    if not partial:
        return gradient
    total = await node.collective(
        ring, node.concatenate([gradient[part] for part in partial]), node.stage.group
    )
    parts, start, summed = [], 0, 0
    for part in partial:
        after = summed + part.stop - part.start
        parts += [gradient[start : part.start], total[summed:after]]
        start, summed = part.stop, after
    return node.concatenate([*parts, gradient[start : len(gradient)]])


async def _again(node: Node, micro: int, chunk: int) -> None:
    """Forward again, if it did not keep what the backward pass needs, and cannot compute it by itself."""
    if node.stage.exchanges[chunk].again:
        exchanges = node.stage.exchanges[chunk].forward
        alone = [*exchanges[:-1], None]  # what the last comes to is not needed again
        await _through(node, lambda given, segment: node.recompute(micro, given, chunk, segment), alone, None)


async def _through(
    node: Node,
    do: Callable[[Vector | None, int], Awaitable[Vector | None]],
    exchanges: Sequence[Exchange | None],
    given: Vector | None,
) -> Vector | None:
    """What the last segment comes to; each is given what the exchange after the one before has come to."""
    late: Awaitable[Vector] | None = None  # what the segment after the next is given
    for segment, exchange in enumerate(exchanges):
        found = await do(given, segment)
        if late is not None:
            given, late = await late, None
        elif exchange is None or found is None:
            given = found
        elif exchange == "halo":
            given, late = None, _halo(node, found)
        else:
            given = await node.collective(_COLLECTIVES[exchange], found, node.stage.group)
    return given


def _halo(node: Node, vector: Vector) -> Awaitable[Vector]:
    """Send the first half to the device before, the second to the one behind; what those send, end to end."""
    group = node.stage.group
    assert group is not None
    me = group.ranks.index(node.rank)
    neighbours = [group.ranks[other] for other in (me - 1, me + 1) if 0 <= other < len(group.ranks)]
    length = len(vector) // len(neighbours)
    for place, neighbour in enumerate(neighbours):
        node.send(neighbour, "halo", vector[place * length : (place + 1) * length], part=-1)
    coming = [node.receive("halo", neighbour) for neighbour in neighbours]

    async def come() -> Vector:
        bodies = [(await each).body for each in coming]
        return node.concatenate([body for body in bodies if body is not None])

    return come()
