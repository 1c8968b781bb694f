"""When a worker of a parameter server pulls and pushes, and what: gradients.

Those that make local steps, and push deltas, are in local_steps.py.
"""

from collections.abc import Awaitable

from lockstep.strategies.bounds import Chunks, Unanswered
from lockstep.strategies.factors import Offer, worker_loop
from lockstep.strategies.node import Node
from lockstep.strategies.parameter_server import ParameterServer


@worker_loop(needs={Offer.ANSWERS})
async def every_batch(node: Node, server: ParameterServer) -> None:
    """Push the gradient of every mini-batch; the answer is the parameters for the next one."""
    parameters = await server.pull()
    while await node.next_batch_available():
        gradient = node.gradient(parameters)
        del parameters  # no memory for the old ones while the new ones come
        parameters = await server.push_pull(await gradient)
    server.leave()


@worker_loop(needs={Offer.ANSWERS})
async def in_chunks(node: Node, server: ParameterServer, *, chunks: Chunks = 1) -> None:
    """As `every_batch`, but push each of the `chunks` of a shard as soon as the backward pass has made it.

    Wait-free backpropagation (Zhang et al. 2017, "Poseidon", §3.1); and the parameters of one chunk come back
    while the next is pushed: with c chunks on full-duplex links (1 + 1/c)·max(M/B, N·M/(S·B)).
    """
    server.cut(chunks)
    as_made = sorted(range(len(server.parts)), key=lambda n: (server.parts[n][0].start, n), reverse=True)
    parameters = await server.pull()
    while await node.next_batch_available():
        ready, batches = server.backward(parameters), server.batches()
        del parameters  # see `every_batch`
        for number in as_made:
            await server.push_part(number, node.concatenate([await run for run in ready[number]]), batches)
        del ready
        parameters = await server.answers()
    server.leave()


@worker_loop(needs={Offer.K_WORKERS})
async def until_updated(node: Node, server: ParameterServer) -> None:
    """K-sync: push one gradient a version, or give it up when others have made the next version."""
    parameters = await server.pull()
    while await node.next_batch_available():
        gradient = await node.gradient_unless(parameters, "parameters")
        if gradient is None:
            server.batches()  # the one given up is in no push
        else:
            await server.push(gradient)
        del parameters, gradient  # see `every_batch`
        parameters = await server.answers()
    server.leave()


@worker_loop(needs={Offer.K_GRADIENTS}, keeps=1)  # a gradient that waits to be sent
async def restarting(node: Node, server: ParameterServer) -> None:
    """K-batch-sync: push one gradient after another, until there are new parameters to start afresh from.

    At most one waits to be sent: else a network slower than the workers would have ever more gradients of an
    old version to carry before the first of a new one.
    """
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
        leaving = await server.push(gradient)
    server.leave()


@worker_loop(needs={Offer.ANSWERS, Offer.AHEAD}, keeps=1)  # a gradient that waits to be sent
async def pipelined(node: Node, server: ParameterServer, *, bound: Unanswered = 3) -> None:
    """Bounded delay: go on computing while up to `bound` of the own pushes are not answered yet.

    Li et al. 2014, "Scaling distributed machine learning with the parameter server", §3.4: a task waits until
    all that are more than `bound` older have finished; 0 is sequential. Always from the newest answer.
    """
    parameters, under_way = await server.pull(), 0
    while await node.next_batch_available():
        await server.push(await node.gradient(parameters))
        under_way += 1
        while under_way > bound or (under_way and node.arrived("parameters")):
            parameters = await server.answers()
            under_way -= 1
    for _ in range(under_way):
        await server.answers()
    server.leave()
