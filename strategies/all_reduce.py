"""Synchronous training without a server: every worker holds all parameters and sums the gradients.

Equal to one worker with the n-fold batch. Failure: a worker that dies ends the run.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from lockstep.strategies.bounds import Parts
from lockstep.strategies.codecs import SUMMABLE, Codec, Encoder, Feedback, Name, Ratio, decode
from lockstep.strategies.collectives import ALGORITHMS, Algorithm
from lockstep.strategies.marks import BelongsTo
from lockstep.strategies.multiple import Multiple
from lockstep.strategies.node import Contribution, Node, Vector
from lockstep.strategies.optimizers import State, Transformation
from lockstep.strategies.own_step import own_step
from lockstep.strategies.parameter_server import sum_of
from lockstep.strategies.placement import cut


async def all_reduce(
    node: Node,
    optimizer: Transformation,
    *,
    algorithm: Annotated[Algorithm, BelongsTo("codec", SUMMABLE)] = "ring",
    buckets: Parts = 1,
    codec: Name = "none",
    codec_ratio: Ratio = 0.01,
    error_feedback: Feedback = True,
) -> None:
    """Every mini-batch: average the gradients over all workers, and take the same step everywhere.

    The gradient is summed in `buckets`, each as soon as the backward pass has made it (Li et al. 2020,
    "PyTorch distributed", §3.2.3): one travels while the next is computed.
    What fp16 and bf16 send is summed as it is, every sum rounded anew (so does Horovod). What other codecs
    send cannot be summed: everyone sends it to all others, whatever the `algorithm` (so does GRACE: Xu et al.
    2021).
    """
    encoders = [Encoder(node, Codec(codec, codec_ratio), error_feedback) for _ in range(buckets)]

    async def total(bucket: int, gradient: Vector) -> Vector:
        encoder = encoders[bucket]
        if not encoder.codec.sums:
            return await gather_encoded(node, encoder, gradient)
        body = await node.collective(ALGORITHMS[algorithm], await encoder.encode(gradient))
        return await decode(node, body, encoder.codec, len(gradient))

    replica = Replica(node, optimizer, buckets)
    while await node.next_batch_available():
        await replica.step(total)


class Replica:
    """A copy of parameters that are the same at all workers, and the optimizer's state of each bucket."""

    def __init__(self, node: Node, optimizer: Transformation, buckets: int) -> None:
        self.node, self.optimizer = node, optimizer
        self.parameters, self.version = node.initial_parameters(), 0
        self.slices = cut(len(self.parameters), [1] * buckets)
        self.states = [optimizer.initial] * buckets

    async def step(self, total: Callable[[int, Vector], Awaitable[Vector]]) -> None:
        """Step by the mean of everyone's gradients; `total(bucket, gradient)` sums those of a bucket."""
        node, steps = self.node, [None] * len(self.slices)
        ready = node.backward(self.parameters, self.slices)
        for bucket in reversed(range(len(self.slices))):
            mean = Multiple(1 / len(node.workers), await total(bucket, await ready[bucket]))
            steps[bucket], self.states[bucket] = await own_step(
                node, self.optimizer, mean, self.states[bucket], self.parameters[self.slices[bucket]]
            )
        self.parameters = node.add_parts(self.parameters, self.slices, steps)
        self.version += 1
        await node.updated(self.version, self.parameters, [Contribution(node.rank, 0, 1)])

    @property
    def state(self) -> State:
        """The optimizer's state of all parameters; there has been a step."""
        age = self.states[0][0]
        return (age, *(self.node.concatenate(m) for m in zip(*(s[1:] for s in self.states), strict=True)))


async def gather_encoded(node: Node, encoder: Encoder, vector: Vector) -> Vector:
    """The sum over all workers of what is left of their vectors, in the order of ranks."""
    body, p = await encoder.encode(vector), len(node.workers)
    for distance in range(1, p):
        node.send(node.workers[(node.index + distance) % p], "encoded", body)
    bodies = [
        body if worker == node.rank else (await node.receive("encoded", worker)).body
        for worker in node.workers
    ]
    decoded: list[Any] = []
    for each in bodies:
        decoded.append(await decode(node, each, encoder.codec, len(vector)))  # type: ignore[arg-type]
    return await node.apply(lambda: sum_of(decoded), 3 * (p - 1) * vector.nbytes)
