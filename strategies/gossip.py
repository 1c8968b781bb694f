"""Gossip: now and then a worker pushes a share of its model to others, and goes on without an answer."""

from typing import Annotated

from lockstep.strategies.bounds import Count, Probability
from lockstep.strategies.marks import AtMostWorkers
from lockstep.strategies.node import Node
from lockstep.strategies.optimizers import Transformation
from lockstep.strategies.own_model import OwnModel


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
    as often as model averaging averages by default. Failure: see `OwnModel`.
    """
    model = OwnModel(node, optimizer, weight=1 / len(node.workers))
    others = [worker for worker in node.workers if worker != node.rank]
    while await node.next_batch_available():
        while node.arrived("share"):
            await _merge(node, model)
        await model.step(await node.gradient(model.parameters))
        if node.rng.random() < probability:
            chosen = node.rng.sample(others, min(peers, len(others)))
            model.weight /= len(chosen) + 1
            for peer in chosen:
                node.send(peer, "share", model.parameters, version=model.version, weight=model.weight)
    await model.end()
    node.spawn(_merge_late(node, model))


async def _merge(node: Node, model: OwnModel) -> None:
    share = await node.receive("share")
    await model.merge(share)
    model.weight += share.weight


async def _merge_late(node: Node, model: OwnModel) -> None:
    while True:
        await _merge(node, model)
