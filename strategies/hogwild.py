"""Lock-free training in the memory of one host."""

from strategies.bounds import Rate
from strategies.node import Contribution, Node


async def hogwild(node: Node, *, learning_rate: Rate = 0.05) -> None:
    """HOGWILD!: every worker adds its steps to the shared parameters, component by component, without a lock.

    Niu et al. 2011, algorithm 1. An update of a component may be lost where two workers add to it at the same
    moment, and a read may see half of an addition: rare where gradients touch few components, for which the
    paper proves near-optimal convergence. Nobody waits. Unlike in the paper, a worker copies all parameters,
    not only those of its sample, and the learning rate does not decay. Failure: a worker that dies ends the
    run; half of an addition may be left in memory.
    """
    while await node.next_batch_available():
        parameters, before = await node.memory.read()
        gradient = await node.gradient(parameters)
        version = await node.memory.add(-learning_rate * gradient)
        await node.updated(version, parameters, [Contribution(node.rank, version - 1 - before, 1)])
