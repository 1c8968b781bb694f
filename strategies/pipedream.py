"""Pipelines without a flush: a stage begins the next mini-batch while others are under way, and updates by
itself.

Each gradient is computed with the parameters that its forward pass used (weight stashing). Replicas of a
stage average their gradients around a ring. Failure: each stage saves its parameters and the optimizer's
state, of `pipedream-2bw` of both versions; after a crash the pipeline fills anew from the newest version that
all stages have saved.
"""

from collections.abc import Awaitable, Callable

from lockstep.strategies import kept
from lockstep.strategies.collectives import ring
from lockstep.strategies.multiple import Multiple
from lockstep.strategies.node import Contribution, Node, Vector
from lockstep.strategies.optimizers import Transformation, restored
from lockstep.strategies.own_step import own_step
from lockstep.strategies.pipeline import backward, forward
from lockstep.strategies.tensor import completed


async def pipedream(node: Node, optimizer: Transformation) -> None:
    """Every mini-batch makes an update at each stage (PipeDream: Narayanan et al. 2019, §3.2 and §3.3).

    Stage s of K has K − s mini-batches under way, each with the newest parameters there were when it came;
    so a gradient is K − 1 − s versions old once the pipeline is full, and as many versions more are kept.
    """
    copy = _Copy(node, optimizer)
    begun_at: dict[int, int] = {}

    def parameters(number: int) -> Vector:
        begun_at[number] = copy.version
        return copy.parameters

    async def update(number: int, gradient: Vector) -> None:
        await copy.step(gradient, begun_at.pop(number))

    await _keep_full(node, 1, copy.version, parameters, update)


async def pipedream_2bw(node: Node, optimizer: Transformation) -> None:
    """An update for each mini-batch of M ≥ K micro-batches, from gradients one version old (Narayanan et al.
    2021).

    "Memory-efficient pipeline-parallel DNN training", §3.1: W(t+1) = W(t) − η∇f(W(t−1)) at all stages alike,
    so that each keeps two versions.
    """
    copy, micro_batches = _Copy(node, optimizer), node.micro_batches
    before = copy.before
    sums: dict[int, Vector] = {}

    def parameters(number: int) -> Vector:
        return before if number // micro_batches == copy.version else copy.parameters

    async def update(number: int, gradient: Vector) -> None:
        nonlocal before
        batch = number // micro_batches
        sums[batch] = sums[batch] + gradient if batch in sums else gradient
        if number % micro_batches == micro_batches - 1:
            before, old = copy.parameters, copy.version
            await copy.step(sums.pop(batch), max(0, old - 1), before)

    await _keep_full(node, micro_batches, copy.version, parameters, update)


def in_flight(stage: int, stages: int) -> int:
    """Versions that PipeDream has at once: one for each mini-batch that is under way there."""
    return stages - stage


def two(stage: int, stages: int) -> int:
    """Versions that PipeDream-2BW has at once."""
    return 2


async def _keep_full(
    node: Node,
    micro_batches: int,
    first: int,
    parameters: Callable[[int], Vector],
    update: Callable[[int, Vector], Awaitable[None]],
) -> None:
    """As many micro-batches under way as there are stages from here on; one back for each one begun.

    They are numbered through, mini-batch after mini-batch, those of earlier lives too; `first`: this one's
    first mini-batch.
    """
    begun = done = first * micro_batches
    ahead, more = node.stage.count - node.stage.index, True
    while True:
        if more and begun - done < ahead:
            more = bool(begun % micro_batches) or await node.next_batch_available()
            if more:
                await forward(node, parameters(begun), begun)
                begun += 1
            continue
        if done == begun:
            return
        found, _ = await backward(node, done)
        await update(done, await completed(node, found))
        done += 1


class _Copy:
    """This stage's parameters: the newest, which all its replicas have alike."""

    def __init__(self, node: Node, optimizer: Transformation) -> None:
        self.node, self.optimizer = node, optimizer
        initial = node.initial_parameters()
        self.parameters: Vector
        self.version, self.parameters, state, *before = kept.begin(node, initial, optimizer.initial)
        self.state = restored(state)
        self.before: Vector = before[0] if before else self.parameters

    async def step(self, gradient: Vector, computed_from: int, *before: Vector) -> None:
        """Along the mean gradient of all replicas, which was computed from an older version.

        before: the older version, if it is still needed: it is saved, too.
        """
        node, n = self.node, len(self.node.workers)
        mean = Multiple(1 / n, await node.collective(ring, gradient)) if n > 1 else gradient
        step, self.state = await own_step(node, self.optimizer, mean, self.state, self.parameters)
        self.parameters = self.parameters + step
        staleness = self.version - computed_from
        self.version += 1
        by = [Contribution(node.rank, staleness, 1)]
        if await node.updated(self.version, self.parameters, by):  # what is under way is begun anew from it
            await node.save(self.version, (self.parameters, self.state, *before), step=self.version)
