"""Local steps without a server: every worker steps by itself, and now and then all go on from the mean.

What is summed is how far the models have moved. Failure: each worker saves the model and its own optimizer's
state after a round; after a crash all go on from the newest round that all have saved. Or, with `local-sgd`
and `diloco`, those who are there do the sum again (shared_rounds.py), of the steps that they have made; who
is back takes over the model and the optimizer's state of another.
"""

from collections.abc import Sequence
from math import ceil, isfinite
from typing import Any, Literal

from lockstep.strategies import kept
from lockstep.strategies.all_reduce import Replica
from lockstep.strategies.bounds import Momentum, Parts, Rate, Seconds, Steps
from lockstep.strategies.collectives import ALGORITHMS, Algorithm
from lockstep.strategies.local_steps import walk
from lockstep.strategies.node import Contribution, Group, Node, Vector
from lockstep.strategies.optimizers import State, Transformation, restored, server_optimizer
from lockstep.strategies.parts import cut
from lockstep.strategies.shared_rounds import SharedRounds


async def means(
    node: Node,
    algorithm: str,
    vectors: Sequence[Vector],
    adding: int | None = None,
    among: Group | None = None,
) -> list[Vector]:
    """The mean over all workers, or the `adding` ones of some, of each of some vectors, in one collective."""
    total = await node.collective(ALGORITHMS[algorithm], node.concatenate(vectors), among)
    mean = total / (adding or len(node.workers))
    return [mean[part] for part in cut(len(mean), [len(vector) for vector in vectors])]


class Averaged:
    """A model whose rounds are local steps, and the mean of how far all have moved (shared_rounds.py)."""

    def __init__(
        self,
        node: Node,
        optimizer: Transformation,
        period: int,
        algorithm: str,
        begun: Sequence[Any],
        optimizer_state: str = "keep",
        outer: Transformation | None = None,
    ) -> None:
        """begun: version, parameters, and the states of the optimizer and of what steps by the mean."""
        self.version: int = begun[0]
        self.vector: Vector = begun[1]
        self._node, self._optimizer, self._period, self._algorithm = node, optimizer, period, algorithm
        self._states = [*map(restored, begun[2])]
        self._kind, self._outer = optimizer_state, outer

    async def run(self) -> None:
        """Make all rounds."""
        if self._node.goes_on:
            return await SharedRounds(self._node, self).run()
        while await self._node.next_batch_available():
            own = await self.compute()
            await self.take(await self.sum(own), own)

    @property
    def state(self) -> State:
        """The parameters, and the states."""
        return self.vector, tuple(self._states)

    def take_over(self, version: int, state: State, own: Any) -> None:
        """Be as another, but for the optimizer's state of who has added `own`, if it keeps that."""
        self.version, (self.vector, states) = version, state
        self._states = [*map(restored, states)]
        if own is not None and self._kind == "keep":
            _, self._states[0], _ = own

    def steps(self, rounds: int) -> int:
        """A period each."""
        return rounds * self._period

    async def compute(self) -> tuple[Vector, State, int]:
        """Make local steps."""
        return await walk(self._node, self._optimizer, self.vector, self._states[0], self._period)

    async def sum(self, own: Any, adding: int | None = None, among: Group | None = None) -> Any:
        """The mean of how far all have moved, and perhaps of their moments."""
        if own is None:
            nothing = 0.0 * self.vector
            own = nothing, (None, *[nothing] * self._optimizer.moments), 0
        total, state, _ = own
        along = state[1:] if self._kind == "average" else ()
        return await means(self._node, self._algorithm, [total, *along], adding, among)

    async def take(self, found: Any, own: Any, *more: State) -> None:
        """Step by it."""
        node, (step, *moments) = self._node, found
        _, state, made = own or (None, self._states[0], 0)
        if moments:
            state = (state[0], *moments)
        elif self._kind == "reset":
            state = self._optimizer.afresh(node.step)
        self._states[0] = state
        if self._outer is not None:
            step, self._states[1] = self._outer.step(step, self._states[1], self.vector)
        self.vector, self.version = self.vector + step, self.version + 1
        by = [Contribution(node.rank, 0, made)] if made else []
        await kept.updated(node, self.version, self.vector, by, self.vector, tuple(self._states), *more)


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
    begun = kept.begin(node, node.initial_parameters(), (optimizer.initial,))
    await Averaged(node, optimizer, averaging_period, algorithm, begun, optimizer_state).run()


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
    begun = replica.version, replica.parameters, [replica.state]
    await Averaged(node, optimizer, averaging_period, algorithm, begun, optimizer_state).run()


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
    begun = kept.begin(node, node.initial_parameters(), (optimizer.initial, outer.initial))
    await Averaged(node, optimizer, averaging_period, algorithm, begun, outer=outer).run()
