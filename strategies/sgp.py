"""Stochastic gradient push: SGD with push-sum averages over a directed graph that changes at every step."""

from lockstep.strategies import kept
from lockstep.strategies.bounds import Graph, Whole
from lockstep.strategies.graphs import exchange
from lockstep.strategies.node import Contribution, Message, Node
from lockstep.strategies.optimizers import Transformation, restored
from lockstep.strategies.own_step import own_step
from lockstep.strategies.push_sum import PushSum


async def sgp(node: Node, optimizer: Transformation, *, graph: Graph = "exponential") -> None:
    """x½ = x − η∇F(z); x ← P x½; w ← P w; z = x/w (Assran et al. 2019, algorithm 1).

    P at step k: keep a half, send the other to one worker of the `graph` (graphs.exchange), by default the
    one 2^(k mod ⌈lg n⌉) ahead: then everyone hears from one, w stays 1, and lg n steps average over all n
    workers, a power of two. Where some hear from several, or from none, w makes up for it. Sums are taken in
    the order of ranks. Failure: each worker saves x, w and its optimizer's state; after a crash all go on
    from the newest version that all have saved.
    """
    version, *parts, state = kept.begin(node, node.initial_parameters(), 1.0, optimizer.initial)
    own, state, n = PushSum(node, *parts), restored(state), len(node.workers)
    z = own.model
    while await node.next_batch_available():
        step, state = await own_step(node, optimizer, await node.gradient(z), state, z)
        own.x, halves = own.x + step, list[Message]()
        if n > 1:
            to, heard = exchange(graph, n, version)
            own.send_half(node.workers[to[node.index]], version)
            halves = [await node.receive("half", node.workers[other]) for other in heard[node.index]]
            await own.merge(halves)
        merged = [part for half in halves for part in half.contributions(version)]
        z, version = own.model, version + 1
        by = [*merged, Contribution(node.rank, 0, 1)]
        await kept.updated(node, version, z, by, own.x, own.weight, state)


async def osgp(
    node: Node, optimizer: Transformation, *, graph: Graph = "exponential", overlap: Whole = 1
) -> None:
    """Overlap SGP: halves travel while their senders and receivers go on, for up to `overlap` steps τ.

    Assran et al. 2019, algorithm 2 (τ-OSGP; from memory): send every τ steps, take in what has come after
    each, and wait only for what was sent τ steps ago: nothing, if it travels for less than τ steps. w is less
    than 1 while halves are under way. With τ = 0 it is `sgp`. The oldest halves are added first, then in the
    order of ranks; one from a step that is still to come here waits for it. In the end every half is merged.
    Failure: as `sgp`; halves that were on their way are lost, and their part of w with them.
    """
    version, *parts, state = kept.begin(node, node.initial_parameters(), 1.0, optimizer.initial)
    own, state, n = PushSum(node, *parts), restored(state), len(node.workers)
    z = own.model
    due: set[tuple[int, int]] = set()  # halves that are still to be merged: at which step sent, and by whom
    came: dict[tuple[int, int], Message] = {}

    async def merge(until: int) -> list[Contribution]:
        """What has come of the halves due, and all that were sent until that step."""
        while node.arrived("half") or any(half[0] <= until and half not in came for half in due):
            message = await node.receive("half")
            came[message.version, message.sender] = message
        merged = sorted(due & came.keys())
        due.difference_update(merged)
        halves = [came.pop(half) for half in merged]
        await own.merge(halves)
        return [part for half in halves for part in half.contributions(version)]

    while await node.next_batch_available():
        step, state = await own_step(node, optimizer, await node.gradient(z), state, z)
        own.x = own.x + step
        if n > 1 and version % max(overlap, 1) == 0:
            to, heard = exchange(graph, n, version // max(overlap, 1))
            own.send_half(node.workers[to[node.index]], version)
            due |= {(version, node.workers[other]) for other in heard[node.index]}
        merged = await merge(version - overlap)
        z, version = own.model, version + 1
        by = [*merged, Contribution(node.rank, 0, 1)]
        await kept.updated(node, version, z, by, own.x, own.weight, state)
    if due:
        merged = await merge(version)
        await node.updated(version, own.model, merged)
