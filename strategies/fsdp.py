"""Sharded data parallelism: no server, and no worker that holds everything.

Each worker owns a share of every unit of the parameters, sums gradients for it and steps it (ZeRO:
Rajbhandari et al. 2020). It learns what all-reduce learns. Failure: each worker saves its
shares and the optimizer's state of them; after a crash all go on from the newest version that all have.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Annotated

from lockstep.strategies import kept, tensor
from lockstep.strategies.bounds import Bound, Count, Parts, Whole
from lockstep.strategies.clipping import clipped
from lockstep.strategies.collectives import all_gather, reduce_scatter, ring
from lockstep.strategies.marks import BelongsTo, InPasses
from lockstep.strategies.multiple import Multiple
from lockstep.strategies.node import Collective, Contribution, Group, Node, Vector
from lockstep.strategies.optimizers import Transformation, restored
from lockstep.strategies.own_step import own_step
from lockstep.strategies.shares import Shares, place_in, sharded, sharded_in_groups

Zero = Annotated[int, Bound(ge=1, le=3)]
Buckets = Annotated[Parts, BelongsTo("zero", (1, 2))]
Units = Annotated[Parts, BelongsTo("zero", (3,)), InPasses("zero", (3,))]
Ahead = Annotated[Whole, BelongsTo("zero", (3,))]
Reshard = Annotated[bool, BelongsTo("zero", (3,))]


async def fsdp(
    node: Node,
    optimizer: Transformation,
    *,
    zero: Zero = 3,
    buckets: Buckets = 1,
    units: Units = 1,
    prefetch: Ahead = 1,
    reshard: Reshard = True,
) -> None:
    """Every mini-batch: a step by the mean of all gradients, each worker of its own share.

    `zero` 1 shares out the optimizer's state and 2 gradients, which are summed in `buckets` as the backward
    pass makes them; 3 parameters too (Zhao et al. 2023, "PyTorch FSDP", §3 and §4). The model is then
    computed in `units`, each gathered when it is needed; with `reshard` it is dropped after its forward pass,
    and gathered again for the backward pass. Up to `prefetch` units are gathered before they are needed, and
    gradients of as many are summed while others are computed; with 0 nothing overlaps. Every micro-batch
    gathers, and sums its gradients, anew (as FSDP does without `no_sync`).
    """
    shares = sharded(
        node.hosts, _pieces(node, zero), zero=zero, buckets=buckets, prefetch=prefetch, reshard=reshard
    )
    await _train(node, optimizer, shares)


async def hsdp(
    node: Node,
    optimizer: Transformation,
    *,
    group_size: Count | None = None,
    zero: Zero = 3,
    buckets: Buckets = 1,
    units: Units = 1,
    prefetch: Ahead = 1,
    reshard: Reshard = True,
) -> None:
    """As `fsdp` inside each group of workers; a ring of those with the same share sums it between the groups.

    Hybrid sharding (Zhao et al. 2023, §3.2.2). `group_size`: those on a host, if not given; it must divide
    the workers.
    """
    pieces = _pieces(node, zero)
    shares = sharded_in_groups(
        node.hosts, pieces,
        group_size=group_size, zero=zero, buckets=buckets, prefetch=prefetch, reshard=reshard,
    )  # fmt: skip
    await _train(node, optimizer, shares)


async def _train(node: Node, optimizer: Transformation, shares: Shares) -> None:
    own, exchange = _Share(node, optimizer, shares), _Exchange(node, shares.groups)
    if shares.zero == 3:
        await _in_units(node, own, exchange, shares)
    else:
        await _in_buckets(node, own, exchange, shares)


async def _in_buckets(node: Node, own: "_Share", exchange: "_Exchange", shares: Shares) -> None:
    """Everyone computes with all parameters, and after each step gathers them from their owners."""
    parameters = node.initial_parameters()
    if own.version:  # after a failure
        gathering = [exchange.gather(part) for part in own.parts]
        parameters = node.concatenate([await whole for whole in gathering])
    while await node.next_batch_available():
        ready = node.backward(parameters, shares.units)
        summed = [(unit, exchange.sum(await ready[unit])) for unit in reversed(range(len(ready)))]
        gathered: dict[int, Awaitable[Vector]] = {}
        async for unit, mean in own.means(summed, exchange):
            gathered[unit] = exchange.gather(await own.step(unit, mean))
        parameters = node.concatenate([await gathered[unit] for unit in range(len(ready))])
        await own.updated()


async def _in_units(node: Node, own: "_Share", exchange: "_Exchange", shares: Shares) -> None:
    """Everyone computes unit by unit, with parameters that are gathered from their owners for it."""
    units, number = range(len(shares.units)), node.step * node.micro_batches

    def gather(unit: int) -> Awaitable[Vector]:
        return exchange.gather(own.parts[unit])

    while await node.next_batch_available():
        totals: dict[int, Vector] = {}  # this worker's parts
        for micro in range(number, number + node.micro_batches):
            activation, error = None, None
            whole: list[Vector] = []
            async for unit, parameters in _ahead(units, gather, shares.ahead):
                activation = await tensor.forward(node, parameters, micro, activation, unit)
                whole += [] if shares.reshard else [parameters]
            summed: dict[int, Awaitable[Vector]] = {}
            async for unit, _ in _ahead(reversed(units), gather, shares.ahead, whole):
                for behind in units[unit + shares.ahead + 1 :][:1]:
                    await summed[behind]
                error, gradient = await tensor.backward(node, micro, error, unit)
                gradient = await tensor.completed(node, gradient, unit)
                summed[unit] = exchange.sum(gradient)
            for unit in units:  # as many shares of gradients as there are units, whatever the micro-batches
                part = await summed[unit]
                totals[unit] = totals[unit] + part if unit in totals else part
        number += node.micro_batches
        found = ((unit, kept.Known(totals[unit])) for unit in units)
        async for unit, mean in own.means(found, exchange):
            await own.step(unit, mean)
        await own.updated()


async def _ahead(
    units: Iterable[int], gather: Callable[[int], Awaitable[Vector]], many: int, kept: Sequence[Vector] = ()
) -> AsyncIterator[tuple[int, Vector]]:
    """Each unit with its parameters, once they are there; up to so `many` more are on their way. Those that
    are `kept` need not be gathered."""
    if kept:
        for unit in units:
            yield unit, kept[unit]
        return
    asked: deque[tuple[int, Awaitable[Vector]]] = deque()
    for unit in units:
        asked.append((unit, gather(unit)))
        if len(asked) > many:
            first, parameters = asked.popleft()
            yield first, await parameters
    for first, parameters in asked:
        yield first, await parameters


class _Share:
    """What a worker owns: its part of each unit, and the optimizer's state for it."""

    def __init__(self, node: Node, optimizer: Transformation, shares: Shares) -> None:
        self.node, self.optimizer, self._clipping = node, optimizer.of_parts, optimizer.clipping
        _, place = place_in(shares.groups, node.index)
        initial = node.initial_parameters()
        parts = [initial[part] for part in shares.owned(place)]
        self.version, parts, states = kept.begin(node, parts, [optimizer.initial] * len(parts))
        self.parts: list[Vector] = [*parts]
        self.states = [restored(state) for state in states]

    def means(
        self, totals: Iterable[tuple[int, Awaitable[Vector]]], exchange: "_Exchange"
    ) -> AsyncIterator[tuple[int, Multiple]]:
        """Everyone's mean gradient, clipped, unit by unit, from the sums of their gradients."""

        async def mean(total: Awaitable[Vector]) -> Multiple:
            return Multiple(1 / len(self.node.workers), await total)

        parts = ((unit, mean(total)) for unit, total in totals)
        return clipped(self.node, self._clipping, parts, exchange.gather)

    async def step(self, unit: int, mean: Multiple) -> Vector:
        """Step by the mean of everyone's gradients: the new parameters."""
        node, own = self.node, self.parts[unit]
        step, self.states[unit] = await own_step(node, self.optimizer, mean, self.states[unit], own)
        self.parts[unit] = node.add(own, step)
        return self.parts[unit]

    async def updated(self) -> None:
        """All units have made a step."""
        self.version += 1
        whole = self.node.concatenate(self.parts)
        by = [Contribution(self.node.rank, 0, 1)]
        await kept.updated(self.node, self.version, whole, by, tuple(self.parts), tuple(self.states))


