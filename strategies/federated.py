"""Federated averaging: in each round the server calls some clients, who make whole epochs by themselves."""

from collections import Counter
from typing import Literal

from lockstep.strategies.bounds import Count, Fraction, NonNegative, Probability
from lockstep.strategies.corrections import UpdateRule
from lockstep.strategies.factors import Offer, synchronisation, worker_loop
from lockstep.strategies.node import Message, Node
from lockstep.strategies.optimizers import Transformation
from lockstep.strategies.own_step import own_step
from lockstep.strategies.parameter_server import ParameterServer, Shard
from lockstep.strategies.parts import cut


@worker_loop(needs={Offer.CALLS}, pushes="deltas", keeps=1)  # the server's model
async def fedavg(
    node: Node, server: ParameterServer, optimizer: Transformation, *, local_epochs: Count = 5
) -> None:
    """FedAvg's client: when chosen, `local_epochs` passes over its own samples from the server's model.

    McMahan et al. 2017, algorithm 1 (E = 5); with endless data a pass is one mini-batch. The optimizer
    starts afresh each time, but a learning rate's schedule goes by the round, as if the client had taken part
    in all rounds before.
    """
    await fedprox(node, server, optimizer, local_epochs=local_epochs, mu=0.0)


@worker_loop(needs={Offer.CALLS_FOR_LESS}, pushes="deltas", keeps=1)  # the server's model
async def fedprox(
    node: Node,
    server: ParameterServer,
    optimizer: Transformation,
    *,
    local_epochs: Count = 5,
    mu: NonNegative = 0.01,
) -> None:
    """As FedAvg, on the local loss + (μ/2)‖w − wₜ‖²: the gradient is g + μ(w − wₜ).

    Li et al. 2020, "Federated optimization in heterogeneous networks", eq. 2 and algorithm 2. How much of it
    a client does in a round is the server's to say: `partial_participants`. Who is called and finds no
    mini-batch leaves: others have used up the job's, those among them that were lost with who failed.
    """
    server.enlist()
    while (call := await server.called()) is not None and await node.next_batch_available():
        model, batches = call
        w, state = model, optimizer.afresh(server.versions[0] * local_epochs * node.epoch)
        while batches and await node.next_batch_available():
            gradient = await node.gradient(w)
            gradient = gradient + mu * (w - model) if mu else gradient
            step, state = await own_step(node, optimizer, gradient, state, w)
            w, batches = w + step, batches - 1
        await server.push(w - model)
    if call is not None:
        server.leave()


@synchronisation(offers={Offer.CALLS}, equal_steps=True, pooled=True, sharded=False, elastic=True)
async def participants(
    node: Node, rule: UpdateRule, *, local_epochs: Count = 5, participation: Fraction = 1.0
) -> None:
    """FedAvg's server: each round a random fraction of the clients, at least one, whose mean is taken.

    Weighted by the mini-batches in a pass over each client's samples (McMahan et al. 2017,
    "Communication-efficient learning of deep networks from decentralized data", algorithm 1). Who is not
    chosen waits. All clients make the job's mini-batches together, so cohorts stay as large until the end;
    the last round deals out what is left. Failure: the fraction is of those who are there; a round goes on
    without the clients that fail in it, as in Bonawitz et al. 2019, "Towards federated learning at scale".
    """
    await partial_participants(node, rule, local_epochs=local_epochs, participation=participation)


@synchronisation(offers={Offer.CALLS_FOR_LESS}, equal_steps=True, pooled=True, sharded=False, elastic=True)
async def partial_participants(
    node: Node,
    rule: UpdateRule,
    *,
    local_epochs: Count = 5,
    participation: Fraction = 1.0,
    sampling: Literal["uniform", "share"] = "uniform",
    partial_work: Probability = 0.0,
) -> None:
    """FedProx's server: as FedAvg's, but a fraction `partial_work` of a cohort makes fewer epochs.

    As many as it gets done: 1 to `local_epochs`, drawn at random (Li et al. 2020, §5.2; they have 0, 0.5 and
    0.9). `uniform` sampling with a weighted mean is that of their experiments (§5.1), as in McMahan et al.;
    with `share` each place of a cohort goes to a client with the probability of its share of the data, and
    the mean is plain: their algorithm 2, where who is drawn twice counts twice. Failure: as `participants`.
    """
    shard, left = Shard(node, rule), node.budget
    passes: dict[int, int] = {}  # of each client that is there
    unknown, awaited = {*node.children}, set[int]()  # who has not said so yet; who is at work
    pushes: list[Message] = []  # of the round

    async def hear() -> None:
        message = await node.receive()
        if message.kind == "push" and message.sender in awaited:
            pushes.append(message)
        elif message.kind == "push":
            shard.drop(message)
        elif message.kind == "pull":
            passes[message.sender] = message.batches
        else:
            passes.pop(message.sender, None)
        awaited.discard(message.sender)
        (unknown.add if message.kind == "join" else unknown.discard)(message.sender)

    while left is None or left > 0:
        while unknown or not passes or node.arrived():
            await hear()
        there = [client for client in node.children if client in passes]
        cohort = max(1, round(participation * len(there)))
        if sampling == "share":
            weights = Counter(node.rng.choices(there, [passes[client] for client in there], k=cohort))
        else:
            weights = Counter({client: passes[client] for client in node.rng.sample(there, cohort)})
        work = {client: local_epochs * passes[client] for client in sorted(weights)}
        for client in node.rng.sample([*work], round(partial_work * len(work))):
            work[client] = node.rng.randint(1, local_epochs) * passes[client]
        if left is not None and sum(work.values()) > left:
            parts = cut(left, [*work.values()])
            work = {c: part.stop - part.start for c, part in zip(work, parts, strict=True)}
            work = {client: batches for client, batches in work.items() if batches}
        pushes, awaited = [], {*work}
        for client, batches in work.items():
            await shard.answer(client, batches)
        while awaited:
            await hear()
        if pushes:
            pushes.sort(key=lambda push: push.sender)
            counts = [weights[push.sender] for push in pushes]
            await shard.update(pushes, over=sum(counts), weights=counts)
            left = None if left is None else left - sum(push.batches for push in pushes)

    for client in passes:
        node.send(client, "over")
    while True:  # who is back late is told, too
        late = await node.receive("pull")
        node.send(late.sender, "over")
