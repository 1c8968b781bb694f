"""Synchronous training without a server: every worker holds all parameters and sums the gradients.

Equal to one worker with the n-fold batch. Failure: worker 0 saves parameters and the optimizer's state; after
a crash all go on from there, or those who are there do the round again (shared_rounds.py).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from lockstep.strategies import kept
from lockstep.strategies.bounds import Parts
from lockstep.strategies.clipping import clipped
from lockstep.strategies.codecs import SUMMABLE, Codec, Encoder, Feedback, Name, Ratio, Threshold
from lockstep.strategies.coded_sums import CodedSum
from lockstep.strategies.collectives import Algorithm
from lockstep.strategies.marks import BelongsTo
from lockstep.strategies.multiple import Multiple
from lockstep.strategies.node import Contribution, Group, Node, Vector
from lockstep.strategies.optimizers import State, Transformation, restored
from lockstep.strategies.own_step import own_step
from lockstep.strategies.parts import cut
from lockstep.strategies.shared_rounds import SharedRounds


async def all_reduce(
    node: Node,
    optimizer: Transformation,
    *,
    algorithm: Annotated[Algorithm, BelongsTo("codec", SUMMABLE)] = "ring",
    buckets: Parts = 1,
    codec: Name = "none",
    codec_ratio: Ratio = 0.01,
    codec_threshold: Threshold = 0.5,
    error_feedback: Feedback = True,
) -> None:
    """Every mini-batch: average the gradients over all workers, and take the same step everywhere.

    The gradient is summed in `buckets`, each as soon as the backward pass has made it (Li et al. 2020,
    "PyTorch distributed", §3.2.3): one travels while the next is computed.
    What a codec sends is summed as coded_sums.py has it.
    """
    wire = Codec(codec, codec_ratio, codec_threshold)
    encoders = [Encoder(node, wire, error_feedback) for _ in range(buckets)]
    sums = [CodedSum(node, encoder, algorithm) for encoder in encoders]
    replica = Replica(node, optimizer, buckets)
    if node.goes_on:
        return await SharedRounds(node, Shared(replica, sums)).run()
    while await node.next_batch_available():
        await replica.step(lambda bucket, gradient: sums[bucket].total(gradient))


class Replica:
    """A copy of parameters that are the same at all workers, and the optimizer's state of each bucket."""

    def __init__(self, node: Node, optimizer: Transformation, buckets: int) -> None:
        self.node, self.optimizer, self.clipping = node, optimizer.of_parts, optimizer.clipping
        begun = kept.begin(node, node.initial_parameters(), [optimizer.initial] * buckets)
        self.version: int = begun[0]
        self.parameters: Vector = begun[1]
        self.slices = cut(len(self.parameters), [1] * buckets)
        self.states = [restored(state) for state in begun[2]]

    async def step(self, total: Callable[[int, Vector], Awaitable[Vector]]) -> None:
        """Step by the mean of everyone's gradients; `total(bucket, gradient)` sums those of a bucket."""
        steps, states = await self.mean_step(self.gradient(), total, len(self.node.workers))
        await self.take(steps, states, [Contribution(self.node.rank, 0, 1)])

    def gradient(self) -> Sequence[Awaitable[Vector]]:
        """That of the next mini-batch, bucket by bucket."""
        return self.node.backward(self.parameters, self.slices)

    async def mean_step(
        self, ready: Sequence[Any], total: Callable[[int, Vector], Awaitable[Vector]], adding: int
    ) -> tuple[list[Any], list[State]]:
        """The step of each bucket by the mean of so many gradients, and the states after it."""
        node, steps, states = self.node, [None] * len(self.slices), [*self.states]

        async def mean(bucket: int) -> Multiple:
            return Multiple(1 / adding, await total(bucket, await ready[bucket]))

        means = ((bucket, mean(bucket)) for bucket in reversed(range(len(self.slices))))
        async for bucket, gradient in clipped(node, self.clipping, means):
            steps[bucket], states[bucket] = await own_step(
                node, self.optimizer, gradient, states[bucket], self.parameters[self.slices[bucket]]
            )
        return steps, states

    async def take(
        self, steps: list[Any], states: list[State], by: Sequence[Contribution], *more: Any
    ) -> None:
        """Take a step; `more`: what is to be saved, too."""
        node, self.states = self.node, states
        self.parameters = node.add_parts(self.parameters, self.slices, steps)
        self.version += 1
        await kept.updated(
            node, self.version, self.parameters, by, self.parameters, tuple(self.states), *more
        )

    @property
    def state(self) -> State:
        """The optimizer's state of all parameters; there has been a step."""
        age = self.states[0][0]
        return (age, *(self.node.concatenate(m) for m in zip(*(s[1:] for s in self.states), strict=True)))


class Shared:
    """A replica as what is changed in rounds (shared_rounds.py)."""

    def __init__(self, replica: Replica, sums: Sequence[CodedSum]) -> None:
        self.replica, self.sums = replica, sums

    @property
    def version(self) -> int:
        """The replica's."""
        return self.replica.version

    @property
    def vector(self) -> Vector:
        """The parameters."""
        return self.replica.parameters

    @property
    def state(self) -> State:
        """These, and the optimizer's state of each bucket."""
        return self.replica.parameters, tuple(self.replica.states)

    def take_over(self, version: int, state: State, own: Any) -> None:
        """Be as another replica."""
        self.replica.version, (self.replica.parameters, states) = version, state
        self.replica.states = [restored(each) for each in states]
        self._done()

    @property
    def batches(self) -> int:
        """One."""
        return 1

    async def available(self) -> bool:
        """Whether there is a mini-batch."""
        return await self.replica.node.next_batch_available()

    async def compute(self) -> Any:
        """Begin to: a bucket travels while the next is computed."""
        self._done()  # with what it may have added before, which was nothing
        return self.replica.gradient()

    async def sum(self, own: Any, adding: int, among: Group) -> Any:
        """The step by the mean."""
        replica = self.replica
        nothing = [kept.Known(0.0 * replica.parameters[part]) for part in replica.slices]

        async def total(bucket: int, gradient: Vector) -> Vector:
            return await self.sums[bucket].again(gradient, among)

        return await replica.mean_step(own or nothing, total, adding)

    async def take(self, found: Any, own: Any, counts: State, staleness: int = 0) -> None:
        """Take it."""
        self._done()
        by = [Contribution(self.replica.node.rank, staleness, 1)] if own else []
        steps, states = found
        await self.replica.take(steps, states, by, counts)

    def _done(self) -> None:
        for each in self.sums:
            each.done()
