"""Streaming DiLoCo: a fragment of the model at a time is summed, while local steps go on."""

from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from lockstep.strategies import kept, tensor
from lockstep.strategies.bounds import Momentum, Parts, Probability, Rate, Steps, Whole
from lockstep.strategies.codecs import SUMMABLE, Codec, Encoder, Feedback, Name, Ratio, Threshold
from lockstep.strategies.coded_sums import CodedSum
from lockstep.strategies.collectives import Algorithm
from lockstep.strategies.fragments import Fragment, Streamed
from lockstep.strategies.marks import BelongsTo, InParts, InPasses
from lockstep.strategies.node import Contribution, Node, Vector
from lockstep.strategies.optimizers import Transformation, restored, server_optimizer
from lockstep.strategies.own_step import own_step
from lockstep.strategies.parts import cut
from lockstep.strategies.shared_rounds import SharedRounds


async def streaming_diloco(
    node: Node,
    optimizer: Transformation,
    *,
    averaging_period: Steps = 100,
    fragments: Parts = 8,
    overlap: Whole = 1,
    mixing: Probability = 0.5,
    units: Annotated[Parts | None, InPasses(), InParts()] = None,
    outer_learning_rate: Rate = 0.7,
    outer_momentum: Momentum = 0.9,
    algorithm: Annotated[Algorithm, BelongsTo("codec", SUMMABLE)] = "ring",
    codec: Name = "none",
    codec_ratio: Ratio = 0.01,
    codec_threshold: Threshold = 0.5,
    error_feedback: Feedback = False,
) -> None:
    """DiLoCo in fragments: each is averaged every `averaging_period` H steps, at its turn, in the background.

    Douillard et al. 2025, "Streaming DiLoCo with overlapping communication: towards a distributed free
    lunch", algorithm 2 (from memory): when it is fragment p's turn, the sum of how far it has moved from the
    common model is begun; `overlap` τ steps later Nesterov's momentum on the mean moves the common θ, and the
    worker goes on from α·own + (1 − α)·θ, α its `mixing`: what it has learned meanwhile is not lost. Theirs
    are τ = 1, α = ½, fragments of three layers, and a codec e3m0, decoded before it is summed.

    Fragments are consecutive slices of the parameters, unless the model is computed in `units` of consecutive
    layers: then fragment p of P is the units p, p + P, … (their strided pattern), and P at most the units. A
    unit's sum is begun as soon as the backward pass has made its gradient, and waited for when the forward
    pass comes to it: not after the step, and before the next, as without units.

    Fragment p of P has its turn at steps H(p + 1)/P, and H later again. A sum is waited for before the
    fragment's next turn, and in the end all that has moved is summed once more. A version is that of the
    common model, which is evaluated: there is a new one when all that was begun at a step has been taken in.
    With one fragment, τ = 0 and α = 0 it is `diloco`. Inner optimizer and outer rate are `diloco`'s. Failure:
    each worker waits for the sums that are under way, and saves them, its own and the common model, and the
    optimizers' states; after a crash all go on from the newest version that all have saved. Or those who are
    there do the sum again (fragments.py), with τ steps beside it, if its next turn is not sooner; who is back
    begins with the common model.
    """
    outer = server_optimizer(
        server_optimizer="nesterov", server_learning_rate=outer_learning_rate, server_momentum=outer_momentum
    )
    own = node.initial_parameters()
    wire = Codec(codec, codec_ratio, codec_threshold)
    many = fragments if units is None else min(fragments, units)
    parts = [
        Fragment(
            place,
            own[place],
            averaging_period * (number % many + 1) // many % averaging_period,
            CodedSum(node, Encoder(node, wire, error_feedback), algorithm),
            outer,
        )
        for number, place in enumerate(cut(len(own), [1] * many) if units is None else node.stage.pieces)
    ]
    late = min(overlap, averaging_period - 1)
    if node.goes_on:
        return await SharedRounds(
            node, Streamed(node, optimizer, parts, averaging_period, late, mixing)
        ).run()
    train = _whole if units is None else _by_units
    await train(node, optimizer, parts, averaging_period, late, mixing)


async def _whole(
    node: Node, optimizer: Transformation, parts: "list[Fragment]", period: int, late: int, mixing: float
) -> None:
    """Every gradient is of the whole model; sums are begun after a step, and waited for before the next."""
    initial = node.initial_parameters()
    version, own, moved, state, made, told, common, turns = kept.begin(
        node, initial, 0.0 * initial, optimizer.initial, 0, 0, [part.state for part in parts], []
    )
    state = restored(state)
    for part, each in zip(parts, common, strict=True):
        part.go_on_from(each)
    under_way = deque(
        _Turn(at, begun, [(parts[number], kept.Known(total)) for number, total in sums])
        for at, begun, sums in turns
    )

    async def begin(due: list[Fragment]) -> None:
        sums = []
        for part in due:
            part.begun_at = made
            sums.append((part, await part.sum.begin(moved[part.place])))
        under_way.append(_Turn(made, version, sums))

    async def take_in(until: int) -> None:
        """Wait for the sums that were begun until that step, and go on from what they come to."""
        nonlocal own, moved, version, told
        due = False
        while under_way and under_way[0].at <= until:
            turn = under_way.popleft()
            for part, total in turn.sums:
                part.step(await total / len(node.workers))
            turned = [part for part, _ in turn.sums]
            mixed = {part: mixing * own[part.place] + (1 - mixing) * part.common for part in turned}
            own = node.concatenate([mixed.get(part, own[part.place]) for part in parts])
            moved = node.concatenate(
                [mixed[part] - part.common if part in mixed else moved[part.place] for part in parts]
            )
            by = Contribution(node.rank, version - turn.version, turn.at - told)
            version, told = version + 1, turn.at
            due |= await node.updated(version, node.concatenate([part.common for part in parts]), [by])
        if due:
            for turn in under_way:
                turn.sums[:] = [(part, kept.Known(await total)) for part, total in turn.sums]
            turns = []
            for turn in under_way:
                sums = [(parts.index(part), await total) for part, total in turn.sums]
                turns.append((turn.at, turn.version, tuple(sums)))
            common = tuple(part.state for part in parts)
            await node.save(version, (own, moved, state, made, told, common, tuple(turns)))

    while await node.next_batch_available():
        step, state = await own_step(node, optimizer, await node.gradient(own), state, own, additions=2)
        own, moved, made = own + step, moved + step, made + 1
        if due := [part for part in parts if part.offset == made % period]:
            await begin(due)
        await take_in(made - late)
    await take_in(made)
    if left := [part for part in parts if part.begun_at < made]:
        await begin(left)
        await take_in(made)


