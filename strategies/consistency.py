"""When a server applies what it was pushed, and when it answers.

A server serves its children: the workers, or the relays between (relays.py). A child that will push no more
says so ("leave"): a server that waits for K pushes then waits for as many as can still come.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from lockstep.strategies import relays
from lockstep.strategies.bounds import (
    Chunks,
    Clocks,
    Count,
    Momentum,
    Rate,
    Updates,
    Whole,
)
from lockstep.strategies.corrections import UpdateRule
from lockstep.strategies.factors import AT_ANY_TIME, Offer, synchronisation
from lockstep.strategies.marks import AtMostWorkers
from lockstep.strategies.node import Contribution, Message, Node
from lockstep.strategies.optimizers import Transformation, server_optimizer
from lockstep.strategies.optimizers import block_momentum as block_momentum_of
from lockstep.strategies.parameter_server import Shard, count


@synchronisation(offers=AT_ANY_TIME | {Offer.AT_ONCE}, elastic=True, relay=relays.combine)
async def immediate(node: Node, rule: UpdateRule, *, warm_start: Updates = 0) -> None:
    """Asynchronous: apply every push as it arrives, and answer at once (Dean et al. 2012, §4.1).

    What a relay has summed is applied as one step: the sum, as if its workers' pushes had come one by one.
    With a warm start the first worker (or relay) makes so many updates alone: the others' first pull is
    answered after that ("starting with a single model replica", §5). Failure: others notice nothing.
    """
    if warm_start:
        return await every_k_batches(node, rule, k=1, warm_start=warm_start)
    shard = Shard(node, rule)
    while True:
        message = await node.receive()
        if message.kind in ("push", "commit"):
            await shard.update([message], over=1)
        if message.kind in ("push", "pull"):
            await shard.answer(message.sender)
        del message  # its body lies where its sender puts the next one


def _wants_answer(message: Message) -> bool:
    return message.kind in ("pull", "push")


@synchronisation(
    offers={Offer.ANSWERS, Offer.AVERAGES_ALONG}, equal_steps=True, elastic=True, relay=relays.gather
)
async def barrier(node: Node, rule: UpdateRule) -> None:
    """Synchronous: apply the mean of one push from every worker, then answer them all.

    The mean is taken in the order of ranks, not of arrival, so that the sum is the same in every run.
    Failure: the round waits for who is gone, or goes on without it, its mean over those who are there.
    """
    await barrier_in_chunks(node, rule)


@synchronisation(
    offers={Offer.ANSWERS, Offer.AVERAGES_ALONG},
    equal_steps=True,
    elastic=True,
    relay=relays.gather_in_chunks,
)
async def barrier_in_chunks(node: Node, rule: UpdateRule, *, chunks: Chunks = 1) -> None:
    """A barrier for each of the `chunks` of a shard: the answer to one travels while the next is pushed.

    Parts beyond those are vectors that workers have averaged along with the parameters; they begin at 0.
    Failure: as `barrier`; what who is gone has pushed of the round counts no longer.
    """
    parts = [Shard(node, rule, part, chunks) for part in range(chunks)]

    async def pulled(pull: Message) -> None:
        for shard in parts:
            await shard.answer(pull.sender)

    await barrier_of_parts(node, parts, pulled, lambda part: _along(node, rule, part))


async def barrier_of_parts(
    node: Node,
    parts: Sequence[Shard],
    pulled: Callable[[Message], Awaitable[None]],
    along: Callable[[int], Shard] | None = None,
) -> None:
    """A barrier for each part of a shard; they come to a version one by one, and then have it together.

    pulled: answers a pull, before which a part need not be there yet; along: makes a vector beyond the parts.
    Who begins anew when some parts have come to the next version takes part in the others, and is answered
    for those at once. A mini-batch counts where all parts have a push of its worker.
    """
    members = set(node.children)
    beyond: dict[int, Shard] = {}
    arrived: dict[int, list[Message]] = {}
    counted: list[Contribution] = []
    ahead = set[int]()  # parts that have come to the next version, and what goes along with it
    done = 0  # of the parts themselves
    late: dict[int, set[int]] = {}  # of who began anew then: those to which its next push comes too late

    def of(number: int) -> Shard:
        if number < len(parts):
            return parts[number]
        if number not in beyond and along is not None:
            beyond[number] = along(number)
        return beyond[number]

    while True:
        message = await node.receive()
        touched: Sequence[int] = ()
        if message.kind in ("leave", "join"):  # what it has pushed of a round counts no longer
            arrived = {n: [p for p in pushes if p.sender != message.sender] for n, pushes in arrived.items()}
            (members.add if message.kind == "join" else members.discard)(message.sender)
            late[message.sender] = {*ahead}
            touched = [*arrived] if message.kind == "leave" else ()
        elif message.kind == "pull":
            await pulled(message)
        elif message.part in late.get(message.sender, ()):
            late[message.sender].remove(message.part)
            await of(message.part).answer(message.sender)
        else:
            arrived.setdefault(message.part, []).append(message)
            touched = (message.part,)
        for number in touched:
            if len(arrived[number]) < max(1, len(members)):
                continue
            pushes = arrived.pop(number)
            shard = of(number)
            pushes.sort(key=lambda push: push.sender)
            contributions = await shard.apply(pushes, count(pushes))
            answered = [push.sender for push in pushes]
            del pushes
            if number < len(parts):
                those = {each.worker for each in counted} if done else set()
                counted = [each for each in contributions if each.worker in those] if done else contributions
                done += 1
            ahead.add(number)
            if done == len(parts):
                done = 0
                ahead.clear()
                whole = node.concatenate([other.parameters for other in parts])
                if await node.updated(shard.version, whole, counted):
                    await node.save(shard.version, tuple(other.kept for other in parts))
            for worker in answered:
                await shard.answer(worker)
        del message  # see `immediate`


def _along(node: Node, rule: UpdateRule, part: int) -> Shard:
    """What is averaged along as that part: sums are added, whatever is done to the parameters."""
    shard = Shard(node, UpdateRule(server_optimizer(), codec=rule.codec))
    shard.part, shard.parameters = part, 0.0 * shard.parameters
    return shard


@synchronisation(offers={Offer.CENTRE}, equal_steps=True, elastic=True, relay=relays.gather)
async def centre(node: Node, rule: UpdateRule) -> None:
    """EASGD: a barrier; what it answers is the centre, and not where a worker goes on (Zhang et al. 2015).

    Failure: as `barrier`; who is back begins with the centre.
    """
    await barrier(node, rule)


def most_of(workers: int) -> int:
    """The default `k`: three quarters of the workers, rounded up."""
    return -(-3 * workers // 4)


@synchronisation(offers={Offer.ANSWERS}, sharded=False, elastic=True)
async def first_of_more(
    node: Node, rule: UpdateRule, *, backups: Annotated[Whole, AtMostWorkers(-1)] = 1
) -> None:
    """Backup workers: of n workers the first n − `backups` gradients of a version make the update.

    Late ones are dropped when they arrive, and their workers go on from the present version: Chen et al.
    2016, "Revisiting distributed synchronous SGD", §3; TensorFlow's accumulators do the same. Not for several
    shards: late at one and on time at another, workers could wait for ever, as in `every_k_workers`.
    Failure: as many as `backups` may be gone, and nobody waits; of fewer members all are waited for.
    """
    workers = len(node.children)
    await _waiting(node, rule, lambda members: min(workers - backups, members), drops_late=True)


@synchronisation(offers={Offer.K_WORKERS}, equal_steps=True, elastic=True)
async def first_k_workers(
    node: Node, rule: UpdateRule, *, k: Annotated[Count | None, AtMostWorkers()] = None
) -> None:
    """K-sync: the first `k` workers' gradients of a version make the update, which all get.

    Workers that still compute give up (worker_loops.until_updated); gradients on their way are dropped.
    Dutta et al. 2018, "Slow and stale gradients can win the race", §2. Failure: nobody waits while `k` are
    there, and for all members, if they are fewer.
    """
    wanted = k or most_of(len(node.workers))
    await _first(node, rule, lambda pushes, members: pushes >= min(wanted, members), once=True)


@synchronisation(offers={Offer.K_GRADIENTS}, elastic=True)
async def first_k_batches(node: Node, rule: UpdateRule, *, k: Count | None = None) -> None:
    """K-batch-sync: as K-sync, with the first `k` gradients of a version, whoever made them.

    Who has pushed one goes on with another of the same version (worker_loops.restarting).
    Dutta et al. 2018, §2. Failure: the others make the `k` gradients.
    """
    wanted = k or most_of(len(node.workers))
    await _first(node, rule, lambda pushes, members: pushes >= wanted or not members, once=False)


async def _first(node: Node, rule: UpdateRule, enough: Callable[[int, int], bool], once: bool) -> None:
    """Update as soon as the pushes of a version are enough for so many members; then answer all members.

    once: each has one push in a version, and who begins anew in it makes that again.
    """
    shard, members = Shard(node, rule), list(node.children)
    pushes: list[Message] = []
    while True:
        message = await node.receive()
        if message.kind == "pull":
            await shard.answer(message.sender)
        elif message.kind in ("leave", "join"):
            there = {*members, message.sender} if message.kind == "join" else {*members} - {message.sender}
            members = [child for child in node.children if child in there]
            if once:
                pushes = [push for push in pushes if push.sender != message.sender]
        elif message.version < shard.version:
            shard.drop(message)
        else:
            pushes.append(message)
        if pushes and enough(len(pushes), len(members)):
            await shard.mean_update(pushes)
            for member in members:
                await shard.answer(member)
            pushes = []
        del message  # see `immediate`


@synchronisation(offers={Offer.ANSWERS}, sharded=False, elastic=True)
async def every_k_workers(
    node: Node, rule: UpdateRule, *, k: Annotated[Count | None, AtMostWorkers()] = None
) -> None:
    """K-async: update with the gradients of `k` different workers, who wait for it; none is cancelled.

    Dutta et al. 2018, §2. Not for several shards: each would wait for the k workers whose pushes came to it
    first, and with other workers waiting at every shard nobody is left to push. Nor, for the same reason, for
    a model that is split, unless `k` is 1 or all replicas. Failure: nobody waits while `k` are there, and for
    all members, if they are fewer.
    """
    wanted = k or most_of(len(node.workers))
    await _waiting(node, rule, lambda members: min(wanted, members), drops_late=False)


async def _waiting(node: Node, rule: UpdateRule, needed: Callable[[int], int], *, drops_late: bool) -> None:
    """Update with as many pushes as are needed from so many members, each of whom waits for it.

    With `drops_late` the gradient of an earlier version is dropped, and its worker answered at once.
    """
    shard, members = Shard(node, rule), set(node.children)
    pushes: list[Message] = []
    while True:
        message = await node.receive()
        if message.kind == "pull":
            await shard.answer(message.sender)
        elif message.kind in ("leave", "join"):
            (members.add if message.kind == "join" else members.discard)(message.sender)
            pushes = [push for push in pushes if push.sender != message.sender]
        elif drops_late and message.version < shard.version:
            shard.drop(message)
            await shard.answer(message.sender)
        else:
            pushes.append(message)
        if pushes and len(pushes) >= needed(len(members)):
            await shard.mean_update(pushes)
            answered, pushes = [push.sender for push in pushes], []
            for worker in answered:
                await shard.answer(worker)
        del message  # see `immediate`


@synchronisation(offers=AT_ANY_TIME | {Offer.AT_ONCE}, elastic=True)
async def every_k_batches(
    node: Node, rule: UpdateRule, *, k: Count | None = None, warm_start: Updates = 0
) -> None:
    """K-batch-async: update with any `k` gradients; nobody waits. Dutta et al. 2018, §2.

    Failure: the others make the `k` gradients, those of who is gone among them.
    """
    shard, members, wanted = Shard(node, rule), set(node.children), k or most_of(len(node.workers))
    first, early = node.children[0], list[int]()
    pushes: list[Message] = []
    while True:
        message = await node.receive()
        if message.kind in ("push", "commit"):
            pushes.append(message)
        elif message.kind in ("leave", "join"):
            (members.add if message.kind == "join" else members.discard)(message.sender)
            early = [child for child in early if child != message.sender]
        if len(pushes) == wanted or (pushes and not members):
            pushes.sort(key=lambda push: push.sender)
            await shard.update(pushes, over=len(pushes))
            pushes = []
        warm = shard.version >= warm_start or first not in members
        if not warm and message.kind == "pull" and message.sender != first:
            early.append(message.sender)
        elif _wants_answer(message):
            await shard.answer(message.sender)
        if early and warm:
            for child in early:
                await shard.answer(child)
            early = []
        del message  # see `immediate`


@synchronisation(offers=AT_ANY_TIME | {Offer.AT_ONCE}, elastic=True)
async def soft_sync(
    node: Node, rule: UpdateRule, *, n: Annotated[Count, AtMostWorkers()] = 1, warm_start: Updates = 0
) -> None:
    """n-softsync: of λ workers, update with every c = ⌊λ/n⌋ gradients; nobody waits.

    Zhang, Gupta et al. 2016, "Staleness-aware async-SGD for distributed deep learning", eq. 5.
    Failure: c stays.
    """
    await every_k_batches(node, rule, k=max(1, len(node.workers) // n), warm_start=warm_start)


@synchronisation(offers=AT_ANY_TIME | {Offer.CLOCK}, elastic=True)
async def bounded(node: Node, rule: UpdateRule, *, bound: Clocks = 3) -> None:
    """Stale synchronous parallel: apply every push as it arrives, but let nobody run ahead.

    A worker that has made c pushes gets its answer when all workers have made at least c − `bound` (Ho et al.
    2013, §3): its own updates are in it at once, and 0 is bulk-synchronous. An answer says its clock: how
    many pushes of every worker are in it, at least. Failure: the others wait for who is gone once it is
    `bound` behind, or no longer if they are told; who is back counts as the slowest.
    """
    shard = Shard(node, rule)
    clocks = dict.fromkeys(node.children, 0)
    waiting: list[tuple[int, int]] = []  # who wants an answer, and at which of its clocks
    while True:
        message = await node.receive()
        if message.kind in ("leave", "join"):
            waiting = [(worker, clock) for worker, clock in waiting if worker != message.sender]
        if message.kind == "leave":
            clocks.pop(message.sender, None)
        elif message.kind == "join":  # as far as the slowest: what servers know of it may differ
            clocks[message.sender] = min(clocks.values(), default=0)
        if message.kind in ("push", "commit"):
            clocks[message.sender] += 1
            await shard.update([message], over=1)
        if _wants_answer(message):
            waiting.append((message.sender, clocks[message.sender]))
        slowest = min(clocks.values(), default=0)
        for worker, clock in waiting:
            if clock - bound <= slowest:
                await shard.answer(worker, slowest)
        waiting = [(worker, clock) for worker, clock in waiting if clock - bound > slowest]
        del message  # see `immediate`


@synchronisation(offers=AT_ANY_TIME, elastic=True)
async def every_clock(node: Node, rule: UpdateRule) -> None:
    """Apply every push as it arrives, and answer a worker's c-th when all workers have made c.

    Failure: as `barrier`.
    """
    await bounded(node, rule, bound=0)


def adding() -> Transformation:
    """The mean delta as it is: block momentum takes its place."""
    return server_optimizer()


@synchronisation(
    offers={Offer.BLOCKS, Offer.AVERAGES_ALONG},
    equal_steps=True,
    elastic=True,
    relay=relays.gather,
    optimizer=adding,
)
async def blocks(
    node: Node,
    rule: UpdateRule,
    *,
    block_momentum: Momentum | None = None,
    block_learning_rate: Rate = 1.0,
    block_nesterov: bool = False,
) -> None:
    """BMUF: a barrier, and momentum on the mean delta; 1 − 1/workers of it if none is given.

    Chen and Huo 2016 (optimizers.block_momentum); with `block_nesterov` workers start from a look-ahead.
    Failure: as `barrier`; the momentum is in the checkpoint.
    """
    momentum = 1 - 1 / len(node.workers) if block_momentum is None else block_momentum
    optimizer = block_momentum_of(momentum, block_learning_rate, block_nesterov)
    await barrier(node, rule._replace(optimizer=optimizer))