class _Exchange:
    """How units are put together in each group of workers, and gradients summed over all."""

    def __init__(self, node: Node, groups: Sequence[Sequence[int]]) -> None:
        number, place = place_in(groups, node.index)
        self.inside = _Stream(node, groups[number], 1)
        self.between = _Stream(node, [group[place] for group in groups], 2) if len(groups) > 1 else None

    def gather(self, part: Vector) -> Awaitable[Vector]:
        """The unit of which everyone in the group has a part."""
        return self.inside.begin(all_gather, part)

    def sum(self, gradient: Vector) -> Awaitable[Vector]:
        """This worker's part of a unit's gradient, summed over all workers."""
        own = self.inside.begin(reduce_scatter, gradient)

        async def all_groups(node: Node, _: Vector) -> Vector:
            return await ring(node, await own)

        return own if self.between is None else self.between.begin(all_groups, gradient)


class _Stream:
    """Collectives of a group one after the other, in the order in which they are begun: a communicator of
    NCCL has one stream (Zhao et al. 2023, §3.3.2)."""

    def __init__(self, node: Node, workers: Sequence[int], number: int) -> None:
        ranks, hosts = (tuple(of[worker] for worker in workers) for of in (node.workers, node.hosts))
        self.node, self.group = node, Group(ranks, hosts, number)
        self.last: Awaitable[Vector] | None = None

    def begin(self, program: Collective, vector: Vector) -> Awaitable[Vector]:
        """What the collective comes to, once those before it are done."""
        before = self.last

        async def in_turn(node: Node, vector: Vector) -> Vector:
            if before is not None:
                await before
            return await program(node, vector)

        self.last = self.node.begin_collective(in_turn, vector, self.group)
        return self.last


def _pieces(node: Node, zero: int) -> Sequence[slice]:
    return node.stage.pieces if zero == 3 else [slice(0, len(node.initial_parameters()))]
