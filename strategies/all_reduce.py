"""Synchronous training without a server: every worker holds all parameters and sums the gradients.

Equal to one worker with the n-fold batch. Failure: a worker that dies ends the run.
"""

from strategies.bounds import Count
from strategies.collectives import ALGORITHMS, Algorithm
from strategies.node import Contribution, Node
from strategies.optimizers import Transformation
from strategies.placement import cut


async def all_reduce(
    node: Node, optimizer: Transformation, *, algorithm: Algorithm = "ring", buckets: Count = 1
) -> None:
    """Every mini-batch: average the gradients over all workers, and take the same step everywhere.

    The gradient is summed in `buckets`, each as soon as the backward pass has made it (Li et al. 2020,
    "PyTorch distributed", §3.2.3): one travels while the next is computed.
    """
    state = optimizer.initial
    parameters, version = node.initial_parameters(), 0
    slices = cut(len(parameters), [1] * buckets)
    while await node.next_batch_available():
        ready = node.backward(parameters, slices)
        sums = [await node.collective(ALGORITHMS[algorithm], await part) for part in reversed(ready)]
        total = node.concatenate(sums[::-1])
        step, state = optimizer.step(total / len(node.workers), state)
        parameters, version = parameters + step, version + 1
        await node.updated(version, parameters, [Contribution(node.rank, 0, 1)])
