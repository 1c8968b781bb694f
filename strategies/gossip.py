"""Gossip: now and then a worker pushes a share of its model to others, and goes on without an answer."""

from collections.abc import Sequence
from typing import Annotated

from lockstep.strategies.bounds import Count, Probability
from lockstep.strategies.marks import AtMostWorkers
from lockstep.strategies.node import Node
from lockstep.strategies.optimizers import Transformation
from lockstep.strategies.own_model import OwnModel
from lockstep.strategies.peers import Peers


async def gossip(
    node: Node,
    optimizer: Transformation,
    *,
    peers: Annotated[Count, AtMostWorkers(-1)] = 1,
    probability: Probability = 0.1,
) -> None:
    """GoSGD (Blot et al. 2016, algorithm 3): push-sum averages of the models with random workers.

    Weights a start at 1/n. After a mini-batch, with `probability`: share a equally between oneself and
    `peers` random others, and push (x, a) to them. Before a mini-batch, of all that has come:
    x ← (a x + a_s x_s)/(a + a_s), a ← a + a_s. What comes after the last one is merged too, so that no weight
    is lost. The paper has p = 0.01, for tens of thousands of mini-batches; 0.1 is one push every ten of them,
    as often as model averaging averages by default. Failure: see `OwnModel`. Nobody waits for who is gone, or
    pushes to it once that is known; what was pushed before is lost, and its weight with it, which only counts
    next to the others'. The next worker, in the order of ranks, pushes to who is back at once.
    """
    model = OwnModel(node, optimizer, weight=1 / len(node.workers))
    others = Peers(node)
    while await node.next_batch_available():
        while node.arrived():
            await _hear(node, model, others)
        await model.step(await node.gradient(model.parameters))
        if node.rng.random() < probability:
            _push(node, model, node.rng.sample(others.there, min(peers, len(others.there))))
    await model.end()
    node.spawn(_hear_late(node, model, others))


def _push(node: Node, model: OwnModel, chosen: Sequence[int]) -> None:
    model.weight /= len(chosen) + 1
    for peer in chosen:
        node.send(peer, "share", model.parameters, version=model.version, weight=model.weight)


async def _hear(node: Node, model: OwnModel, others: Peers) -> None:
    message = await node.receive()
    if message.kind == "share":
        await model.merge(message)
        model.weight += message.weight
    elif others.hear(message):
        _push(node, model, [message.sender])


async def _hear_late(node: Node, model: OwnModel, others: Peers) -> None:
    while True:
        await _hear(node, model, others)
