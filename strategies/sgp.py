"""Stochastic gradient push: SGD with push-sum averages over a directed graph that changes at every step."""

from lockstep.strategies import kept
from lockstep.strategies.bounds import Graph, Whole
from lockstep.strategies.graphs import Neighbours, exchange, neighbours
from lockstep.strategies.node import Contribution, Message, Node
from lockstep.strategies.optimizers import Transformation, restored
from lockstep.strategies.own_step import own_step
from lockstep.strategies.push_sum import PushSum
from lockstep.strategies.rounds import Rounds


async def sgp(node: Node, optimizer: Transformation, *, graph: Graph = "exponential") -> None:
    """x½ = x − η∇F(z); x ← P x½; w ← P w; z = x/w (Assran et al. 2019, algorithm 1).

    P at step k: keep a half, send the other to one worker of the `graph` (graphs.exchange), by default the
    one 2^(k mod ⌈lg n⌉) ahead: then everyone hears from one, w stays 1, and lg n steps average over all n
    workers, a power of two. Where some hear from several, or from none, w makes up for it. Sums are taken in
    the order of ranks. Failure: each worker saves x, w and its optimizer's state; after a crash all go on
    from the newest version that all have saved. Where the others go on, nobody sends to who is gone, but
    keeps all of x and w. What who failed had of Σx and Σw, and what was on its way from and to it, is lost:
    the mean is one by the weights that are left, and moves by that of the steps (see `PushSum`). Who is back
    is a copy of another, x and w, and in its round: see `Rounds`.
    """
    version, *parts, state = kept.begin(node, node.initial_parameters(), 1.0, 0, optimizer.initial)
    own, state, n = PushSum(node, *parts), restored(state), len(node.workers)
    rounds = await _rounds(node, own, graph, version)
    z = own.model
    while await node.next_batch_available():
        number = await rounds.begin()
        step, state = await own_step(node, optimizer, await node.gradient(z), state, z)
        own.move(step, rounds.disturbed)
        halves = list[Message]()
        if n > 1:
            heard = await _send(node, own, rounds, exchange(graph, n, number), number)
            halves = await rounds.take([(number, other) for other in heard])
            await own.merge(halves, number)
        merged = [part for half in halves for part in half.contributions(number)]
        z, version = own.model, version + 1
        by = [*merged, Contribution(node.rank, 0, 1)]
        await kept.updated(node, version, z, by, own.x, own.weight, own.proportion, state)
    rounds.end()


async def osgp(
    node: Node, optimizer: Transformation, *, graph: Graph = "exponential", overlap: Whole = 1
) -> None:
    """Overlap SGP: halves travel while their senders and receivers go on, for up to `overlap` steps τ.

    Assran et al. 2019, algorithm 2 (τ-OSGP; from memory): send every τ steps, take in what has come after
    each, and wait only for what was sent τ steps ago: nothing, if it travels for less than τ steps. w is less
    than 1 while halves are under way. With τ = 0 it is `sgp`. The oldest halves are added first, then in the
    order of ranks; one from a step that is still to come here waits for it. In the end every half is merged.
    Failure: as `sgp`; where all go back, halves that were on their way are lost, and their part of w too.
    """
    version, *parts, state = kept.begin(node, node.initial_parameters(), 1.0, 0, optimizer.initial)
    own, state, n = PushSum(node, *parts), restored(state), len(node.workers)
    rounds = await _rounds(node, own, graph, version)
    z = own.model
    due: set[tuple[int, int]] = set()  # halves that are still to be merged: in which round sent, and by whom

    async def merge(until: int) -> list[Message]:
        """What has come of the halves due, and all that were sent until that round."""
        halves = await rounds.take([half for half in due if half[0] <= until])
        due.difference_update((half.version, half.sender) for half in halves)
        due.intersection_update([half for half in due if rounds.awaits(*half)])
        await own.merge(halves, number)
        return halves

    number = version
    while await node.next_batch_available():
        number = await rounds.begin()
        step, state = await own_step(node, optimizer, await node.gradient(z), state, z)
        own.move(step, rounds.disturbed)
        if n > 1 and number % max(overlap, 1) == 0:
            exchanged = exchange(graph, n, number // max(overlap, 1))
            heard = await _send(node, own, rounds, exchanged, number)
            due |= {(number, other) for other in heard}
        merged = [part for half in await merge(number - overlap) for part in half.contributions(number)]
        z, version = own.model, version + 1
        by = [*merged, Contribution(node.rank, 0, 1)]
        await kept.updated(node, version, z, by, own.x, own.weight, own.proportion, state)
    if halves := await merge(number):
        merged = [part for half in halves for part in half.contributions(number + 1)]
        await node.updated(version, own.model, merged)
    rounds.end()


async def _rounds(node: Node, own: PushSum, graph: Graph, first: int) -> Rounds:
    """The rounds in which a worker and others of the graph send each other halves; it has begun them."""
    others = [node.workers[index] for index in neighbours(graph, len(node.workers))[node.index]]
    rounds = Rounds(node, others, first, "half", lambda: (own.x, own.weight))
    if (shown := await rounds.enter()) is not None:
        own.take_over(shown)
    return rounds


async def _send(
    node: Node, own: PushSum, rounds: Rounds, exchanged: tuple[tuple[int, ...], Neighbours], number: int
) -> list[int]:
    """Send a half to whom it is this worker's turn to, if that one is there; of whom it hears."""
    await rounds.look()
    to, heard = exchanged
    if (other := node.workers[to[node.index]]) in rounds.there:
        own.send_half(other, number)
    return [node.workers[index] for index in heard[node.index]]
