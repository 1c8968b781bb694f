"""Stochastic gradient push: SGD with push-sum averages over a directed graph that changes at every step."""

from typing import Any

from lockstep.strategies.bounds import Graph
from lockstep.strategies.graphs import exchange
from lockstep.strategies.node import Contribution, Node, Vector
from lockstep.strategies.optimizers import Transformation
from lockstep.strategies.own_step import own_step
from lockstep.strategies.parameter_server import sum_of


async def sgp(node: Node, optimizer: Transformation, *, graph: Graph = "exponential") -> None:
    """x½ = x − η∇F(z); x ← P x½; w ← P w; z = x/w (Assran et al. 2019, algorithm 1).

    P at step k: keep a half, send the other to one worker of the `graph` (graphs.exchange), by default the
    one 2^(k mod ⌈lg n⌉) ahead: then everyone hears from one, w stays 1, and lg n steps average over all n
    workers, a power of two. Where some hear from several, or from none, w makes up for it. Sums are taken in
    the order of ranks. Failure: a worker that dies ends the run.
    """
    x, weight, version, state = node.initial_parameters(), 1.0, 0, optimizer.initial
    z = x
    while await node.next_batch_available():
        step, state = await own_step(node, optimizer, await node.gradient(z), state, z)
        x, weight, merged = await _push_sum(node, graph, x + step, weight, version)
        z, version = x / weight, version + 1
        await node.updated(version, z, [*merged, Contribution(node.rank, 0, 1)])


async def _push_sum(
    node: Node, graph: Any, x: Vector, weight: float, version: int
) -> tuple[Vector, float, list[Contribution]]:
    """P x and P w, and whose models were merged."""
    n, half = len(node.workers), x / 2
    if n == 1:
        return x, weight, []
    to, heard = exchange(graph, n, version)
    node.send(node.workers[to[node.index]], "half", half, version=version, weight=weight / 2)
    others = [await node.receive("half", node.workers[other]) for other in heard[node.index]]
    bodies = [half, *(other.body for other in others)]
    x = await node.apply(lambda: sum_of(bodies), (len(bodies) + 1) * half.nbytes)
    merged = [part for other in others for part in other.contributions(version)]
    return x, weight / 2 + sum(other.weight for other in others), merged
