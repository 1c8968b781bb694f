"""A number times a vector, multiplied when it is added to another: one pass over the memory, rounded once."""

from dataclasses import dataclass
from typing import Any

Number = int | float


@dataclass(slots=True)
class Multiple:
    """`factor * vector`; times a number or a vector, or divided by one, it is a multiple again.

    `0 + multiple` is the vector that it stands for.
    """

    factor: float
    vector: Any  # of shape (n,)

    @property
    def nbytes(self) -> int:
        """Of the vector that it stands for."""
        return self.vector.nbytes  # type: ignore[no-any-return]

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Multiple):
            other = 0 + other
        if isinstance(other, Number):
            own = self.factor * self.vector
            return own + other if other else own
        return other.add(self.vector, alpha=self.factor)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return 0 + self - other

    def __rsub__(self, other: Any) -> Any:
        return other + -self

    def __mul__(self, other: Any) -> "Multiple":
        if isinstance(other, Number):
            return Multiple(self.factor * other, self.vector)
        if isinstance(other, Multiple):
            return Multiple(self.factor * other.factor, self.vector * other.vector)
        return Multiple(self.factor, self.vector * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Multiple":
        if isinstance(other, Number):
            return Multiple(self.factor / other, self.vector)
        return Multiple(self.factor, self.vector / other)

    def __neg__(self) -> "Multiple":
        return Multiple(-self.factor, self.vector)

    def norm(self) -> float:
        """Of the vector that it stands for, the Euclidean one."""
        return abs(self.factor) * float(self.vector.norm())

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any, options: Any = None) -> Any:
        """What torch asks of an operand it does not know; else it looks for a way of its own, for 15 us."""
        if function.__name__ != "add" or options:
            return NotImplemented
        vector, multiple = arguments
        return multiple + vector


def multiple(vector: Any) -> Multiple:
    """A vector, or a multiple of one, as a multiple."""
    return vector if isinstance(vector, Multiple) else Multiple(1.0, vector)
