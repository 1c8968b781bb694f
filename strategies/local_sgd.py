"""Local steps without a server: every worker steps by itself, and now and then all go on from the mean.

What is summed is how far the models have moved. Failure: each worker saves the model and its own optimizer's
state after a round; after a crash all go on from the newest round that all have saved.
"""

from collections.abc import Sequence
from math import ceil, isfinite
from typing import Literal

from lockstep.strategies import kept
from lockstep.strategies.all_reduce import Replica
from lockstep.strategies.bounds import Momentum, Parts, Rate, Seconds, Steps
from lockstep.strategies.collectives import ALGORITHMS, Algorithm
from lockstep.strategies.local_steps import walk
from lockstep.strategies.node import Contribution, Node, Vector
from lockstep.strategies.optimizers import State, Transformation, restored, server_optimizer
from lockstep.strategies.parts import cut


async def means(node: Node, algorithm: str, vectors: Sequence[Vector]) -> list[Vector]:
    """The mean over all workers of each of some vectors, all in one collective."""
    total = await node.collective(ALGORITHMS[algorithm], node.concatenate(vectors))
    mean = total / len(node.workers)
    return [mean[part] for part in cut(len(mean), [len(vector) for vector in vectors])]


async def local_sgd(
    node: Node,
    optimizer: Transformation,
    *,
    averaging_period: Steps = 10,
    algorithm: Algorithm = "ring",
    optimizer_state: Literal["keep", "reset", "average"] = "keep",
) -> None:
    """Local SGD: `averaging_period` local steps, then the mean of all models (Stich 2019, algorithm 1).

    The optimizer's state is kept, or reset, or averaged along, which sends each of its moments too.
    """
    version, parameters, (state,) = kept.begin(node, node.initial_parameters(), (optimizer.initial,))
    state = restored(state)
    await _rounds(node, optimizer, parameters, state, version, averaging_period, algorithm, optimizer_state)


async def post_local_sgd(
    node: Node,
    optimizer: Transformation,
    *,
    averaging_period: Steps = 10,
    switch_step: Steps = 100,
    algorithm: Algorithm = "ring",
    buckets: Parts = 1,
    optimizer_state: Literal["keep", "reset", "average"] = "keep",
) -> None:
    """Post-local SGD: all-reduce (in `buckets`) for the first `switch_step` mini-batches, then local SGD.

    Lin et al. 2020, "Don't use large mini-batches, use local SGD", §3; they switch where the rate first
    falls. The optimizer's state, until then the same at all workers, is taken along.
    """
    replica = Replica(node, optimizer, buckets)
    while node.step < switch_step and await node.next_batch_available():
        await replica.step(lambda _, gradient: node.collective(ALGORITHMS[algorithm], gradient))
    parameters, version = replica.parameters, replica.version
    await _rounds(
        node, optimizer, parameters, replica.state, version, averaging_period, algorithm, optimizer_state
    )


async def _rounds(
    node: Node,
    optimizer: Transformation,
    parameters: Vector,
    state: State,
    version: int,
    period: int,
    algorithm: str,
    optimizer_state: str,
) -> None:
    while await node.next_batch_available():
        total, state, made = await walk(node, optimizer, parameters, state, period)
        along = state[1:] if optimizer_state == "average" else ()
        moved, *moments = await means(node, algorithm, [total, *along])
        if along:
            state = (state[0], *moments)
        elif optimizer_state == "reset":
            state = optimizer.afresh(node.step)
        parameters, version = parameters + moved, version + 1
        by = Contribution(node.rank, 0, made)  # saved as a `Replica` is: one may have gone before
        await kept.updated(node, version, parameters, [by], parameters, (state,))


async def adacomm(
    node: Node,
    optimizer: Transformation,
    *,
    averaging_period: Steps = 10,
    interval_s: Seconds = 60.0,
    algorithm: Algorithm = "ring",
) -> None:
    """AdaComm: local SGD whose period falls with the loss, τ = ⌈τ₀·√(F/F₀·η₀/η)⌉, anew every `interval_s`.

    Wang and Joshi 2019, "Adaptive communication strategies to achieve the best error-runtime trade-off in
    local-update SGD", eqs. 17–19; τ₀ is the `averaging_period`, T₀ = 60 s theirs. Where √(F/F₀) does not make
    the period shorter it is halved (eq. 18 with γ = ½). η₀/η: how much the rate has decayed; at a rate of 0
    the period stays. F is the mean loss of all workers' first mini-batches after an averaging, at the very
    model all have then; it and the clock are averaged along with the models. Where nothing is learned the
    period stays.
    """
    # the period due by the loss alone, at the first rate; and with the rate
    version, parameters, state, due, period, first_loss, begun = kept.begin(
        node, node.initial_parameters(), optimizer.initial,
        float(averaging_period), averaging_period, 0.0, 0.0,
    )  # fmt: skip
    state = restored(state)
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
            wanted, begun = averaging_period * (loss / first_loss) ** 0.5, now
            due = wanted if ceil(wanted) < ceil(due) else ceil(due) / 2
            if decayed := optimizer.rate(node.step):
                period = max(1, ceil(due / decayed**0.5))
        parameters, version = parameters + moved, version + 1
        by = Contribution(node.rank, 0, made)
        await kept.updated(node, version, parameters, [by], parameters, state, due, period, first_loss, begun)


async def diloco(
    node: Node,
    optimizer: Transformation,
    *,
    averaging_period: Steps = 500,
    outer_learning_rate: Rate = 0.7,
    outer_momentum: Momentum = 0.9,
    algorithm: Algorithm = "ring",
) -> None:
    """DiLoCo: many local steps, then Nesterov's momentum on the mean of how far the models have moved.

    Douillard et al. 2023, "DiLoCo: distributed low-communication training of language models", algorithm 1:
    H = 500 steps of AdamW, here with a weight decay of 0.1 (OpenDiLoCo's) unless another optimizer is given,
    outer rate 0.7, momentum 0.9. The inner optimizer's state is kept.
    """
    outer = server_optimizer(
        server_optimizer="nesterov", server_learning_rate=outer_learning_rate, server_momentum=outer_momentum
    )
    version, parameters, *states = kept.begin(
        node, node.initial_parameters(), optimizer.initial, outer.initial
    )
    state, outer_state = map(restored, states)
    while await node.next_batch_available():
        total, state, made = await walk(node, optimizer, parameters, state, averaging_period)
        (moved,) = await means(node, algorithm, [total])
        step, outer_state = outer.step(moved, outer_state, parameters)
        parameters, version = parameters + step, version + 1
        by = Contribution(node.rank, 0, made)
        await kept.updated(node, version, parameters, [by], parameters, state, outer_state)
