"""Stochastic gradient push: SGD with push-sum averages over a directed graph that changes at every step."""

from typing import Any

from strategies.bounds import Momentum, Rate
from strategies.graphs import hop
from strategies.node import Contribution, Node
from strategies.rules import sgd


async def sgp(node: Node, *, learning_rate: Rate = 0.05, momentum: Momentum = 0.0) -> None:
    """x½ = x − η∇F(z); x ← P x½; w ← P w; z = x/w (Assran et al. 2019, algorithm 1).

    P at step k: keep a half, send the other to the worker 2^(k mod ⌈lg n⌉) ahead. So every worker sends and
    receives one model a step, w stays 1, and lg n steps average over all n workers, a power of two. Failure:
    a worker that dies ends the run.
    """
    optimizer = sgd(learning_rate=learning_rate, momentum=momentum)
    n, version, velocity = len(node.workers), 0, optimizer.initial
    x: Any = node.initial_parameters()
    weight, z = 1.0, x
    while await node.next_batch_available():
        step, velocity = optimizer.step(await node.gradient(z), velocity)
        x, merged = x + step, []
        if n > 1:
            x, weight, distance = x / 2, weight / 2, hop(version, n)
            node.send(node.workers[(node.index + distance) % n], "half", x, version=version, weight=weight)
            half = await node.receive("half", node.workers[(node.index - distance) % n])
            x = await node.apply(lambda a=x, b=half.body: a + b, 3 * x.nbytes)
            weight += half.weight
            merged = half.contributions(version)
        z, version = x / weight, version + 1
        await node.updated(version, z, [*merged, Contribution(node.rank, 0, 1)])
