"""Fragments of a model that have their turns to be summed (streaming_diloco.py); rounds of them.

In rounds (shared_rounds.py) those who are there go on when others fail: each is the local steps until a turn,
and the sum of how far the fragment has moved since its last one. The steps after that are made beside the
sum, as many as overlap it, and not beyond the next turn: one sum is under way at a time. Who is back begins
with the common model: what it had moved in other fragments is lost.
"""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from lockstep.strategies import kept
from lockstep.strategies.coded_sums import CodedSum
from lockstep.strategies.node import Contribution, Group, Node, Vector
from lockstep.strategies.optimizers import State, Transformation, restored
from lockstep.strategies.own_step import own_step


class Fragment:
    """A fragment or, of a fragment, a unit: a slice of the parameters, as all workers have it in common."""

    def __init__(
        self, place: slice, common: Vector, offset: int, coded_sum: CodedSum, outer: Transformation
    ) -> None:
        """offset: of the steps at which it has its turn, in a period."""
        self.place, self.common, self.offset, self.sum = place, common, offset, coded_sum
        self.outer, self.outer_state = outer, outer.initial
        self.begun_at = 0  # at which step the last sum was

    @property
    def state(self) -> State:
        """What a checkpoint has of it."""
        return self.common, self.outer_state, self.begun_at

    def go_on_from(self, state: State) -> None:
        """Be as it was saved."""
        self.common, outer, self.begun_at = state
        self.outer_state = restored(outer)

    def step(self, mean: Vector) -> None:
        """Take the outer optimizer's, given the mean of how far all workers have moved."""
        step, self.outer_state = self.outer.step(mean, self.outer_state, self.common)
        self.common = self.common + step


class Streamed:
    """What is changed in such rounds: the model that all have in common, and a worker's own."""

    def __init__(
        self,
        node: Node,
        optimizer: Transformation,
        parts: Sequence[Fragment],
        period: int,
        late: int,
        mixing: float,
    ) -> None:
        """parts: in order; period: steps from a turn to the fragment's next; late: steps beside a sum."""
        self._node, self._optimizer, self._parts, self._period = node, optimizer, parts, period
        self._late, self._mixing = late, mixing
        self._turns = sorted({part.offset or period for part in parts})
        self._beside: Awaitable[None] | None = None  # the steps beside a sum, until that is taken in
        self._unmixed: Sequence[Fragment] = ()  # whose sums are in the common model, and not in the own
        common = tuple(part.state for part in parts)
        version, *state = kept.begin(node, optimizer.initial, common)
        self._begin(version, state)

    def _begin(self, version: int, state: Sequence[Any]) -> None:
        """Begin with the common model of that version, after its last turn."""
        inner, common = state[:2]
        for part, each in zip(self._parts, common, strict=True):
            part.go_on_from(each)
        self.version, self._inner, self._unmixed = version, restored(inner), ()
        self._own = self.vector
        self._moved = 0.0 * self._own  # since each fragment's last turn
        self._reach(self._step_of(version - 1))

    def _reach(self, step: int) -> None:
        """All until that step is in sums."""
        self._made = self._told = step  # steps: in the own model, and in sums
        for part in self._parts:
            part.begun_at = step

    @property
    def vector(self) -> Vector:
        """The common model."""
        return self._node.concatenate([part.common for part in self._parts])

    @property
    def state(self) -> State:
        """The inner optimizer's, and of each fragment the common model and the outer optimizer's."""
        return self._inner, tuple(part.state for part in self._parts)

    @property
    def batches(self) -> int:
        """Steps since the last turn."""
        return self._step_of(self.version) - self._step_of(self.version - 1)

    def take_over(self, version: int, state: State, own: Any) -> None:
        """Be as another; who has made the steps of the round goes on with its own model."""
        self._done()
        if own is None:
            self._begin(version, state)
        else:
            self._told, self._unmixed = own[0], self._due
            for part, each in zip(self._parts, state[1], strict=True):
                begun_at = part.begun_at
                part.go_on_from(each)
                part.begun_at = begun_at
            self.version = version

    async def available(self) -> bool:
        """Whether there is a mini-batch, or something that no sum has yet."""
        await self._settle()
        return await self._node.next_batch_available() or any(p.begun_at < self._made for p in self._parts)

    async def compute(self) -> Any:
        """Make the steps until the turn: how many were made until then, and how far the fragments moved."""
        self._done()
        await self._settle()
        await self._steps(self._step_of(self.version) - self._made)
        for part in self._due:
            part.begun_at = self._made
        return self._made, [self._moved[part.place] for part in self._due]

    async def sum(self, own: Any, adding: int, among: Group) -> Any:
        """The mean of how far all have moved, and meanwhile the next steps."""
        if own is not None and self._late and self._beside is None:
            until_turn = self._step_of(self.version + 1) - self._made
            self._beside = self._node.beside(partial(self._steps, min(self._late, until_turn)))
        moved = own[1] if own is not None else [0.0 * part.common for part in self._due]
        totals = [await p.sum.again(each, among) for p, each in zip(self._due, moved, strict=True)]
        if self._beside is not None:
            await self._beside
        return [total / adding for total in totals]

    async def take(self, found: Any, own: Any, counts: State) -> None:
        """Let the common model step by it, and mix it into the own one."""
        due, node = self._due, self._node
        for part, mean in zip(due, found, strict=True):
            part.step(mean)
        self._done()
        self._unmixed = due
        await self._settle()
        by = []
        if own is None:
            self._reach(max(self._made, self._step_of(self.version)))
        else:
            by, self._told = [Contribution(node.rank, 0, own[0] - self._told)], own[0]
        self.version += 1
        await kept.updated(node, self.version, self.vector, by, *self.state, counts)

    async def _steps(self, count: int) -> None:
        """Make local steps, as many as there are mini-batches for."""
        node, done = self._node, 0
        while done < count and await node.next_batch_available():
            gradient = await node.gradient(self._own)
            step, self._inner = await own_step(
                node, self._optimizer, gradient, self._inner, self._own, additions=2
            )
            self._own, self._moved = self._own + step, self._moved + step
            self._made, done = self._made + 1, done + 1

    async def _settle(self) -> None:
        """When the steps beside a sum are made: mix the common model in."""
        if self._beside is not None:
            await self._beside
            self._beside = None
        if not self._unmixed:
            return
        share, join = self._mixing, self._node.concatenate
        own = {p: share * self._own[p.place] + (1 - share) * p.common for p in self._unmixed}
        moved = {part: each - part.common for part, each in own.items()}
        self._own = join([own.get(part, self._own[part.place]) for part in self._parts])
        self._moved = join([moved.get(part, self._moved[part.place]) for part in self._parts])
        self._unmixed = ()

    @property
    def _due(self) -> list[Fragment]:
        """Those whose turn is next."""
        at = self._turns[self.version % len(self._turns)]
        return [part for part in self._parts if (part.offset or self._period) == at]

    def _step_of(self, turn: int) -> int:
        """How many steps there are until a turn, from 0."""
        periods, place = divmod(turn, len(self._turns))
        return periods * self._period + self._turns[place]

    def _done(self) -> None:
        for part in self._parts:
            part.sum.done()
