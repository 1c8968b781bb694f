"""Bodies of a sizes-only simulation: a vector that knows its length and nothing else."""

from math import inf, nan
from typing import Any, Self

from lockstep.strategies.multiple import Multiple


class Sized:
    """A flat vector of `length` elements of `itemsize` bytes; arithmetic keeps the size."""

    __slots__ = ("itemsize", "length", "nbytes")
    slack: float = 0  # elements by which lengths of what is combined may differ

    def __init__(self, length: int, itemsize: int) -> None:
        self.length = length
        self.itemsize = itemsize
        self.nbytes = length * itemsize  # size on the wire

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> "Sized":
        if part.start == 0 and part.stop == self.length and part.step is None:
            return self
        return type(self)(len(range(*part.indices(self.length))), self.itemsize)

    def _same(self, other: Any = None) -> Self:
        if isinstance(other, Sized) and abs(other.length - self.length) > self.slack:
            raise ValueError(f"vectors of {self.length} and {other.length} elements do not combine")
        return self

    def __add__(self, other: Any) -> Self:
        return self._same(other.vector if isinstance(other, Multiple) else other)

    __radd__ = __sub__ = __mul__ = __rmul__ = _same
    __truediv__ = __rtruediv__ = __pow__ = __neg__ = _same

    def add(self, other: "Sized", *, alpha: float) -> Self:
        """This plus a multiple of another."""
        return self._same(other)

    def norm(self) -> float:
        """Which nobody knows."""
        return nan

    def tolist(self) -> list[float]:
        """The elements, which nobody knows."""
        return [nan] * self.length


class About(Sized):
    """Of one worker that stands for others: what it gets from them may have some elements more, or fewer."""

    __slots__ = ()
    slack = inf


def concatenate(parts: "list[Sized] | tuple[Sized, ...]") -> Sized:
    """Join vectors end to end."""
    return type(parts[0])(sum(len(part) for part in parts), parts[0].itemsize)
