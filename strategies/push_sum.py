"""Push-sum: averages over directed edges, in which a worker that is told more counts more."""

from collections.abc import Sequence
from typing import Any

from lockstep.strategies.node import Message, Node, Vector
from lockstep.strategies.updates import sum_of


class PushSum:
    """A worker's part x of the sum of all models, shape (n,), and its part w of the number of workers.

    Its model is x/w (Kempe, Dobra and Gehrke 2003). What is sent is in nobody's part until it is merged.

    Σw is the number of workers, so that the mean of all models moves by the mean of all steps. Once somebody
    has failed, whose part is lost, steps are in `proportion` to the parts: then a model moves by its step
    whatever Σw is, and a half that has been on its way for some rounds by the step of who merges it, as
    often.
    """

    def __init__(self, node: Node, x: Vector, weight: float, proportion: int) -> None:
        """proportion: 1 if somebody has failed, else 0."""
        self.node, self.x, self.weight, self.proportion = node, x, weight, proportion
        self._step: Any = None  # the last one, if somebody has failed

    @property
    def model(self) -> Vector:
        """x/w."""
        return self.x / self.weight

    def take_over(self, shown: Message) -> None:
        """Be a copy of another's part."""
        assert shown.body is not None
        self.x, self.weight = shown.body, shown.weight

    def move(self, step: Any, disturbed: bool) -> None:
        """Take a step; disturbed: whether somebody has failed."""
        self.proportion = int(self.proportion or disturbed)
        self._step = step if self.proportion else None
        self.x = self.x + (step * self.weight if self.proportion else step)

    def send_half(self, to: int, number: int) -> None:
        """Keep a half of both; the other is on its way to a rank."""
        self.x, self.weight = self.x / 2, self.weight / 2
        self.node.send(to, "half", self.x, version=number, weight=self.weight)

    async def merge(self, halves: Sequence[Message], number: int) -> None:
        """Add what others have sent, in the order given, in this round or before."""
        if not halves:
            return
        bodies: list[Any] = [self.x, *(half.body for half in halves)]
        missed = sum(half.weight * (number - half.version) for half in halves)
        if missed and self._step is not None:
            bodies.append(self._step * missed)
        self.x = await self.node.apply(lambda: sum_of(bodies), (len(bodies) + 1) * self.x.nbytes)
        self.weight += sum(half.weight for half in halves)
