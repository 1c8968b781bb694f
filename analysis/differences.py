"""What is different between runs: in their scenarios, in every metric, and in where a step's time goes.

A side is a table of runs (`analysis.table`): one run, one with several seeds, or the points of a sweep.
Points of two sides are compared that agree in all keys which vary in both of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from lockstep.analysis.plots.words import is_key
from lockstep.analysis.student import half_width_of
from lockstep.analysis.table import undisturbed
from lockstep.scenarios import ScenarioError

PARTS = ("compute", "update", "send", "network", "wait")
_CHANCE = ("seed", "name")  # differ between runs of one point
_NOT_MEASURED = ("point", "attempts", "schema")
_SAME = 1e-12  # relative: what rounding does to means


class Side(NamedTuple):
    """Runs, and what they are called."""

    name: str
    runs: pd.DataFrame


@dataclass(frozen=True)
class Change:
    """What became of a metric: its means, and the second less the first with its 95% interval.

    `low` and `high` are None with one run on each side, which leave nothing to estimate it from.
    """

    first: float
    second: float
    low: float | None
    high: float | None

    @property
    def change(self) -> float:
        """In the unit of the metric."""
        return self.second - self.first

    @property
    def relative(self) -> float | None:
        """The change ÷ the first; None where that is 0."""
        return self.change / abs(self.first) if self.first else None

    @property
    def certain(self) -> bool:
        """Whether there is a difference that the runs can tell from chance."""
        if self.low is not None and self.high is not None:
            return self.low > 0 or self.high < 0
        return abs(self.change) > _SAME * max(abs(self.first), abs(self.second))


@dataclass(frozen=True)
class Pair:
    """A point of each of two sides."""

    sides: tuple[str, str]
    where: Mapping[str, Any]
    """The keys that tell the points of a side apart, and their values here."""
    runs: tuple[int, int]
    keys: Mapping[str, tuple[Any, Any]]
    """The keys of the scenarios that differ, and `engine`; None where one has no such key."""
    metrics: Mapping[str, Change]
    step_s: Mapping[str, tuple[float, float]]
    """Seconds of a step, in which each replica makes a mini-batch, by what workers do meanwhile."""
    bottlenecks: tuple[str | None, str | None]

    @property
    def same(self) -> bool:
        """Whether neither a key nor any metric differs."""
        return not self.keys and not any(each.certain for each in self.metrics.values())

    def to_json(self) -> dict[str, Any]:
        """As plain values: numbers, texts, lists and mappings."""
        metrics = {
            name: {
                "first": each.first, "second": each.second, "change": each.change,
                "relative": each.relative, "low": each.low, "high": each.high, "certain": each.certain,
            }
            for name, each in self.metrics.items()
        }  # fmt: skip
        return {
            "sides": list(self.sides), "where": dict(self.where), "runs": list(self.runs), "same": self.same,
            "keys": {key: list(values) for key, values in self.keys.items()}, "metrics": metrics,
            "step_s": {part: list(values) for part, values in self.step_s.items()},
            "bottleneck": list(self.bottlenecks),
        }  # fmt: skip


def differences(first: Side, second: Side) -> list[Pair]:
    """Compare the points of two sides, in the order of the first's.

    Raises ScenarioError if a side has no run that ended, or no point has its like.
    """
    both = [_ended(side) for side in (first, second)]
    varying = [[*_varying(side.runs)] for side in both]
    common = [key for key in varying[0] if key in varying[1]]
    names = list(dict.fromkeys([*varying[0], *varying[1]]))
    found = []
    for mine in _points(both[0].runs, varying[0]):
        for its in _points(both[1].runs, varying[1]):
            if all(_value(mine, key) == _value(its, key) for key in common):
                where = {key: _value(mine if key in varying[0] else its, key) for key in names}
                found.append(_pair((first.name, second.name), where, mine, its))
    if not found:
        said = ", ".join(common)
        raise ScenarioError(f"no run of it has the {said} of one of {first.name!r}", file=second.name)
    return found


def _ended(side: Side) -> Side:
    runs = side.runs
    if "status" in runs:
        runs = runs[runs["status"] == "ok"]
    if runs.empty:
        raise ScenarioError("no run in it has ended well", file=side.name)
    return Side(side.name, undisturbed(runs).reset_index(drop=True))


def _varying(runs: pd.DataFrame) -> list[str]:
    """The keys that tell the points of one side apart."""
    keys = [str(column) for column in runs if is_key(str(column)) and column not in _CHANCE]
    keys = [key for key in keys if not key.startswith("stop.")]  # `recommend` lets good candidates run longer
    return [key for key in keys if len({_plain(value) for value in runs[key]}) > 1]


def _points(runs: pd.DataFrame, keys: Sequence[str]) -> list[pd.DataFrame]:
    """The runs that agree in those keys, in the order of their first."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, values in enumerate(zip(*(runs[key] for key in keys), strict=True) if keys else ()):
        groups.setdefault(tuple(map(_plain, values)), []).append(place)
    return [runs.iloc[places] for places in groups.values()] if keys else [runs]


