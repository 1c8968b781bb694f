"""What a parameter of a strategy has to do with others: marks in its annotation, beside its bounds."""

from collections.abc import Mapping
from typing import Annotated, Any, get_origin

from lockstep.strategies.plain import Plain


class Mark(Plain):
    """Stands in `Annotated[…]`; `split` takes it off. Two of a kind that say the same are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(type(self))  # some have values that cannot be hashed


class BelongsTo(Mark):
    """The parameter means something only where another, `key`, has one of these values.

    Of several it is enough that one holds. One that the strategy does not have is left out of account.
    """

    key: str
    values: tuple[Any, ...]


class Means(Mark):
    """What a parameter counts, where another factor's of the same name counts something else."""

    meaning: str


class OnBothSides(Mark):
    """The parameter means something only if the worker loop and the synchronisation model have it."""


class AtMostWorkers(Mark):
    """The parameter counts workers: there may be at most `more` than the cluster has."""

    more: int = 0


class Excludes(Mark):
    """With `value`, the parameter `key` may not have some values; `others`: nor all these at once.

    `others` maps parameters, `key` among them, to the values that together are refused; `why` may name them.
    """

    value: Any
    key: str
    others: Mapping[str, tuple[Any, ...]]
    why: str


class InPasses(Mark):
    """The parameter counts the pieces of the model that the strategy computes gradients in, by itself.

    None: it does not. With `key`, only where that other parameter has one of these values.
    """

    key: str = ""
    values: tuple[Any, ...] = ()


class Keeps(Mark):
    """A worker has as many vectors of its parameters' size as the parameter says, besides `keeps`."""


class InParts(Mark):
    """With more than so many, whoever uses a gradient has only a part of it at a time, and not its norm."""

    at_most: int = 1


def split(annotation: Any) -> tuple[Any, list[Mark]]:
    """An annotation without its marks, and these."""
    if get_origin(annotation) is not Annotated:
        return annotation, []
    found = [mark for mark in annotation.__metadata__ if isinstance(mark, Mark)]
    if not found:
        return annotation, found
    rest = tuple(mark for mark in annotation.__metadata__ if not isinstance(mark, Mark))
    bare = annotation.__origin__
    return (Annotated[(bare, *rest)] if rest else bare), found
