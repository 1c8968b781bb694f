"""How much memory vector arithmetic touches: counted by doing it with a vector that counts.

Every operation reads its operands and writes its result, once each, as the engines' vectors do: nothing is
fused but the addition of a multiple, and nothing is done in place.
"""

from functools import lru_cache
from typing import Any

from lockstep.strategies.multiple import Multiple


class Counting:
    """Stands for a vector; all that are made from one add to the same tally of passes over a vector."""

    def __init__(self, tally: list[int]) -> None:
        self.tally = tally

    def _made(self, other: Any = None) -> "Counting":
        two = isinstance(other, Counting) and other is not self
        self.tally[0] += 3 if two else 2
        return Counting(self.tally)

    def __add__(self, other: Any) -> "Counting":
        return NotImplemented if isinstance(other, Multiple) else self._made(other)

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _made
    __pow__ = __neg__ = _made

    def add(self, other: "Counting", *, alpha: float) -> "Counting":
        """This plus a multiple of another, in one pass."""
        return self._made(other)

    def norm(self) -> float:
        """Reads all of it, and writes none."""
        self.tally[0] += 1
        return 1.0


@lru_cache(64)
def passes_of_step(optimizer: Any, additions: int = 1) -> int:
    """How often a step from a gradient, and its additions to vectors, read or write a vector."""
    tally, state = [0], optimizer.initial
    for _ in range(2):  # the moments are vectors from the second step on
        tally[0] = 0
        step, state = optimizer.step(Counting(tally), state, Counting(tally))
        for _ in range(additions):
            step + Counting(tally)
    return tally[0]
