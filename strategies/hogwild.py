"""Lock-free training in the memory of one host."""

from lockstep.strategies.node import Contribution, Node
from lockstep.strategies.optimizers import Transformation


async def hogwild(node: Node, optimizer: Transformation) -> None:
    """HOGWILD!: every worker adds its steps to the shared parameters, component by component, without a lock.

    Niu et al. 2011, algorithm 1. An update of a component may be lost where two workers add to it at the same
    moment, and a read may see half of an addition: rare where gradients touch few components, for which the
    paper proves near-optimal convergence. Nobody waits. The paper's steps are SGD's, at a rate that falls
    after each epoch; here every worker has an optimizer, with a state of its own, and copies all parameters,
    not only those of its sample. Failure: a worker that dies ends the run; half of an addition may be left in
    memory.
    """
    state = optimizer.initial
    while await node.next_batch_available():
        parameters, before = await node.memory.read()
        step, state = optimizer.step(await node.gradient(parameters), state, parameters)
        version = await node.memory.add(0 + step)
        await node.updated(version, parameters, [Contribution(node.rank, version - 1 - before, 1)])
