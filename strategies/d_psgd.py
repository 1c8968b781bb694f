"""D-PSGD: every worker averages its model with its neighbours' and takes a step of its own."""

from typing import TYPE_CHECKING, Any

from lockstep.strategies import kept
from lockstep.strategies.bounds import Graph
from lockstep.strategies.graphs import weights
from lockstep.strategies.node import Contribution, Message, Node, Vector
from lockstep.strategies.optimizers import Transformation, restored
from lockstep.strategies.own_step import own_step

if TYPE_CHECKING:
    from fractions import Fraction


async def d_psgd(node: Node, optimizer: Transformation, *, graph: Graph = "ring") -> None:
    """Decentralised parallel SGD: x_i ← Σ_j W_ij x_j − η∇F(x_i) (Lian et al. 2017, algorithm 1).

    The gradient is that at the model from before the averaging, so models travel while it is computed. Sums
    are taken in the order of ranks. Failure: each worker saves its model and its
    optimizer's state; after a crash all go on from the newest version that all have saved.
    """
    version, parameters, state = kept.begin(node, node.initial_parameters(), optimizer.initial)
    state = restored(state)
    indices = weights(graph, len(node.workers), node.index)
    row = {node.workers[index]: weight for index, weight in indices.items()}
    neighbours = [other for other in row if other != node.rank]
    while await node.next_batch_available():
        for other in neighbours:
            node.send(other, "model", parameters, version=version)
        step, state = await own_step(node, optimizer, await node.gradient(parameters), state, parameters)
        models = [await node.receive("model", other) for other in neighbours]
        parameters = await _average(node, row, parameters, models) + step
        merged = [part for model in models for part in model.contributions(version)]
        version += 1
        by = [*merged, Contribution(node.rank, 0, 1)]
        await kept.updated(node, version, parameters, by, parameters, state)


async def _average(node: Node, row: dict[int, "Fraction"], own: Vector, models: list[Message]) -> Vector:
    """Σ_j W_ij x_j, in the order of ranks."""

    def work() -> Vector:
        bodies: Any = {node.rank: own} | {model.sender: model.body for model in models}
        total: Any = sum(float(weight) * bodies[rank] for rank, weight in row.items())
        return total  # type: ignore[no-any-return]

    return await node.apply(work, (5 * len(row) - 1) * own.nbytes)  # `sum` begins with 0 + the first
