"""Streaming DiLoCo: a fragment of the model at a time is summed, while local steps go on."""

from collections import deque
from collections.abc import Awaitable
from typing import Annotated, Any, NamedTuple

from lockstep.strategies.bounds import Momentum, Parts, Probability, Rate, Steps, Whole
from lockstep.strategies.codecs import SUMMABLE, Codec, Encoder, Feedback, Name, Ratio
from lockstep.strategies.coded_sums import CodedSum
from lockstep.strategies.collectives import Algorithm
from lockstep.strategies.marks import BelongsTo
from lockstep.strategies.node import Contribution, Node, Vector
from lockstep.strategies.optimizers import Transformation, server_optimizer
from lockstep.strategies.own_step import own_step
from lockstep.strategies.placement import cut


async def streaming_diloco(
    node: Node,
    optimizer: Transformation,
    *,
    averaging_period: Steps = 100,
    fragments: Parts = 8,
    overlap: Whole = 1,
    mixing: Probability = 0.5,
    outer_learning_rate: Rate = 0.7,
    outer_momentum: Momentum = 0.9,
    algorithm: Annotated[Algorithm, BelongsTo("codec", SUMMABLE)] = "ring",
    codec: Name = "none",
    codec_ratio: Ratio = 0.01,
    error_feedback: Feedback = False,
) -> None:
    """DiLoCo in fragments: each is averaged every `averaging_period` H steps, at its turn, in the background.

    Douillard et al. 2025, "Streaming DiLoCo with overlapping communication: towards a distributed free
    lunch", algorithm 2 (from memory): when it is fragment p's turn, the sum of how far it has moved from the
    common model is begun; `overlap` τ steps later Nesterov's momentum on the mean moves the common θ, and the
    worker goes on from α·own + (1 − α)·θ, α its `mixing`: what it has learned meanwhile is not lost. Theirs
    are τ = 1, α = ½, fragments of three layers, and a codec e3m0, decoded before it is summed.

    Fragments are consecutive slices of the parameters; the paper also has strided ones, of as many bytes.
    Fragment p of P has its turn at steps H(p + 1)/P, and H later again. A sum is waited for before the
    fragment's next turn, and in the end all that has moved is summed once more. A version is that of the
    common model, which is evaluated. With one fragment, τ = 0 and α = 0 it is `diloco`. Inner optimizer and
    outer rate are `diloco`'s. Failure: a worker that dies ends the run.
    """
    outer = server_optimizer(
        server_optimizer="nesterov", server_learning_rate=outer_learning_rate, server_momentum=outer_momentum
    )
    own, state = node.initial_parameters(), optimizer.initial
    moved, made, version, told = 0.0 * own, 0, 0, 0
    late = min(overlap, averaging_period - 1)
    parts = [
        _Fragment(
            place,
            own[place],
            averaging_period * (number + 1) // fragments % averaging_period,
            CodedSum(node, Encoder(node, Codec(codec, codec_ratio), error_feedback), algorithm),
            outer,
        )
        for number, place in enumerate(cut(len(own), [1] * fragments))
    ]
    under_way: deque[_Turn] = deque()

    async def begin(due: list[_Fragment]) -> None:
        sums = []
        for part in due:
            part.begun_at = made
            sums.append((part, await part.sum.begin(moved[part.place])))
        under_way.append(_Turn(made, version, sums))

    async def take_in(until: int) -> None:
        """Wait for the sums that were begun until that step, and go on from what they come to."""
        nonlocal own, moved, version, told
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
            await node.updated(version, node.concatenate([part.common for part in parts]), [by])

    while await node.next_batch_available():
        step, state = await own_step(node, optimizer, await node.gradient(own), state, own, additions=2)
        own, moved, made = own + step, moved + step, made + 1
        if due := [part for part in parts if part.offset == made % averaging_period]:
            await begin(due)
        await take_in(made - late)
    await take_in(made)
    if left := [part for part in parts if part.begun_at < made]:
        await begin(left)
        await take_in(made)


class _Fragment:
    """A slice of the parameters, as all workers have it in common."""

    def __init__(
        self, place: slice, common: Vector, offset: int, coded_sum: CodedSum, outer: Transformation
    ) -> None:
        """offset: of the steps at which it has its turn, in a period."""
        self.place, self.common, self.offset, self.sum = place, common, offset, coded_sum
        self.outer, self.state = outer, outer.initial
        self.begun_at = 0  # at which step the last sum was

    def step(self, mean: Vector) -> None:
        """Take the outer optimizer's, given the mean of how far all workers have moved."""
        step, self.state = self.outer.step(mean, self.state, self.common)
        self.common = self.common + step


class _Turn(NamedTuple):
    """Sums that are under way."""

    at: int  # steps that were made when they were begun
    version: int  # likewise, of the common model
    sums: list[tuple[_Fragment, Awaitable[Any]]]
