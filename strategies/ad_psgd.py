"""AD-PSGD: every worker averages its model with one random neighbour's, and nobody waits for the slow."""

from lockstep.strategies.bounds import Graph
from lockstep.strategies.graphs import bipartite
from lockstep.strategies.node import Node
from lockstep.strategies.optimizers import Transformation
from lockstep.strategies.own_model import OwnModel
from lockstep.strategies.peers import Peers


async def ad_psgd(node: Node, optimizer: Transformation, *, graph: Graph = "ring") -> None:
    """Asynchronous decentralised parallel SGD (Lian et al. 2018, algorithm 1).

    Each mini-batch: x_i, x_j ← (x_i + x_j)/2 with a random neighbour j, then x_i ← x_i − η∇F(x̂_i), where
    x̂_i was read before the averaging, which goes on while the gradient is computed. Only workers on one
    side of a bipartite graph ask, and those on the other answer at once, or some could wait for each other
    for ever; edges of `graph` inside the sides are left out. Both models go to the same mean, so that their
    sum stays.
    Failure: see `OwnModel`. Who has asked one that is gone goes on without an answer once that is known, or
    it is back, and asks others meanwhile; the sum is another then.
    """
    model = OwnModel(node, optimizer)
    links, asks = bipartite(graph, len(node.workers))
    partners = Peers(node, [node.workers[index] for index in links[node.index]] if asks[node.index] else [])
    answers = not partners.there
    if answers:
        node.spawn(_answer(node, model))
    while await node.next_batch_available():
        while not answers and node.arrived():
            await _hear(node, model, partners)
        asked = node.rng.choice(partners.there) if partners.there else None
        if asked is not None:
            node.send(asked, "ask", model.parameters, version=model.version, weight=model.weight)
        gradient = await node.gradient(model.parameters)
        while asked is not None and await _hear(node, model, partners) != asked:
            pass
        await model.step(gradient)
    await model.end()


async def _hear(node: Node, model: OwnModel, partners: Peers) -> int:
    """Take in an answer, or that a partner leaves or joins; who owes none any more."""
    message = await node.receive()
    if message.kind == "answer":
        await model.merge(message)
        model.weight = 1.0
    else:
        partners.hear(message)
    return message.sender


async def _answer(node: Node, model: OwnModel) -> None:
    """Average with each model that comes; answer with the own one as it was, for its sender to average."""
    while True:
        asked, weight = await node.receive("ask"), model.weight
        before, version = await model.merge(asked)
        node.send(asked.sender, "answer", before, version=version, weight=weight)
        model.weight = 1.0
