"""What a picture shows, in the words of its title: who leads by how much, and whether seeds can tell."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from lockstep.analysis.plots.words import LESS_IS_BETTER, MORE_IS_BETTER
from lockstep.analysis.words import percent

_ALIKE = 0.005  # of the best: who is behind by less leads, too
_MANY = 2  # who are named


class Value(NamedTuple):
    """A metric of one of the things compared: the mean over seeds, and its 95% interval."""

    name: str
    mean: float
    low: float
    high: float
    runs: int


def values(points: Sequence[tuple[str, pd.DataFrame]]) -> list[Value]:
    """A value of each that has one with all seeds: of the rows of `analysis.table.intervals`, the last."""
    return [
        Value(name, row["mean"], row["low"], row["high"], int(row["runs"]))
        for name, rows in points
        for row in rows.tail(1).to_dict("records")
        if np.isfinite(row["mean"]) and not row.get("partly", False)
    ]


def leads(found: Sequence[Value], metric: str, where: str = "") -> str:
    """Who is best by a metric, and how far ahead of the next: "ssp leads by 12% at 8 workers".

    Nothing for a single value, and for a metric of which neither more nor less is better.
    """
    if len(found) < 2 or metric not in LESS_IS_BETTER | MORE_IS_BETTER:
        return ""
    less = metric in LESS_IS_BETTER
    ordered = sorted(found, key=lambda each: each.mean if less else -each.mean)
    best, at = ordered[0], f" at {where}" if where else ""
    first = [each for each in ordered if abs(each.mean - best.mean) <= _ALIKE * abs(best.mean)]
    if len(first) == len(ordered):
        return f"all are alike{at}"
    after = ordered[len(first)]
    unsure = [each for each in ordered[1:] if overlap(best, each)]
    if len(unsure) == len(ordered) - 1 > 1:
        return f"seeds cannot tell who leads{at}"
    if unsure:
        them = [best.name, *(each.name for each in unsure)]
        names = " and ".join(them) if len(them) <= _MANY else f"{len(them)} of {len(ordered)}"
        return f"{names} lead{at}, seeds cannot tell which"
    ahead = _ratio(after.mean, best.mean) if less else _ratio(best.mean, after.mean)
    names = (
        " and ".join(each.name for each in first)
        if len(first) <= _MANY
        else f"{len(first)} of {len(ordered)}"
    )
    return f"{names} lead{'s' * (len(first) == 1)} by {ahead}{at}"


def overlap(one: Value, other: Value) -> bool:
    """Whether their intervals overlap, so that seeds may have made the difference."""
    several = min(one.runs, other.runs) > 1
    return several and one.low <= other.high and other.low <= one.high


def _ratio(more: float, less: float) -> str:
    if less <= 0:
        return "far"
    ahead = more / less - 1
    return percent(ahead) if ahead < 1 else f"a factor of {ahead + 1:.3g}"


def worst(predicted: Sequence[float], measured: Sequence[float]) -> str:
    """The largest error of predictions: "within 4.1%"; nothing where nothing was measured but 0."""
    errors = [
        abs(p - m) / abs(m)
        for p, m in zip(predicted, measured, strict=True)
        if m and np.isfinite([p, m]).all()
    ]
    return f"within {percent(max(errors))}" if errors else ""


def headed(what: str, finding: str) -> str:
    """What is drawn, and what it shows."""
    return f"{what}: {finding}" if finding else what
