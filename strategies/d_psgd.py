"""D-PSGD: every worker averages its model with its neighbours' and takes a step of its own."""

from typing import TYPE_CHECKING, Any, cast

from lockstep.strategies import kept
from lockstep.strategies.bounds import Graph
from lockstep.strategies.graphs import weights
from lockstep.strategies.node import Contribution, Message, Node, Vector
from lockstep.strategies.optimizers import Transformation, restored
from lockstep.strategies.own_step import own_step
from lockstep.strategies.rounds import Rounds

if TYPE_CHECKING:
    from fractions import Fraction


async def d_psgd(node: Node, optimizer: Transformation, *, graph: Graph = "ring") -> None:
    """Decentralised parallel SGD: x_i ← Σ_j W_ij x_j − η∇F(x_i) (Lian et al. 2017, algorithm 1).

    The gradient is that at the model from before the averaging, so models travel while it is computed. Sums
    are taken in the order of ranks. Failure: each worker saves its model and its optimizer's state; after a
    crash all go on from the newest version that all have saved. Where the others go on, each is as if it had
    no edge to who is gone: its weight is the worker's own, so that W stays doubly stochastic among those who
    are there, and their mean moves by their steps alone (but for what some, not all, of its neighbours had of
    its last model). Who is back takes over a neighbour's model, and its round: see `Rounds`.
    """
    version, parameters, state = kept.begin(node, node.initial_parameters(), optimizer.initial)
    state = restored(state)
    indices = weights(graph, len(node.workers), node.index)
    row = {node.workers[index]: weight for index, weight in indices.items()}
    neighbours = [other for other in row if other != node.rank]
    rounds = Rounds(node, neighbours, version, "model", lambda: (parameters, 1.0))
    if (shown := await rounds.enter()) is not None:
        parameters = cast("Vector", shown.body)
    while await node.next_batch_available():
        number = await rounds.begin()
        for other in rounds.there:
            node.send(other, "model", parameters, version=number)
        step, state = await own_step(node, optimizer, await node.gradient(parameters), state, parameters)
        came = await rounds.take([(number, other) for other in rounds.there])
        models = [model for model in came if model.version == number and rounds.meets(model.sender, number)]
        parameters = await _average(node, row, parameters, models) + step
        merged = [part for model in models for part in model.contributions(number)]
        version += 1
        by = [*merged, Contribution(node.rank, 0, 1)]
        await kept.updated(node, version, parameters, by, parameters, state)
    rounds.end()


async def _average(node: Node, row: dict[int, "Fraction"], own: Vector, models: list[Message]) -> Vector:
    """Σ_j W_ij x_j, in the order of ranks; the own model has the weights of those of whom there is none."""
    bodies: Any = {model.sender: model.body for model in models}
    shares: dict[int, Any] = {rank: row[rank] for rank in bodies}
    shares[node.rank], bodies[node.rank] = 1 - sum(shares.values()), own

    def work() -> Vector:
        total: Any = sum(float(shares[rank]) * bodies[rank] for rank in sorted(shares))
        return total  # type: ignore[no-any-return]

    return await node.apply(work, (5 * len(shares) - 1) * own.nbytes)  # `sum` begins with 0 + the first
