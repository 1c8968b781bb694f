"""Priority-based parameter propagation: the slices that the next forward pass needs first travel first."""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import product
from typing import Annotated, Any

from lockstep.strategies import tensor
from lockstep.strategies.bounds import Count
from lockstep.strategies.consistency import barrier_of_parts
from lockstep.strategies.corrections import UpdateRule
from lockstep.strategies.factors import Offer, synchronisation, worker_loop
from lockstep.strategies.marks import InParts, InPasses
from lockstep.strategies.node import Message, Node, Vector
from lockstep.strategies.parameter_server import ParameterServer, Shard
from lockstep.strategies.parts import Part, cut, within


@worker_loop(needs={Offer.SLICES})
async def by_priority(
    node: Node,
    server: ParameterServer,
    *,
    units: Annotated[Count, InPasses()] = 1,
    slice_size: Annotated[Count, InParts(0)] = 50_000,
) -> None:
    """P3: push slices to each server one at a time: of those that are ready, the nearest to the input.

    Jayarajan et al. 2019, "Priority-based parameter propagation for distributed DNN training", §4 (from
    memory): the backward pass makes the gradient of the last layers first, but the next forward pass needs
    the first layers first. So gradients are cut into slices of at most `slice_size` parameters, theirs are of
    50,000; one that becomes ready meanwhile and is nearer to the input overtakes those that wait. The model
    is computed in `units` of consecutive layers: each begins its forward pass as soon as its parameters have
    come. The numbers are those of `synchronous`. There the servers get slices in turn, from one queue; here a
    slice is of the server that has its place in the vector, and each server has a queue, or others would wait
    while all workers send to one.
    """
    pieces = node.stage.pieces
    server.cut_into([_slices(shard, pieces, slice_size) for shard in node.shards])
    from_the_input = sorted(range(len(server.parts)), key=lambda number: server.parts[number][0].start)
    of_unit = [
        [number for number in from_the_input if piece.start <= server.parts[number][0].start < piece.stop]
        for piece in pieces
    ]
    ready: dict[int, list[int]] = {to: [] for to in node.parents}  # heaps of slices, by number
    sending: set[int] = set()  # servers
    gradients: dict[int, Vector] = {}
    micro = node.step * node.micro_batches

    async def send(to: int) -> None:
        while ready[to]:
            number = heappop(ready[to])
            await (await server.push_part(number, gradients.pop(number), 1))
        sending.remove(to)

    def push(unit: int, gradient: Vector) -> None:
        for number in of_unit[unit]:
            (place,) = server.parts[number]
            gradients[number] = gradient[place.start - pieces[unit].start : place.stop - pieces[unit].start]
            heappush(ready[server.addresses[number][0]], number)
        for to in node.parents:
            if ready[to] and to not in sending:
                sending.add(to)
                node.spawn(send(to))

    async def answers(unit: int) -> Vector:
        parts = [(await server.answer(*server.addresses[number]))[1] for number in of_unit[unit]]
        return node.concatenate(parts) if parts else node.initial_parameters()[:0]

    server.pull_parts()
    while await node.next_batch_available():
        own: list[Vector] = []
        sums: list[Any] = [None] * units
        for left in reversed(range(node.micro_batches)):
            inputs = error = None
            for unit in range(units):
                if unit == len(own):
                    own.append(await answers(unit))
                inputs = await tensor.forward(node, own[unit], micro, inputs, unit)
            for unit in reversed(range(units)):
                error, gradient = await tensor.backward(node, micro, error, unit)
                gradient = await tensor.completed(node, gradient, unit)
                sums[unit] = gradient if sums[unit] is None else sums[unit] + gradient
                if not left:
                    push(unit, sums[unit])
            micro += 1
    for unit in range(units):
        await answers(unit)
    server.leave()


@synchronisation(offers={Offer.SLICES}, equal_steps=True, elastic=True)
async def barrier_of_slices(node: Node, rule: UpdateRule) -> None:
    """A barrier for each slice: the mean of everyone's, in the order of ranks, makes the update; all get it.

    A worker's first pull of a slice says how long it is; a slice begins where the one before it ends.
    Failure: as `barrier`, for each slice; who is back takes part in those of the round that still wait.
    """
    slices: list[Shard] = []
    shard, end = node.shards[node.shard], 0

    async def pulled(pull: Message) -> None:
        nonlocal end
        if pull.part == len(slices):
            place = within(shard, end, end := end + pull.batches)
            slices.append(Shard(node, rule, pull.part, place=place))
        await slices[pull.part].answer(pull.sender)

    await barrier_of_parts(node, slices, pulled)


def _slices(shard: Part, pieces: Sequence[slice], most: int) -> list[Part]:
    """A shard, cut where pieces of the model meet, and then into slices of so many elements at most.

    One without parameters has a slice too, which is empty: its server makes updates as all others do.
    """
    found: list[Part] = []
    for run, piece in product(shard, pieces):
        start, stop = max(piece.start, run.start), min(piece.stop, run.stop)
        if start < stop:
            parts = cut(stop - start, [1] * -(-(stop - start) // most))
            found += [(slice(start + part.start, start + part.stop),) for part in parts]
    return found or [(slice(0, 0),)]
