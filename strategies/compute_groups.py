"""Groups of workers that are synchronous inside, and asynchronous to each other."""

from typing import Annotated

from lockstep.strategies.bounds import Count, Steps
from lockstep.strategies.corrections import UpdateRule
from lockstep.strategies.factors import Offer, synchronisation
from lockstep.strategies.marks import AtMostWorkers
from lockstep.strategies.node import Message, Node
from lockstep.strategies.parameter_server import Shard
from lockstep.strategies.server_groups import SharedShard


@synchronisation(offers={Offer.ANSWERS}, copies=True, elastic=True)
async def barrier_of_groups(
    node: Node,
    rule: UpdateRule,
    *,
    groups: Annotated[Count, AtMostWorkers()] = 2,
    sync_period: Steps = 1,
) -> None:
    """A barrier for each of `groups` of consecutive workers: apply a group's mean when it is there.

    One group is synchronous, as many as workers are asynchronous; the mean staleness is groups − 1. Hadjis et
    al. 2016, "Omnivore: an optimizer for multi-device deep learning on CPUs and GPUs" (compute groups; from
    memory). A fast group makes more of an epoch's mini-batches.

    Where servers have copies (`cluster.servers.copies`) each of their groups has as many of the workers'
    groups, and after `sync_period` updates a copy is reconciled with its master (server_groups.py). These are
    SINGA's frameworks (Ooi et al. 2015): one group and one copy is Sandblaster, or AllReduce where servers
    are the workers' own; several groups and one copy Downpour; as many of both distributed Hogwild.
    Failure: a group waits for who is gone, or goes on without it, its mean over those who are there; or all
    go back to the last checkpoint.
    """
    shard, places = Shard(node, rule), {worker: place for place, worker in enumerate(node.workers)}
    group_of = {worker: places[worker] * groups // len(places) for worker in node.children}
    shared = SharedShard(node, shard, sync_period)
    members = {group: {w for w in group_of if group_of[w] == group} for group in group_of.values()}
    arrived: dict[int, list[Message]] = {group: [] for group in members}
    while True:
        message = await node.receive()
        if message.sender not in group_of:
            await shared.take_in(message)
            continue
        group = group_of[message.sender]
        if message.kind == "pull":
            await shard.answer(message.sender)
        elif message.kind in ("leave", "join"):  # what it has pushed of a round counts no longer
            arrived[group] = [push for push in arrived[group] if push.sender != message.sender]
            (members[group].add if message.kind == "join" else members[group].discard)(message.sender)
        else:
            arrived[group].append(message)
        pushes = arrived[group]
        if pushes and len(pushes) >= len(members[group]):
            arrived[group] = []
            await shard.mean_update(pushes)
            for push in pushes:
                await shard.answer(push.sender)
            await shared.updated()