async def _by_units(
    node: Node, optimizer: Transformation, units: "list[Fragment]", period: int, late: int, mixing: float
) -> None:
    """Gradients are computed unit by unit; sums are begun and waited for as the passes come to a unit."""
    initial = [unit.common for unit in units]
    version, own, moved, states, made, told, common, turns, sums = kept.begin(
        node, initial, [0.0 * each for each in initial], [optimizer.initial] * len(units), 0, 0,
        [unit.state for unit in units], [], [],
    )  # fmt: skip
    own, moved, states = [*own], [*moved], [restored(state) for state in states]
    for unit, each in zip(units, common, strict=True):
        unit.go_on_from(each)
    turns, micro, due_to_save = [_UnitsTurn(*each) for each in turns], made * node.micro_batches, False
    # by unit; in the order they were begun
    coming: dict[int, tuple[_UnitsTurn, Awaitable[Vector]]] = {
        number: (turns[turn], kept.Known(total)) for number, turn, total in sums
    }

    async def begin(number: int, turn: _UnitsTurn) -> None:
        units[number].begun_at = turn.at
        coming[number] = turn, await units[number].sum.begin(moved[number])

    async def take_in(number: int) -> None:
        """Wait for a unit's sum, and go on from what it comes to."""
        nonlocal version, told, due_to_save
        turn, total = coming.pop(number)
        unit = units[number]
        unit.step(await total / len(node.workers))
        own[number] = mixing * own[number] + (1 - mixing) * unit.common
        moved[number] = own[number] - unit.common
        turn.left -= 1
        if not turn.left:
            by = Contribution(node.rank, version - turn.version, turn.at - told)
            version, told = version + 1, turn.at
            whole = node.concatenate([each.common for each in units])
            due_to_save |= await node.updated(version, whole, [by])

    async def save() -> None:
        """After a step, with all that is under way then."""
        for number, (turn, total) in coming.items():
            coming[number] = turn, kept.Known(await total)
        turns = [*dict.fromkeys(turn for turn, _ in coming.values())]
        sums = [(number, turns.index(turn), await total) for number, (turn, total) in coming.items()]
        told_of = tuple((turn.at, turn.version, turn.left) for turn in turns)
        common = tuple(unit.state for unit in units)
        mine = tuple(own), tuple(moved), tuple(states)
        await node.save(version, (*mine, made, told, common, told_of, tuple(sums)))

    async def step(number: int, gradient: Vector) -> None:
        step, states[number] = await own_step(
            node, optimizer, gradient, states[number], own[number], additions=2
        )
        own[number], moved[number] = own[number] + step, moved[number] + step

    while await node.next_batch_available():
        gradients: list[Any] = [None] * len(units)
        due = [number for number, unit in enumerate(units) if unit.offset == (made + 1) % period]
        for left in reversed(range(node.micro_batches)):
            inputs = error = None
            for number in range(len(units)):
                if number in coming and coming[number][0].at <= made - late:
                    await take_in(number)
                inputs = await tensor.forward(node, own[number], micro, inputs, number)
            turn = _UnitsTurn(made + 1, version, len(due))
            for number in reversed(range(len(units))):
                error, gradient = await tensor.backward(node, micro, error, number)
                gradient = await tensor.completed(node, gradient, number)
                before = gradients[number]
                gradients[number] = gradient if before is None else before + gradient
                if not left:
                    await step(number, gradients[number])
                    if number in due:
                        await begin(number, turn)
            micro += 1
        made += 1
        if due_to_save:
            due_to_save = False
            await save()
    for number in [*coming]:
        await take_in(number)
    rest = [number for number, unit in enumerate(units) if unit.begun_at < made]
    turn = _UnitsTurn(made, version, len(rest))
    for number in rest:
        await begin(number, turn)
    for number in rest:
        await take_in(number)


class _Turn(NamedTuple):
    """Sums that are under way."""

    at: int  # steps that were made when they were begun
    version: int  # likewise, of the common model
    sums: list[tuple[Fragment, Awaitable[Any]]]


@dataclass(eq=False, repr=False)
class _UnitsTurn:
    """A step at which units' sums are begun."""

    at: int  # steps that were made with it
    version: int  # of the common model, when the first was begun
    left: int  # units whose sums have not been taken in
