"""Stochastic gradient push: SGD with push-sum averages over a directed graph that changes at every step."""

from strategies.graphs import hop
from strategies.node import Contribution, Node, Vector
from strategies.optimizers import Transformation


async def sgp(node: Node, optimizer: Transformation) -> None:
    """x½ = x − η∇F(z); x ← P x½; w ← P w; z = x/w (Assran et al. 2019, algorithm 1).

    P at step k: keep a half, send the other to the worker 2^(k mod ⌈lg n⌉) ahead. So every worker sends and
    receives one model a step, w stays 1, and lg n steps average over all n workers, a power of two. Failure:
    a worker that dies ends the run.
    """
    x, weight, version, state = node.initial_parameters(), 1.0, 0, optimizer.initial
    z = x
    while await node.next_batch_available():
        step, state = optimizer.step(await node.gradient(z), state)
        x, weight, merged = await _push_sum(node, x + step, weight, version)
        z, version = x / weight, version + 1
        await node.updated(version, z, [*merged, Contribution(node.rank, 0, 1)])


async def _push_sum(
    node: Node, x: Vector, weight: float, version: int
) -> tuple[Vector, float, list[Contribution]]:
    """P x and P w, and whose model was merged."""
    n, half = len(node.workers), x / 2
    if n == 1:
        return x, weight, []
    distance = hop(version, n)
    following, previous = ((node.index + d) % n for d in (distance, -distance))
    node.send(node.workers[following], "half", half, version=version, weight=weight / 2)
    other = await node.receive("half", node.workers[previous])
    x = await node.apply(lambda: half + other.body, 3 * half.nbytes)
    return x, weight / 2 + other.weight, other.contributions(version)
