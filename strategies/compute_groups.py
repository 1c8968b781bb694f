"""Groups of workers that are synchronous inside, and asynchronous to each other."""

from typing import Annotated

from lockstep.strategies.bounds import Count
from lockstep.strategies.corrections import UpdateRule
from lockstep.strategies.factors import Offer, synchronisation
from lockstep.strategies.marks import AtMostWorkers
from lockstep.strategies.node import Message, Node
from lockstep.strategies.parameter_server import Shard


@synchronisation(offers={Offer.ANSWERS})
async def barrier_of_groups(
    node: Node, rule: UpdateRule, *, groups: Annotated[Count, AtMostWorkers()] = 2
) -> None:
    """A barrier for each of `groups` of consecutive workers: apply a group's mean when it is there.

    One group is synchronous, as many as workers are asynchronous; the mean staleness is groups − 1. Hadjis et
    al. 2016, "Omnivore: an optimizer for multi-device deep learning on CPUs and GPUs" (compute groups; from
    memory); SINGA's worker groups with one server group. A fast group makes more of an epoch's mini-batches.
    """
    shard, workers = Shard(node, rule), node.children
    group_of = {worker: place * groups // len(workers) for place, worker in enumerate(workers)}
    members = {group: [w for w in workers if group_of[w] == group] for group in group_of.values()}
    arrived: dict[int, list[Message]] = {group: [] for group in members}
    while True:
        message = await node.receive()
        group = group_of[message.sender]
        if message.kind == "pull":
            await shard.answer(message.sender)
        elif message.kind == "leave":
            members[group].remove(message.sender)
        else:
            arrived[group].append(message)
        pushes = arrived[group]
        if pushes and len(pushes) >= len(members[group]):
            arrived[group] = []
            await shard.mean_update(pushes)
            for push in pushes:
                await shard.answer(push.sender)
