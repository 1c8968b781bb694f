"""Synchronous training without a server: every worker holds all parameters and sums the gradients.

Equal to one worker with the n-fold batch. Failure: a worker that dies ends the run.
"""

from typing import Literal

from strategies.bounds import Count, Momentum, Rate
from strategies.collectives import ALGORITHMS
from strategies.node import Contribution, Node
from strategies.placement import cut
from strategies.rules import sgd

Algorithm = Literal[
    "ring",
    "halving-doubling",
    "recursive-doubling",
    "binomial",
    "two-level",
    "parameter-server",
    "auto",
    "native",
]  # the keys of ALGORITHMS


async def all_reduce(
    node: Node,
    *,
    algorithm: Algorithm = "ring",
    buckets: Count = 1,
    learning_rate: Rate = 0.05,
    momentum: Momentum = 0.0,
) -> None:
    """Every mini-batch: average the gradients over all workers, and take the same step everywhere.

    The gradient is summed in `buckets`, each as soon as the backward pass has made it (Li et al. 2020,
    "PyTorch distributed", §3.2.3): one travels while the next is computed.
    """
    optimizer = sgd(learning_rate=learning_rate, momentum=momentum)
    velocity = optimizer.initial
    parameters, version = node.initial_parameters(), 0
    slices = cut(len(parameters), [1] * buckets)
    while await node.next_batch_available():
        ready = node.backward(parameters, slices)
        sums = [await node.collective(ALGORITHMS[algorithm], await part) for part in reversed(ready)]
        total = node.concatenate(sums[::-1])
        step, velocity = optimizer.step(total / len(node.workers), velocity)
        parameters, version = parameters + step, version + 1
        await node.updated(version, parameters, [Contribution(node.rank, 0, 1)])
