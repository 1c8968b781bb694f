"""Synchronous training without a server: every worker holds all parameters and sums the gradients.

Equal to one worker with the n-fold batch. Failure: a worker that dies ends the run.
"""

from typing import Literal

from strategies.bounds import Momentum, Rate
from strategies.node import Contribution, Node, Vector
from strategies.parameter_server import shard_of
from strategies.rules import sgd


async def ring(node: Node, vector: Vector) -> Vector:
    """Sum a vector over all workers around a ring (Patarasuk and Yuan 2009).

    Reduce-scatter, then all-gather: 2(p−1) steps in which everyone sends M/p bytes to the next, hence
    2(p−1)/p·M/B + 2(p−1)·latency. The sum of a chunk starts at the worker of that chunk's number, so
    every worker ends with the same bits.
    """
    p, me = len(node.workers), node.index
    following, previous = node.workers[(me + 1) % p], node.workers[(me - 1) % p]
    chunks = [shard_of(vector, chunk, p) for chunk in range(p)]
    for step in range(2 * (p - 1)):
        sent = node.send(following, "ring", chunks[(me - step) % p])
        received = (await node.receive("ring", previous)).body
        assert received is not None
        chunk = (me - step - 1) % p
        chunks[chunk] = received + chunks[chunk] if step < p - 1 else received
        await sent
    return node.concatenate(chunks)


async def native(node: Node, vector: Vector) -> Vector:
    """Sum a vector over all workers with the engine's own collective (NCCL or gloo)."""
    return await node.all_reduce(vector)


ALGORITHMS = {"ring": ring, "native": native}


async def all_reduce(
    node: Node,
    *,
    algorithm: Literal["ring", "native"] = "ring",
    learning_rate: Rate = 0.05,
    momentum: Momentum = 0.0,
) -> None:
    """Every mini-batch: average the gradients over all workers, and take the same step everywhere."""
    optimizer = sgd(learning_rate=learning_rate, momentum=momentum)
    velocity = optimizer.initial
    parameters, version = node.initial_parameters(), 0
    while await node.next_batch_available():
        gradient = await node.gradient(parameters)
        total = await ALGORITHMS[algorithm](node, gradient)
        step, velocity = optimizer.step(total / len(node.workers), velocity)
        parameters, version = parameters + step, version + 1
        await node.updated(version, parameters, [Contribution(node.rank, 0, 1)])
