"""Push-sum: averages over directed edges, in which a worker that is told more counts more."""

from collections.abc import Sequence

from lockstep.strategies.node import Message, Node, Vector
from lockstep.strategies.updates import sum_of


class PushSum:
    """A worker's part x of the sum of all models, shape (n,), and its part w of the number of workers.

    Its model is x/w (Kempe, Dobra and Gehrke 2003). What is sent is in nobody's part until it is merged.
    """

    def __init__(self, node: Node, x: Vector, weight: float) -> None:
        self.node, self.x, self.weight = node, x, weight

    @property
    def model(self) -> Vector:
        """x/w."""
        return self.x / self.weight

    def send_half(self, to: int, version: int) -> None:
        """Keep a half of both; the other is on its way to a rank."""
        self.x, self.weight = self.x / 2, self.weight / 2
        self.node.send(to, "half", self.x, version=version, weight=self.weight)

    async def merge(self, halves: Sequence[Message]) -> None:
        """Add what others have sent, in the order given."""
        if not halves:
            return
        bodies = [self.x, *(half.body for half in halves)]
        self.x = await self.node.apply(lambda: sum_of(bodies), (len(bodies) + 1) * self.x.nbytes)
        self.weight += sum(half.weight for half in halves)
