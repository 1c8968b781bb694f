"""When a server applies what it was pushed, and when it answers.

A server serves its children: the workers, or the relays between (relays.py). A child that will push no more
says so ("leave"): a server that waits for K pushes then waits for as many as can still come.
"""

from collections.abc import Callable

from strategies.bounds import Count, Whole
from strategies.node import Message, Node
from strategies.parameter_server import Shard, count
from strategies.rules import Transformation


async def immediate(node: Node, rule: Transformation) -> None:
    """Asynchronous: apply every push as it arrives, and answer at once (Dean et al. 2012, §4.1).

    What a relay has summed is applied as one step: the sum, as if its workers' pushes had come one by one.
    """
    shard = Shard(node, rule)
    while True:
        message = await node.receive()
        if message.kind == "leave":
            continue
        if message.kind == "push":
            await shard.update([message], over=1)
        shard.answer(message.sender)


async def barrier(node: Node, rule: Transformation) -> None:
    """Synchronous: apply the mean of one push from every worker, then answer them all.

    The mean is taken in the order of ranks, not of arrival, so that the sum is the same in every run.
    """
    await barrier_in_chunks(node, rule)


async def barrier_in_chunks(node: Node, rule: Transformation, *, chunks: Count = 1) -> None:
    """A barrier for each of the `chunks` of a shard: the answer to one travels while the next is pushed."""
    parts = [Shard(node, rule, part, chunks) for part in range(chunks)]
    for _ in node.children:
        child = (await node.receive("pull")).sender
        for shard in parts:
            shard.answer(child)
    while True:
        arrived: list[list[Message]] = [[] for _ in parts]
        for _ in parts:
            shard, pushes = await _complete(node, parts, arrived)
            pushes.sort(key=lambda push: push.sender)
            contributions = await shard.apply(pushes, count(pushes))
            if all(other.version == shard.version for other in parts):
                whole = node.concatenate([other.parameters for other in parts])
                await node.updated(shard.version, whole, contributions)
            for child in node.children:
                shard.answer(child)


async def _complete(
    node: Node, parts: list[Shard], arrived: list[list[Message]]
) -> tuple[Shard, list[Message]]:
    """Wait until every child has pushed one and the same part."""
    while True:
        push = await node.receive("push")
        arrived[push.part].append(push)
        if len(arrived[push.part]) == len(node.children):
            return parts[push.part], arrived[push.part]


async def first_of_more(node: Node, rule: Transformation, *, backups: Whole = 1) -> None:
    """Backup workers: of n workers the first n − `backups` gradients of a version make the update.

    Late ones are dropped when they arrive, and their workers go on from the present version: Chen et al.
    2016, "Revisiting distributed synchronous SGD", §3; TensorFlow's accumulators do the same. Not for several
    shards: late at one and on time at another, workers could wait for ever, as in `every_k_workers`.
    """
    shard, members = Shard(node, rule), len(node.children)
    pushes: list[Message] = []
    while True:
        message = await node.receive()
        if message.kind == "pull":
            shard.answer(message.sender)
        elif message.kind == "leave":
            members -= 1
        elif message.version < shard.version:
            node.dropped(message)
            shard.answer(message.sender)
        else:
            pushes.append(message)
        if pushes and len(pushes) >= min(len(node.children) - backups, members):
            await shard.mean_update(pushes)
            for push in pushes:
                shard.answer(push.sender)
            pushes = []


async def first_k_workers(node: Node, rule: Transformation, *, k: Count = 1) -> None:
    """K-sync: the first `k` workers' gradients of a version make the update, which all get.

    Whoever still computes gives up (schedules.until_updated); what was already on its way is dropped. Dutta
    et al. 2018, "Slow and stale gradients can win the race", §2.
    """
    await _first(node, rule, lambda pushes, members: pushes >= min(k, members))


async def first_k_batches(node: Node, rule: Transformation, *, k: Count = 1) -> None:
    """K-batch-sync: as K-sync, with the first `k` gradients of a version, whoever made them.

    Who has pushed one goes on with another of the same version (schedules.restarting). Dutta et al. 2018, §2.
    """
    await _first(node, rule, lambda pushes, members: pushes >= k or not members)


async def _first(node: Node, rule: Transformation, enough: Callable[[int, int], bool]) -> None:
    """Update as soon as the pushes of a version are enough for so many members; then answer all members."""
    shard, members = Shard(node, rule), list(node.children)
    pushes: list[Message] = []
    while True:
        message = await node.receive()
        if message.kind == "pull":
            shard.answer(message.sender)
        elif message.kind == "leave":
            members.remove(message.sender)
        elif message.version < shard.version:
            node.dropped(message)
        else:
            pushes.append(message)
        if pushes and enough(len(pushes), len(members)):
            await shard.mean_update(pushes)
            for member in members:
                shard.answer(member)
            pushes = []


async def every_k_workers(node: Node, rule: Transformation, *, k: Count = 1) -> None:
    """K-async: update with the gradients of `k` different workers, who wait for it; none is cancelled.

    Dutta et al. 2018, §2. Not for several shards: each would wait for the k workers whose pushes came to it
    first, and with other workers waiting at every shard nobody is left to push.
    """
    shard, members = Shard(node, rule), len(node.children)
    pushes: list[Message] = []
    while True:
        message = await node.receive()
        if message.kind == "pull":
            shard.answer(message.sender)
        elif message.kind == "leave":
            members -= 1
        else:
            pushes.append(message)
        if pushes and len(pushes) >= min(k, members):
            await shard.mean_update(pushes)
            for push in pushes:
                shard.answer(push.sender)
            pushes = []


async def every_k_batches(node: Node, rule: Transformation, *, k: Count = 1) -> None:
    """K-batch-async: update with any `k` gradients; nobody waits. Dutta et al. 2018, §2."""
    shard, members = Shard(node, rule), len(node.children)
    pushes: list[Message] = []
    while True:
        message = await node.receive()
        if message.kind == "push":
            pushes.append(message)
        members -= message.kind == "leave"
        if len(pushes) == k or (pushes and not members):
            await shard.mean_update(pushes)
            pushes = []
        if message.kind != "leave":
            shard.answer(message.sender)


async def soft_sync(node: Node, rule: Transformation, *, n: Count = 1) -> None:
    """n-softsync: of λ workers, update with every c = ⌊λ/n⌋ gradients; nobody waits.

    Zhang, Gupta et al. 2016, "Staleness-aware async-SGD for distributed deep learning", eq. 5.
    """
    await every_k_batches(node, rule, k=max(1, len(node.workers) // n))


async def bounded(node: Node, rule: Transformation, *, bound: Whole = 3) -> None:
    """Stale synchronous parallel: apply every push as it arrives, but let nobody run ahead.

    A worker that has made c pushes gets its answer when all workers have made at least c − `bound` (Ho et al.
    2013, §3): its own updates are in it at once, and 0 is bulk-synchronous.
    """
    shard = Shard(node, rule)
    clocks = dict.fromkeys(node.children, 0)
    waiting: list[int] = []
    while True:
        message = await node.receive()
        if message.kind == "leave":
            del clocks[message.sender]
        else:
            waiting.append(message.sender)
        if message.kind == "push":
            clocks[message.sender] += 1
            await shard.update([message], over=1)
        slowest = min(clocks.values(), default=0)
        for worker in [worker for worker in waiting if clocks[worker] - bound <= slowest]:
            waiting.remove(worker)
            shard.answer(worker)
