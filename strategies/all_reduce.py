"""Synchronous training without a server: every worker holds all parameters and sums the gradients.

Equal to one worker with the n-fold batch. Failure: a worker that dies ends the run.
"""

from typing import Any

from strategies.bounds import Fraction, Parts
from strategies.codecs import Codec, Encoder, Name, decode
from strategies.collectives import ALGORITHMS, Algorithm
from strategies.multiple import Multiple
from strategies.node import Contribution, Node, Vector
from strategies.optimizers import Transformation
from strategies.own_step import own_step
from strategies.parameter_server import sum_of
from strategies.placement import cut


async def all_reduce(
    node: Node,
    optimizer: Transformation,
    *,
    algorithm: Algorithm = "ring",
    buckets: Parts = 1,
    codec: Name = "none",
    codec_ratio: Fraction = 0.01,
    error_feedback: bool = True,
) -> None:
    """Every mini-batch: average the gradients over all workers, and take the same step everywhere.

    The gradient is summed in `buckets`, each as soon as the backward pass has made it (Li et al. 2020,
    "PyTorch distributed", §3.2.3): one travels while the next is computed.
    With a codec everyone sends its encoded gradient to all others instead, whatever the `algorithm`: sums of
    encoded vectors are not encoded (so does GRACE: Xu et al. 2021).
    """
    parameters, version = node.initial_parameters(), 0
    slices = cut(len(parameters), [1] * buckets)
    states = [optimizer.initial] * buckets
    steps: list[Any] = [None] * buckets
    encoders = [Encoder(node, Codec(codec, codec_ratio), error_feedback) for _ in slices]
    while await node.next_batch_available():
        ready = node.backward(parameters, slices)
        for bucket in reversed(range(buckets)):
            gradient = await ready[bucket]
            if codec == "none":
                total = await node.collective(ALGORITHMS[algorithm], gradient)
            else:
                total = await gather_encoded(node, encoders[bucket], gradient)
            mean = Multiple(1 / len(node.workers), total)
            steps[bucket], states[bucket] = await own_step(node, optimizer, mean, states[bucket])
        parameters, version = node.add_parts(parameters, slices, steps), version + 1
        await node.updated(version, parameters, [Contribution(node.rank, 0, 1)])


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
