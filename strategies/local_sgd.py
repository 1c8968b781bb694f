"""Local steps without a server: every worker steps by itself, and now and then all go on from the mean.

What is summed is how far the models have moved. Failure: a worker that dies ends the run.
"""

from collections.abc import Callable, Sequence
from math import ceil, isfinite
from typing import Any, Literal

from strategies.bounds import Count, Momentum, Rate
from strategies.collectives import ALGORITHMS, Algorithm
from strategies.local_steps import walk
from strategies.node import Contribution, Node, Vector
from strategies.optimizers import Transformation, server_optimizer
from strategies.placement import cut


async def means(node: Node, algorithm: str, vectors: Sequence[Vector]) -> list[Vector]:
    """The mean over all workers of each of some vectors, all in one collective."""
    total = await node.collective(ALGORITHMS[algorithm], node.concatenate(vectors))
    mean = total / len(node.workers)
    return [mean[part] for part in cut(len(mean), [len(vector) for vector in vectors])]


async def local_sgd(
    node: Node,
    optimizer: Transformation,
    *,
    averaging_period: Count = 10,
    algorithm: Algorithm = "ring",
    optimizer_state: Literal["keep", "reset", "average"] = "keep",
) -> None:
    """Local SGD: `averaging_period` local steps, then the mean of all models (Stich 2019, algorithm 1).

    The optimizer's state is kept, or reset, or averaged along, which sends each of its moments too.
    """
    await _rounds(node, optimizer, algorithm, optimizer_state, lambda: averaging_period)


async def post_local_sgd(
    node: Node,
    optimizer: Transformation,
    *,
    averaging_period: Count = 10,
    switch_step: Count = 100,
    algorithm: Algorithm = "ring",
    optimizer_state: Literal["keep", "reset", "average"] = "keep",
) -> None:
    """Post-local SGD: synchronous for the first `switch_step` mini-batches, local SGD after that.

    Lin et al. 2020, "Don't use large mini-batches, use local SGD", §3; they switch where the rate
    first falls.
    """
    await _rounds(
        node,
        optimizer,
        algorithm,
        optimizer_state,
        lambda: 1 if node.step < switch_step else averaging_period,
    )


async def _rounds(
    node: Node, optimizer: Transformation, algorithm: str, optimizer_state: str, period: Callable[[], int]
) -> None:
    parameters, state, version = node.initial_parameters(), optimizer.initial, 0
    while await node.next_batch_available():
        total, state, made = await walk(node, optimizer, parameters, state, period())
        along = state[1:] if optimizer_state == "average" else ()
        moved, *moments = await means(node, algorithm, [total, *along])
        if along:
            state = (state[0], *moments)
        elif optimizer_state == "reset":
            state = optimizer.initial
        parameters, version = parameters + moved, version + 1
        await node.updated(version, parameters, [Contribution(node.rank, 0, made)])


async def adacomm(
    node: Node,
    optimizer: Transformation,
    *,
    averaging_period: Count = 10,
    interval_s: Rate = 60.0,
    algorithm: Algorithm = "ring",
) -> None:
    """AdaComm: local SGD whose period falls with the loss, τ = ⌈τ₀·√(F/F₀)⌉, anew every `interval_s` seconds.

    Wang and Joshi 2019, "Adaptive communication strategies to achieve the best error-runtime trade-off in
    local-update SGD", eq. 17 with a constant rate; τ₀ is the `averaging_period`, T₀ = 60 s theirs. F is the
    mean loss of all workers' first mini-batches after an averaging, at the very model all have then; it and
    the clock are averaged along with the models. Where nothing is learned the period stays.
    """
    parameters, state, version = node.initial_parameters(), optimizer.initial, 0
    period, first_loss, begun = averaging_period, 0.0, 0.0
    while await node.next_batch_available():
        total, state, made = await walk(node, optimizer, parameters, state, 1)
        known = node.vector([node.loss, node.now])
        if period > 1 and await node.next_batch_available():
            rest, state, more = await walk(node, optimizer, parameters + total, state, period - 1)
            total, made = total + rest, made + more
        moved, agreed = await means(node, algorithm, [total, known])
        loss, now = agreed.tolist()
        first_loss = first_loss or loss
        if now - begun >= interval_s and isfinite(loss) and first_loss > 0:
            period, begun = max(1, ceil(averaging_period * (loss / first_loss) ** 0.5)), now
        parameters, version = parameters + moved, version + 1
        await node.updated(version, parameters, [Contribution(node.rank, 0, made)])


async def diloco(
    node: Node,
    optimizer: Transformation,
    *,
    averaging_period: Count = 500,
    outer_learning_rate: Rate = 0.7,
    outer_momentum: Momentum = 0.9,
    algorithm: Algorithm = "ring",
) -> None:
    """DiLoCo: many local steps, then Nesterov's momentum on the mean of how far the models have moved.

    Douillard et al. 2023, "DiLoCo: distributed low-communication training of language models", algorithm 1:
    H = 500 steps of AdamW (say `optimizer: adam`, which here decays no weights), outer rate 0.7, momentum
    0.9. The inner optimizer's state is kept.
    """
    parameters, state, version = node.initial_parameters(), optimizer.initial, 0
    outer = server_optimizer(
        server_optimizer="nesterov", server_learning_rate=outer_learning_rate, server_momentum=outer_momentum
    )
    outer_state: Any = outer.initial
    while await node.next_batch_available():
        total, state, made = await walk(node, optimizer, parameters, state, averaging_period)
        (moved,) = await means(node, algorithm, [total])
        step, outer_state = outer.step(moved, outer_state)
        parameters, version = parameters + step, version + 1
        await node.updated(version, parameters, [Contribution(node.rank, 0, made)])
