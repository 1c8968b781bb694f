"""Pipe-SGD: gradients are summed while the next ones are computed."""

from collections import deque
from collections.abc import Awaitable

from lockstep.strategies import kept
from lockstep.strategies.bounds import Whole
from lockstep.strategies.collectives import ALGORITHMS, Algorithm
from lockstep.strategies.multiple import Multiple
from lockstep.strategies.node import Contribution, Node, Vector
from lockstep.strategies.optimizers import Transformation, restored
from lockstep.strategies.own_step import own_step


async def pipe_sgd(
    node: Node, optimizer: Transformation, *, delay: Whole = 1, algorithm: Algorithm = "ring"
) -> None:
    """Step by the mean of everyone's gradients of `delay` mini-batches ago, which was summed meanwhile.

    Li et al. 2018, "Pipe-SGD: a decentralized pipelined SGD framework for distributed deep net training",
    algorithm 1 (from memory); their pipeline's width K is `delay` + 1, and they take K = 2. A step takes
    max(compute, sum) instead of compute + sum where the network is full, every gradient is `delay` updates
    old, and the last ones are waited for; 0 is `all-reduce`. The algorithm native is a ring here. Failure:
    worker 0 waits for the sums that are under way, and saves them, parameters and the optimizer's state;
    after a crash all go on from there.
    """
    version, parameters, state, *sums = kept.begin(node, node.initial_parameters(), optimizer.initial)
    state = restored(state)
    under_way: deque[Awaitable[Vector]] = deque(map(kept.Known, sums))
    more = True
    while more or under_way:
        if more := more and await node.next_batch_available():
            gradient = await node.gradient(parameters)
            under_way.append(node.begin_collective(ALGORITHMS[algorithm], gradient))
        if len(under_way) > (delay if more else 0):
            mean = Multiple(1 / len(node.workers), await under_way.popleft())
            step, state = await own_step(node, optimizer, mean, state, parameters)
            parameters, version = parameters + step, version + 1
            staleness = min(version - 1, delay)
            if await node.updated(version, parameters, [Contribution(node.rank, staleness, 1)]):
                sums = [await each for each in under_way]
                under_way = deque(map(kept.Known, sums))
                await node.save(version, (parameters, state, *sums))
