"""When a worker of a parameter server pulls and pushes, and what."""

from collections.abc import Awaitable
from typing import Any

from strategies.bounds import Count, Momentum, Rate
from strategies.node import Node
from strategies.parameter_server import ParameterServer
from strategies.rules import sgd


async def every_batch(node: Node) -> None:
    """Push the gradient of every mini-batch; the answer is the parameters for the next one."""
    server = ParameterServer(node)
    parameters = await server.pull()
    while await node.next_batch_available():
        gradient = await node.gradient(parameters)
        parameters = await server.push_pull(gradient)
    server.leave()


async def in_chunks(node: Node, *, chunks: Count = 1) -> None:
    """As `every_batch`, but push each of the `chunks` of a shard as soon as the backward pass has made it.

    Wait-free backpropagation (Zhang et al. 2017, "Poseidon", §3.1); and the parameters of one chunk come back
    while the next is pushed: with c chunks on full-duplex links (1 + 1/c)·max(M/B, N·M/(S·B)).
    """
    server = ParameterServer(node, chunks)
    parameters = await server.pull()
    while await node.next_batch_available():
        ready = node.backward(parameters, server.slices)
        batches = server.batches()
        for number in reversed(range(len(ready))):
            server.push_part(number, await ready[number], batches)
        parameters = await server.answers()
    server.leave()


async def until_updated(node: Node) -> None:
    """K-sync: push one gradient a version, or give it up when others have made the next version."""
    server = ParameterServer(node)
    parameters = await server.pull()
    while await node.next_batch_available():
        gradient = await node.gradient_unless(parameters, "parameters")
        if gradient is None:
            server.batches()  # the one given up is in no push
        else:
            server.push(gradient)
        parameters = await server.answers()
    server.leave()


async def restarting(node: Node) -> None:
    """K-batch-sync: push one gradient after another, until there are new parameters to start afresh from.

    At most one waits to be sent: else a network slower than the workers would have ever more gradients of an
    old version to carry before the first of a new one.
    """
    server = ParameterServer(node)
    parameters = await server.pull()
    leaving: list[Awaitable[None]] = []
    while await node.next_batch_available():
        gradient = await node.gradient_unless(parameters, "parameters")
        if gradient is None:
            server.batches()  # the one given up is in no push
            parameters = await server.answers()
            continue
        for sent in leaving:
            await sent
        leaving = server.push(gradient)
    server.leave()


async def downpour(
    node: Node, *, communication_window: Count = 5, learning_rate: Rate = 0.05, momentum: Momentum = 0.0
) -> None:
    """DOWNPOUR: local steps; every `communication_window` of them, push their sum and pull.

    Dean et al. 2012, algorithm 7.1 with n_push = n_fetch = the window. Local momentum is kept across
    windows. A last window cut short by the end of the run is pushed as it is.
    """
    server = ParameterServer(node)
    optimizer = sgd(learning_rate=learning_rate, momentum=momentum)
    velocity = optimizer.initial
    parameters = await server.pull()
    while await node.next_batch_available():
        total: Any = 0
        for _ in range(communication_window):
            step, velocity = optimizer.step(await node.gradient(parameters), velocity)
            parameters, total = parameters + step, total + step
            if not await node.next_batch_available():
                break
        parameters = await server.push_pull(total)
    server.leave()


async def averaging(
    node: Node, *, averaging_period: Count = 10, learning_rate: Rate = 0.05, momentum: Momentum = 0.0
) -> None:
    """Model averaging: `averaging_period` local steps, then everyone goes on from the mean of all models.

    What is pushed is how far the model has moved; the mean of the moves leads to the mean of the models.
    Local momentum is kept.
    """
    await downpour(
        node, communication_window=averaging_period, learning_rate=learning_rate, momentum=momentum
    )
