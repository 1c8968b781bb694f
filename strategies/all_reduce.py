"""Synchronous training without a server: every worker holds all parameters and sums the gradients.

Equal to one worker with the n-fold batch. Failure: a worker that dies ends the run.
"""

from typing import Literal

from strategies.bounds import Momentum, Rate
from strategies.collectives import ALGORITHMS
from strategies.node import Contribution, Node
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
    learning_rate: Rate = 0.05,
    momentum: Momentum = 0.0,
) -> None:
    """Every mini-batch: average the gradients over all workers, and take the same step everywhere."""
    optimizer = sgd(learning_rate=learning_rate, momentum=momentum)
    velocity = optimizer.initial
    parameters, version = node.initial_parameters(), 0
    while await node.next_batch_available():
        gradient = await node.gradient(parameters)
        total = await node.collective(ALGORITHMS[algorithm], gradient)
        step, velocity = optimizer.step(total / len(node.workers), velocity)
        parameters, version = parameters + step, version + 1
        await node.updated(version, parameters, [Contribution(node.rank, 0, 1)])
