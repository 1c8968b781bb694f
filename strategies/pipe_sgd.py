"""Pipe-SGD: gradients are summed while the next ones are computed."""

from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Any

from lockstep.strategies import kept
from lockstep.strategies.all_reduce import Replica, Shared
from lockstep.strategies.bounds import Whole
from lockstep.strategies.codecs import Codec, Encoder
from lockstep.strategies.coded_sums import CodedSum
from lockstep.strategies.collectives import ALGORITHMS, Algorithm
from lockstep.strategies.multiple import Multiple
from lockstep.strategies.node import Contribution, Group, Node, Vector
from lockstep.strategies.optimizers import State, Transformation, restored
from lockstep.strategies.own_step import own_step
from lockstep.strategies.shared_rounds import SharedRounds


async def pipe_sgd(
    node: Node, optimizer: Transformation, *, delay: Whole = 1, algorithm: Algorithm = "ring"
) -> None:
    """Step by the mean of everyone's gradients of `delay` mini-batches ago, which was summed meanwhile.

    Li et al. 2018, "Pipe-SGD: a decentralized pipelined SGD framework for distributed deep net training",
    algorithm 1 (from memory); their pipeline's width K is `delay` + 1, and they take K = 2. A step takes
    max(compute, sum) instead of compute + sum where the network is full, every gradient is `delay` updates
    old, and the last ones are waited for; 0 is `all-reduce`. The algorithm native is a ring here. Failure:
    worker 0 waits for the sums that are under way, and saves them, parameters and the optimizer's state;
    after a crash all go on from there. Or those who are there do the sum again (shared_rounds.py), of
    gradients that they keep: then one sum is under way at a time. Who is back adds nothing to its first
    round, beside which it computes a gradient for the next; those ahead are not saved.
    """
    if node.goes_on:
        replica, encoder = Replica(node, optimizer, 1), Encoder(node, Codec("none"))
        return await SharedRounds(node, Piped(replica, [CodedSum(node, encoder, algorithm)], delay)).run()
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


class Piped(Shared):
    """Rounds in which the next gradients are computed while those of one are summed (shared_rounds.py)."""

    def __init__(self, replica: Replica, sums: Sequence[CodedSum], delay: int) -> None:
        super().__init__(replica, sums)
        self._delay = delay
        # of later rounds: the version that each is computed at, and the gradient
        self._ahead: deque[tuple[int, Awaitable[Vector]]] = deque()

    async def available(self) -> bool:
        """Whether there is a gradient, or a mini-batch for one."""
        return bool(self._ahead) or await super().available()

    async def compute(self) -> Any:
        """The oldest gradient, once there are as many as the delay: at first, and after a failure."""
        self._done()
        while len(self._ahead) < max(1, self._delay) and await super().available():
            await self._begin()
        return self._ahead.popleft()

    async def _begin(self) -> None:
        if self._ahead:  # one after the other
            await self._ahead[-1][1]
        gradient = self.replica.node.begin_gradient(self.replica.parameters)
        self._ahead.append((self.version, gradient))

    async def sum(self, own: Any, adding: int, among: Group) -> Any:
        """The step by the mean, and meanwhile another gradient."""
        if own:
            await own[1]
        if len(self._ahead) < self._delay and await super().available():
            await self._begin()
        return await super().sum(own and [own[1]], adding, among)

    async def take(self, found: Any, own: Any, counts: State, staleness: int = 0) -> None:
        """Take it."""
        await super().take(found, own, counts, self.version - own[0] if own else 0)
