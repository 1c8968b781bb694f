"""Synchronous training without a server: every worker holds all parameters and sums the gradients.

Equal to one worker with the n-fold batch. Failure: worker 0 saves parameters and the
optimizer's state; after a crash all go on from there.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated

from lockstep.strategies import kept
from lockstep.strategies.bounds import Parts
from lockstep.strategies.clipping import clipped
from lockstep.strategies.codecs import SUMMABLE, Codec, Encoder, Feedback, Name, Ratio, Threshold
from lockstep.strategies.coded_sums import CodedSum
from lockstep.strategies.collectives import Algorithm
from lockstep.strategies.marks import BelongsTo
from lockstep.strategies.multiple import Multiple
from lockstep.strategies.node import Contribution, Node, Vector
from lockstep.strategies.optimizers import State, Transformation, restored
from lockstep.strategies.own_step import own_step
from lockstep.strategies.parts import cut


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
    while await node.next_batch_available():
        await replica.step(lambda bucket, gradient: sums[bucket].total(gradient))


class Replica:
    """A copy of parameters that are the same at all workers, and the optimizer's state of each bucket."""

    def __init__(self, node: Node, optimizer: Transformation, buckets: int) -> None:
        self.node, self.optimizer, self.clipping = node, optimizer.of_parts, optimizer.clipping
        self.version, self.parameters, states = kept.begin(
            node, node.initial_parameters(), [optimizer.initial] * buckets
        )
        self.slices = cut(len(self.parameters), [1] * buckets)
        self.states = [restored(state) for state in states]

    async def step(self, total: Callable[[int, Vector], Awaitable[Vector]]) -> None:
        """Step by the mean of everyone's gradients; `total(bucket, gradient)` sums those of a bucket."""
        node, steps = self.node, [None] * len(self.slices)
        ready = node.backward(self.parameters, self.slices)

        async def mean(bucket: int) -> Multiple:
            return Multiple(1 / len(node.workers), await total(bucket, await ready[bucket]))

        means = ((bucket, mean(bucket)) for bucket in reversed(range(len(self.slices))))
        async for bucket, gradient in clipped(node, self.clipping, means):
            steps[bucket], self.states[bucket] = await own_step(
                node, self.optimizer, gradient, self.states[bucket], self.parameters[self.slices[bucket]]
            )
        self.parameters = node.add_parts(self.parameters, self.slices, steps)
        self.version += 1
        by = Contribution(node.rank, 0, 1)
        await kept.updated(node, self.version, self.parameters, [by], self.parameters, tuple(self.states))

    @property
    def state(self) -> State:
        """The optimizer's state of all parameters; there has been a step."""
        age = self.states[0][0]
        return (age, *(self.node.concatenate(m) for m in zip(*(s[1:] for s in self.states), strict=True)))
