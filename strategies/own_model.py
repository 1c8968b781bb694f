"""A worker's own model, where there is no server: its steps, and what it takes over from other workers."""

from typing import Any

from lockstep.strategies import kept
from lockstep.strategies.node import Contribution, Message, Node, Vector
from lockstep.strategies.optimizers import Transformation, restored
from lockstep.strategies.touched import passes_of_step

_MERGE = 9  # passes over a vector of (w·x + w'·y) / (w + w')
_ADD = 3  # of x + x'
_NEXT_TO_NOTHING = 1e-9
_Told = tuple[int, Vector, list[Contribution]]  # the arguments of `Node.updated`


class OwnModel:
    """Parameters of shape (n,), their version (the number of own steps), and their weight in averages.

    Activities of one worker may share it: every change is one piece of work of the node. Models that were
    merged are told to the engine with the next own step. Failure: each worker saves its model, its weight and
    its optimizer's state; after a crash all go on from the newest version that all have saved, or where the
    others go on who failed from the last that it has saved. If there is none it begins with the first
    parameters, which weigh next to nothing: the first model that it merges takes their place. What was on its
    way is lost.
    """

    def __init__(self, node: Node, optimizer: Transformation, weight: float = 1.0) -> None:
        self.node = node
        if node.rejoins:
            weight *= _NEXT_TO_NOTHING  # what it has saved has a weight of its own
        self.version, self.parameters, self.weight, state = kept.begin(
            node, node.initial_parameters(), weight, optimizer.initial
        )
        self._optimizer, self._state = optimizer, restored(state)
        self._passes = passes_of_step(optimizer)
        self._merged: list[Contribution] = []
        self._ended = False

    async def step(self, gradient: Vector) -> Any:
        """Take an own step from the parameters as they are now, and return it, or a multiple that is it."""

        def change() -> tuple[Any, _Told]:
            step, self._state = self._optimizer.step(gradient, self._state, self.parameters)
            self.parameters, self.version = self.parameters + step, self.version + 1
            return step, self._told(Contribution(self.node.rank, 0, 1))

        step, told = await self.node.apply(change, self._passes * gradient.nbytes)
        await kept.updated(self.node, *told, self.parameters, self.weight, self._state)
        return step

    async def add(self, message: Message, place: slice) -> None:
        """Add what another has sent of a part of the parameters to that part."""
        other: Any = message.body

        def change() -> _Told | None:
            parts = [self.parameters[: place.start], self.parameters[place], self.parameters[place.stop :]]
            self.parameters = self.node.concatenate([parts[0], parts[1] + other, parts[2]])
            self._merged += message.contributions(self.version)
            return self._told() if self._ended else None

        told = await self.node.apply(change, _ADD * other.nbytes)
        if told is not None:
            await self.node.updated(*told)

    async def merge(self, message: Message) -> tuple[Vector, int]:
        """Take the weighted mean with the model in a message; parameters and version from before."""
        other: Any = message.body

        def change() -> tuple[Vector, int, _Told | None]:
            before, version = self.parameters, self.version
            total = self.weight + message.weight
            self.parameters = (self.weight * before + message.weight * other) / total
            self._merged += message.contributions(version)
            return before, version, self._told() if self._ended else None

        before, version, told = await self.node.apply(change, _MERGE * other.nbytes)
        if told is not None:
            await self.node.updated(*told)
        return before, version

    async def end(self) -> None:
        """There will be no more own steps: what is merged later is told at once, as part of the last one."""

        def left() -> _Told | None:
            self._ended = not self._merged
            return None if self._ended else self._told()

        while told := await self.node.apply(left, 0):
            await self.node.updated(*told)

    def _told(self, *own: Contribution) -> _Told:
        contributions, self._merged = [*self._merged, *own], []
        # a worker that has had no mini-batch, but merges models, has made an update too
        return max(self.version, 1), self.parameters, contributions
