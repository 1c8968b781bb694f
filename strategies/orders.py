"""The orders in which a stage of a pipeline does its passes: data, one generator each.

A stage is given `stage` of `stages` (from 0), the number of `micro_batches` of a mini-batch, and `chunks`:
the pieces of the model that it holds. It does every pass of every micro-batch through each of them once.
Piece `chunk` of stage s is piece chunk · stages + s of the model. In the pictures a row is a stage and a
column a time; a number is a forward pass of that micro-batch, a letter (a = 0, b = 1, …) a backward pass, as
long as the forward pass.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, get_args

Kind = Literal["forward", "backward", "backward-inputs", "backward-weights", "recompute"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Pass(NamedTuple):
    """One thing that a stage does; "backward" is both parts, before anything is sent on."""

    kind: Kind
    micro: int
    chunk: int = 0


Order = Callable[[int, int, int, int], Iterator[Pass]]
"""From stage, stages, micro-batches and chunks to the passes of one mini-batch."""


def gpipe(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> Iterator[Pass]:
    """All forward passes, then all backward passes, the last one first (GPipe: Huang et al. 2019, figure 2c).

    ::

        0 1 2 . . c b a
        . 0 1 2 c b a .    (stage 1 of 2, of 3 micro-batches; stage 0 above)
    """
    for micro in range(micro_batches):
        yield Pass("forward", micro)
    for micro in reversed(range(micro_batches)):
        yield Pass("backward", micro)


def one_forward_one_backward(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> Iterator[Pass]:
    """Forward as far as the last stage is ahead, then one backward for each forward (1F1B, PipeDream-flush).

    Narayanan et al. 2021, figure 3. A stage keeps min(micro-batches, stages − stage) activations.

    ::

        0 1 . a 2 b . c
        . 0 a 1 b 2 c .
    """
    ahead = min(micro_batches, stages - 1 - stage)
    for micro in range(ahead):
        yield Pass("forward", micro)
    for micro in range(ahead, micro_batches):
        yield Pass("forward", micro)
        yield Pass("backward", micro - ahead)
    for micro in range(micro_batches - ahead, micro_batches):
        yield Pass("backward", micro)


def interleaved(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> Iterator[Pass]:
    """1F1B over several pieces of the model a stage (Narayanan et al. 2021, figure 4); stages divide
    micro-batches.

    Micro-batches go in groups of as many as there are stages, each group through all pieces in turn.
    """
    passes, group = micro_batches * chunks, stages * chunks

    def forward(number: int) -> Pass:
        micro = number // group * stages + number % stages
        return Pass("forward", micro, number % group // stages)

    def backward(number: int) -> Pass:
        _, micro, chunk = forward(number)
        return Pass("backward", micro, chunks - 1 - chunk)

    ahead = passes if micro_batches == stages else 2 * (stages - 1 - stage) + (chunks - 1) * stages
    ahead = min(passes, ahead)
    for number in range(ahead):
        yield forward(number)
    for number in range(ahead, passes):
        yield forward(number)
        yield backward(number - ahead)
    for number in range(passes - ahead, passes):
        yield backward(number)


def zero_bubble(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> Iterator[Pass]:
    """1F1B whose gradients of the weights wait: they fill what the flush leaves empty (ZB-H1: Qi et al.
    2024).

    As many forward passes as there are stages from here on; then, for each gradient of the inputs, a
    gradient of the weights, later by as many micro-batches as the stage has before it, and a forward pass. A
    stage keeps min(micro-batches, stages) activations.
    """
    ahead = min(micro_batches, stages - stage)
    for micro in range(ahead):
        yield Pass("forward", micro)
    for micro in range(micro_batches):
        yield Pass("backward-inputs", micro)
        if micro >= stage:
            yield Pass("backward-weights", micro - stage)
        if micro + ahead < micro_batches:
            yield Pass("forward", micro + ahead)
    for micro in range(max(0, micro_batches - stage), micro_batches):
        yield Pass("backward-weights", micro)


ORDERS: dict[str, Order] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
    "zero-bubble": zero_bubble,
}
