"""Local steps without a server: every worker steps by itself, and now and then all go on from the mean.

What is summed is how far the models have moved. Failure: each worker saves the model and its own optimizer's
state after a round; after a crash all go on from the newest round that all have saved. Or those who are there
do the sum again (shared_rounds.py), of the steps that they have made; who is back takes over the model and
the optimizer's state of another.
"""

from collections.abc import Callable, Sequence
from math import ceil, isfinite
from typing import Any, Literal

from lockstep.strategies import kept
from lockstep.strategies.all_reduce import Replica, Shared
from lockstep.strategies.bounds import Momentum, Parts, Rate, Seconds, Steps
from lockstep.strategies.codecs import Codec, Encoder
from lockstep.strategies.coded_sums import CodedSum
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

    @property
    def batches(self) -> int:
        """A period."""
        return self._period

    def take_over(self, version: int, state: State, own: Any) -> None:
        """Be as another, but for the optimizer's state of who has added `own`, if it keeps that."""
        self.version, (self.vector, states) = version, state
        self._states = [*map(restored, states)]
        if own is not None and self._kind == "keep":
            self._states[0] = own[1]

    async def available(self) -> bool:
        """Whether there is a mini-batch."""
        return await self._node.next_batch_available()

    async def compute(self) -> tuple[Any, ...]:
        """Make local steps."""
        return await walk(self._node, self._optimizer, self.vector, self._states[0], self._period)

    async def sum(self, own: Any, adding: int | None = None, among: Group | None = None) -> Any:
        """The mean of how far all have moved, and perhaps of their moments."""
        if own is None:
            nothing = 0.0 * self.vector
            own = nothing, (None, *[nothing] * self._optimizer.moments), 0
        total, state, *_ = own
        along = state[1:] if self._kind == "average" else ()
        return await means(self._node, self._algorithm, [total, *along], adding, among)

    async def take(self, found: Any, own: Any, *more: State) -> None:
        """Step by it."""
        node, (step, *moments) = self._node, found
        _, state, made, *_ = own or (None, self._states[0], 0)
        if moments:
            state = (state[0], *moments)
        elif self._kind == "reset":
            state = self._optimizer.afresh(node.step)
        self._states[0] = state
        if self._outer is not None:
            step, self._states[1] = self._outer.step(step, self._states[1], self.vector)
        self.vector, self.version = self.vector + step, self.version + 1
        by = [Contribution(node.rank, 0, made)] if made else []
        await kept.updated(node, self.version, self.vector, by, *self.state, *more)


class Later:
    """Rounds of gradients until a version, and of local steps from then on."""

    def __init__(self, gradients: Shared, switch: int, local: Callable[[Sequence[Any]], Averaged]) -> None:
        """local: what makes those of local steps, from a version, parameters and states."""
        self._gradients, self._switch, self._local = gradients, switch, local
        self._now: Shared | Averaged = gradients
        self._look()

    def _look(self) -> None:
        if self._now is self._gradients and self.version >= self._switch:
            replica = self._gradients.replica
            self._now = self._local((replica.version, replica.parameters, [replica.state]))

    @property
    def version(self) -> int:
        """Of either."""
        return self._now.version

    @property
    def vector(self) -> Vector:
        """The parameters."""
        return self._now.vector

    @property
    def state(self) -> State:
        """What either has."""
        return self._now.state

    @property
    def batches(self) -> int:
        """One, and then a period."""
        return self._now.batches

    def take_over(self, version: int, state: State, own: Any) -> None:
        """Be as another, which may have changed already, or not yet."""
        if version < self._switch:
            self._now = self._gradients
        elif self._now is self._gradients:
            self._now, own = self._local((version, *state)), None
        self._now.take_over(version, state, own)

    async def available(self) -> bool:
        """Of either."""
        return await self._now.available()

    async def compute(self) -> Any:
        """A gradient, or local steps."""
        return await self._now.compute()

    async def sum(self, own: Any, adding: int, among: Group) -> Any:
        """Theirs."""
        return await self._now.sum(own, adding, among)

    async def take(self, found: Any, own: Any, counts: State) -> None:
        """Step by it."""
        await self._now.take(found, own, counts)
        self._look()


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

    def local(begun: Sequence[Any]) -> Averaged:
        return Averaged(node, optimizer, averaging_period, algorithm, begun, optimizer_state)

    if node.goes_on:
        sums = [CodedSum(node, Encoder(node, Codec("none")), algorithm) for _ in range(buckets)]
        return await SharedRounds(node, Later(Shared(replica, sums), switch_step, local)).run()
    while node.step < switch_step and await node.next_batch_available():
        await replica.step(lambda _, gradient: node.collective(ALGORITHMS[algorithm], gradient))
    await local((replica.version, replica.parameters, [replica.state])).run()


class Adaptive(Averaged):
    """AdaComm's: its period falls with the loss, which is averaged along with the models."""

    def __init__(
        self,
        node: Node,
        optimizer: Transformation,
        period: int,
        interval_s: float,
        algorithm: str,
        begun: Sequence[Any],
    ) -> None:
        """begun: as there, and the numbers by which all agree on the period."""
        super().__init__(node, optimizer, begun[3][1], algorithm, begun[:3])
        self._first, self._interval_s = period, interval_s
        self._numbers(begun[3])

    def _numbers(self, numbers: State) -> None:
        # the period due by the loss alone, at the first rate; and with the rate; steps of who missed none
        self._due, self._period, self._first_loss, self._since, self._steps = numbers

    @property
    def state(self) -> State:
        """Of the average, and the numbers."""
        return *super().state, (self._due, self._period, self._first_loss, self._since, self._steps)

    def take_over(self, version: int, state: State, own: Any) -> None:
        """Be as another, also in its numbers."""
        super().take_over(version, state[:2], own)
        self._numbers(state[2])

    async def compute(self) -> tuple[Any, ...]:
        """Local steps; the loss of the first, and the time."""
        node, optimizer = self._node, self._optimizer
        total, state, made = await walk(node, optimizer, self.vector, self._states[0], 1)
        known = node.vector([node.loss, node.now])
        if self._period > 1 and await node.next_batch_available():
            rest, state, more = await walk(node, optimizer, self.vector + total, state, self._period - 1)
            total, made = total + rest, made + more
        return total, state, made, known

    async def sum(self, own: Any, adding: int | None = None, among: Group | None = None) -> Any:
        """The mean of how far all have moved, of their losses and of their clocks."""
        total, known = own[::3] if own else (0.0 * self.vector, self._node.vector([0.0, 0.0]))
        return await means(self._node, self._algorithm, [total, known], adding, among)

    async def take(self, found: Any, own: Any, *more: State) -> None:
        """Step by it; the next period."""
        moved, agreed = found
        loss, now = agreed.tolist()
        self._steps += self._period
        self._first_loss = self._first_loss or loss
        if now - self._since >= self._interval_s and isfinite(loss) and self._first_loss > 0:
            wanted, self._since = self._first * (loss / self._first_loss) ** 0.5, now
            self._due = wanted if ceil(wanted) < ceil(self._due) else ceil(self._due) / 2
            if decayed := self._optimizer.rate(self._steps):
                self._period = max(1, ceil(self._due / decayed**0.5))
        await super().take([moved], own, *more)


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
    numbers = float(averaging_period), averaging_period, 0.0, 0.0, 0
    begun = kept.begin(node, node.initial_parameters(), (optimizer.initial,), numbers)
    await Adaptive(node, optimizer, averaging_period, interval_s, algorithm, begun).run()


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