def _plain(value: Any) -> Any:
    """A cell, None where it has nothing."""
    if value is None or value != value:
        return None
    return value.item() if isinstance(value, np.generic) else value


def _value(runs: pd.DataFrame, key: str) -> Any:
    return _plain(runs[key].iloc[0]) if key in runs else None


def _pair(sides: tuple[str, str], where: dict[str, Any], mine: pd.DataFrame, its: pd.DataFrame) -> Pair:
    columns = list(dict.fromkeys([*map(str, mine), *map(str, its)]))
    keys = {}
    for key in columns:
        values = _value(mine, key), _value(its, key)
        if is_key(key) and key not in _CHANCE and values[0] != values[1]:
            keys[key] = values
    metrics = {}
    for name in columns:
        if not is_key(name) and name not in _NOT_MEASURED and name in mine and name in its:
            change = _change(name, mine, its)
            if change is not None:
                metrics[name] = change
    steps = _step_s(mine), _step_s(its)
    parts = {part: (steps[0].get(part, 0.0), steps[1].get(part, 0.0)) for part in {**steps[0], **steps[1]}}
    rounding = _SAME * max(sum(each.values()) for each in steps)
    parts = {part: (a, a if abs(b - a) <= rounding else b) for part, (a, b) in parts.items()}
    bottlenecks = _value(mine, "bottleneck"), _value(its, "bottleneck")
    return Pair(sides, where, (len(mine), len(its)), keys, metrics, parts, bottlenecks)


def _change(name: str, mine: pd.DataFrame, its: pd.DataFrame) -> Change | None:
    """Of a metric that is a number in all runs; runs with the same seeds are compared one by one."""
    values = [pd.to_numeric(runs[name], errors="coerce").to_numpy(float) for runs in (mine, its)]
    if any(isinstance(runs[name].iloc[0], bool | np.bool_) for runs in (mine, its)):
        return None
    if not all(np.isfinite(each).all() for each in values):
        return None
    first, second = (float(each.mean()) for each in values)
    half = _half(values, [_seeds(runs) for runs in (mine, its)])
    share = 1.0 if name.startswith("breakdown.") else 0.0  # of what is nothing, rounding leaves 1e-17
    if abs(second - first) <= _SAME * max(abs(first), abs(second), share):
        second = first
    change = second - first
    return Change(first, second, *((None, None) if half is None else (change - half, change + half)))


def _seeds(runs: pd.DataFrame) -> list[Any]:
    return [_plain(seed) for seed in runs["seed"]] if "seed" in runs else []


def _half(values: Sequence[np.ndarray], seeds: Sequence[Sequence[Any]]) -> float | None:
    """Half of the 95% interval of the second mean less the first; None with one run on each side.

    With common seeds Student's of the differences, else Welch's (1947).
    """
    first, second = values
    if min(len(first), len(second)) < 2:
        return None
    if len(set(seeds[0])) == len(first) and sorted(seeds[0]) == sorted(seeds[1]):
        paired = second[np.argsort(seeds[1])] - first[np.argsort(seeds[0])]
        return float(half_width_of(paired))
    parts = [each.var(ddof=1) / len(each) for each in values]
    if not sum(parts):
        return 0.0
    freedom = sum(parts) ** 2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, values, strict=True))
    return float(stdtrit(freedom, 0.975) * sum(parts) ** 0.5)


def _step_s(runs: pd.DataFrame) -> dict[str, float]:
    """By what the mean worker does; nothing if no sample was applied."""
    shares = {part: f"breakdown.{part}" for part in PARTS if f"breakdown.{part}" in runs}
    throughput = runs["throughput"].astype(float) if "throughput" in runs else pd.Series(dtype=float)
    if not shares or "workload.batch_size" not in runs or not len(throughput) or not (throughput > 0).all():
        return {}
    devices = [pd.to_numeric(runs[f"parallelism.{key}"]).fillna(1) for key in ("pipeline", "tensor")
               if f"parallelism.{key}" in runs]  # fmt: skip
    replicas = runs["cluster.workers"] / np.prod(devices, axis=0) if devices else runs["cluster.workers"]
    step = runs["workload.batch_size"] * replicas / throughput
    return {part: float((step * runs[column]).mean()) for part, column in shares.items()}
