"""The values that a strategy's parameters may take, and what they belong to, as annotations; the checks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from lockstep.strategies import graphs


@dataclass(frozen=True)
class Bound:
    """`ge`, `gt`, `lt` and `le` as in ≥, >, < and ≤; None is no bound."""

    ge: float | None = None
    gt: float | None = None
    lt: float | None = None
    le: float | None = None


@dataclass(frozen=True)
class After:
    """Of a parameter that says when something happens: after so many of these. See `idle.never_acted`."""

    unit: str


@dataclass(frozen=True)
class BelongsTo:
    """The parameter means something only where another, `key`, has one of these values.

    Of several it is enough that one holds. One that the strategy does not have is left out of account.
    """

    key: str
    values: tuple[Any, ...]


Count = Annotated[int, Bound(ge=1)]
Steps = Annotated[int, Bound(ge=1), After("mini-batches")]  # of a worker
Updates = Annotated[int, Bound(ge=0), After("updates")]
Seconds = Annotated[float, Bound(gt=0), After("seconds")]
Parts = Annotated[int, Bound(ge=1, le=10_000)]  # that a vector travels in: each is a message
Whole = Annotated[int, Bound(ge=0)]
Rate = Annotated[float, Bound(gt=0, le=1e6)]  # beyond it, float32 knows no multiples
NonNegative = Annotated[float, Bound(ge=0, le=1e6)]
Momentum = Annotated[float, Bound(ge=0, lt=1)]
Probability = Annotated[float, Bound(ge=0, le=1)]
Graph = Annotated[str | Sequence[Sequence[int]], "graph"]  # one of graphs.NAMES, or edges
Fraction = Annotated[float, Bound(gt=0, le=1)]


def owners(annotation: Any) -> tuple[Any, list[BelongsTo]]:
    """An annotation without what the parameter belongs to, and that."""
    if get_origin(annotation) is not Annotated:
        return annotation, []
    found = [mark for mark in annotation.__metadata__ if isinstance(mark, BelongsTo)]
    rest = tuple(mark for mark in annotation.__metadata__ if not isinstance(mark, BelongsTo))
    bare = annotation.__origin__
    return (Annotated[(bare, *rest)] if rest else bare), found


def optional(annotation: Any) -> tuple[Any, bool]:
    """An annotation without None, and whether None was one of its choices."""
    if get_origin(annotation) in (Union, UnionType) and NoneType in get_args(annotation):
        (inner,) = [choice for choice in get_args(annotation) if choice is not NoneType]
        return inner, True
    return annotation, False


def problem(value: Any, annotation: Any) -> str | None:
    """What is wrong with a value, and what would be valid; None if nothing is."""
    annotation, may_be_none = optional(annotation)
    if value is None and may_be_none:
        return None
    if annotation is bool:
        return None if isinstance(value, bool) else f"{value!r} is not true or false"
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        return None if value in choices else f"{value!r} is not one of {', '.join(map(str, choices))}"
    if annotation == Graph:
        return _graph_problem(value)
    kind, bound = get_args(annotation)[:2]
    words = {int: "a whole number", float: "a number"}[kind] + _limits(bound)
    numeric = int if kind is int else int | float
    fine = isinstance(value, numeric) and not isinstance(value, bool) and math.isfinite(value)
    if fine and all(
        limit is None or holds
        for limit, holds in [
            (bound.ge, value >= (bound.ge or 0)),
            (bound.gt, value > (bound.gt or 0)),
            (bound.lt, value < (bound.lt or 0)),
            (bound.le, value <= (bound.le or 0)),
        ]
    ):
        return None
    return f"{value!r} is not {words}"


def after(annotation: Any) -> str | None:
    """In what a parameter counts how long something has to wait; None if it does not."""
    found = [each for each in get_args(optional(annotation)[0]) if isinstance(each, After)]
    return found[0].unit if found else None


def misfit(value: Any, annotation: Any, workers: int) -> str | None:
    """What is wrong with a valid value on a cluster of so many workers; None if nothing is."""
    return graphs.misfit(value, workers) if annotation == Graph and not isinstance(value, str) else None


def _graph_problem(value: Any) -> str | None:
    valid = f"{', '.join(graphs.NAMES)}, or edges such as [[0, 1], [1, 2]]"
    if isinstance(value, str):
        return None if value in graphs.NAMES else f"{value!r} is not one of {valid}"
    for edge in value if isinstance(value, list | tuple) else [value]:
        if not (
            isinstance(edge, list | tuple)
            and len(edge) == 2
            and all(isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 for rank in edge)
            and edge[0] != edge[1]
        ):
            return f"{edge!r} is not a pair of different workers; valid are {valid}"
    return None


def _limits(bound: Bound) -> str:
    limits = [("≥", bound.ge), (">", bound.gt), ("<", bound.lt), ("≤", bound.le)]
    return "".join(f" {sign} {limit:g}" for sign, limit in limits if limit is not None)
