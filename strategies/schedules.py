"""When a worker of a parameter server pulls and pushes, and what."""

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
