"""The values that a strategy's parameters may take, as annotations; the checks. Beside them: marks.py."""

import math
from collections.abc import Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from lockstep.strategies import graphs
from lockstep.strategies.marks import InParts, Means, OnBothSides

_GRAPHS = f"{', '.join(graphs.NAMES)}, or edges such as [[0, 1], [1, 2]]"


class Bound(NamedTuple):
    """`ge`, `gt`, `lt` and `le` as in ≥, >, < and ≤; None is no bound."""

    ge: float | None = None
    gt: float | None = None
    lt: float | None = None
    le: float | None = None


class After(NamedTuple):
    """Of a parameter that says when something happens: after so many of these. See `idle.never_acted`."""

    unit: str


Count = Annotated[int, Bound(ge=1)]
Steps = Annotated[int, Bound(ge=1), After("mini-batches")]  # of a worker
Updates = Annotated[int, Bound(ge=0), After("updates")]
Seconds = Annotated[float, Bound(gt=0), After("seconds")]
Parts = Annotated[int, Bound(ge=1, le=10_000)]  # that a vector travels in: each is a message
Chunks = Annotated[Parts, OnBothSides(), InParts()]  # one side cuts, the other puts together
Whole = Annotated[int, Bound(ge=0)]
Clocks = Annotated[Whole, Means("how many clocks a worker may be ahead of the slowest")]
Unanswered = Annotated[Whole, Means("how many of a worker's own pushes may be unanswered")]
Rate = Annotated[float, Bound(gt=0, le=1e6)]  # beyond it, float32 knows no multiples
NonNegative = Annotated[float, Bound(ge=0, le=1e6)]
Momentum = Annotated[float, Bound(ge=0, lt=1)]
Probability = Annotated[float, Bound(ge=0, le=1)]
Graph = Annotated[str | Sequence[Sequence[int]], "graph"]  # one of graphs.NAMES, or edges
Fraction = Annotated[float, Bound(gt=0, le=1)]
Milestones = Annotated[Sequence[int], "milestones"]  # ascending numbers of steps


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
    if annotation == Graph:
        return _graph_problem(value)
    if annotation == Milestones:
        return None if _ascend(value) else f"{value!r} is not {described(annotation)}"
    if annotation is bool:
        fine = isinstance(value, bool)
    elif get_origin(annotation) is Literal:
        fine = value in get_args(annotation)
    else:
        fine = _is_number(value, *get_args(annotation)[:2])
    return None if fine else f"{value!r} is not {described(annotation)}"


def described(annotation: Any) -> str:
    """The values that a parameter may take, in words."""
    if annotation is bool:
        return "true or false"
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(map(str, get_args(annotation)))}"
    if annotation == Graph:
        return f"one of {_GRAPHS}"
    if annotation == Milestones:
        return "a list of ascending whole numbers ≥ 1, such as [300, 400]"
    kind, bound = get_args(annotation)[:2]
    return {int: "a whole number", float: "a number"}[kind] + _limits(bound)


def _is_number(value: Any, kind: type, bound: Bound) -> bool:
    numeric = int if kind is int else int | float
    if not isinstance(value, numeric) or isinstance(value, bool) or not math.isfinite(value):
        return False
    limits = [
        (bound.ge, value >= (bound.ge or 0)),
        (bound.gt, value > (bound.gt or 0)),
        (bound.lt, value < (bound.lt or 0)),
        (bound.le, value <= (bound.le or 0)),
    ]
    return all(limit is None or holds for limit, holds in limits)


def _ascend(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return all(_is_number(each, int, Bound(ge=1)) for each in value) and list(value) == sorted({*value})


@cache
def after(annotation: Any) -> str | None:
    """In what a parameter counts how long something has to wait; None if it does not."""
    found = [each for each in get_args(optional(annotation)[0]) if isinstance(each, After)]
    return found[0].unit if found else None


def mismatch(value: Any, annotation: Any, workers: int) -> str | None:
    """What is wrong with a valid value on a cluster of so many workers; None if nothing is."""
    return graphs.mismatch(value, workers) if annotation == Graph and not isinstance(value, str) else None


def _graph_problem(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value in graphs.NAMES else f"{value!r} is not one of {_GRAPHS}"
    for edge in value if isinstance(value, list | tuple) else [value]:
        if not (
            isinstance(edge, list | tuple)
            and len(edge) == 2
            and all(isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 for rank in edge)
            and edge[0] != edge[1]
        ):
            return f"{edge!r} is not a pair of different workers; valid are {_GRAPHS}"
    return None


def _limits(bound: Bound) -> str:
    limits = [("≥", bound.ge), (">", bound.gt), ("<", bound.lt), ("≤", bound.le)]
    said = " and ".join(f"{sign} {limit:g}" for sign, limit in limits if limit is not None)
    return f" {said}" if said else ""
