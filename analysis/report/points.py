"""Runs that differ in nothing but their seed are one point."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from lockstep.analysis.bottleneck import Bottleneck, typical
from lockstep.analysis.report.reproduce import is_key
from lockstep.analysis.table import disturbed, intervals, undisturbed
from lockstep.analysis.words import NOTHING, count, within
from lockstep.analysis.written import said
from lockstep.scenarios import TAKEN_OVER

METRICS = (
    "time_to_target_s", "throughput", "duration_s", "speedup", "efficiency", "staleness.mean",
    "loss", "accuracy", "memory_bytes", "hosts", "cost", "cost_of_million", "cost_to_target",
)  # fmt: skip


_COUNTED = {
    "cluster.workers": "worker",
    "parallelism.pipeline": "stage",
    "parallelism.tensor": "part",
    "parallelism.micro_batches": "micro-batch",
}
_WORDS = {
    "parallelism.pipeline": "stages",
    "parallelism.micro_batches": "micro-batches",
    "parallelism.tensor": "parts of each layer",
}


class Estimate(NamedTuple):
    """A metric of a point: mean over `runs` runs and half of its 95% interval; no mean if no run has one."""

    mean: float | None = None
    half: float = 0.0
    runs: int = 0

    def text(self, unit: str = "", times: float = 1.0) -> str:
        """With its unit, `times` being how many of it make one of the metric's."""
        return NOTHING if self.mean is None else within(self.mean * times, self.half * times, unit)


@dataclass(frozen=True)
class Point:
    """What was set for some runs, those that ended, how many failed or stayed disturbed, and metrics."""

    settings: dict[str, Any]
    """Strategy, workers, and the keys in which points differ."""
    runs: pd.DataFrame
    failed: int
    noisy: int
    metrics: dict[str, Estimate]

    @property
    def disturbed(self) -> bool:
        """Whether all its runs stayed disturbed: then they are its metrics, and it is best of nothing."""
        return bool(len(self.runs)) and bool(disturbed(self.runs).all())

    @property
    def strategy(self) -> str:
        """Its strategy's name."""
        return str(self.settings["strategy.name"])

    @property
    def setting(self) -> str:
        """All but the strategy: "8 workers, bandwidth 100 Mbit/s"."""
        return ", ".join(
            phrase(key, value)
            for key, value in self.settings.items()
            if key != "strategy.name" and value is not None
        )

    @property
    def name(self) -> str:
        """ "downpour with 8 workers"."""
        return f"{self.strategy} with {self.setting}"

    @property
    def bottleneck(self) -> Bottleneck | None:
        """What limits it: that of the run with the median duration."""
        return typical(self.runs)

    def missed(self, metric: str) -> int:
        """How many of its runs ended without the metric."""
        return len(self.runs) - self.metrics[metric].runs


def phrase(key: str, value: Any) -> str:
    """A key's value in words: "8 workers", "bandwidth 100 Mbit/s"."""
    if key in TAKEN_OVER:
        return str(value)
    if key == "engine":
        return {"simulator": "predicted", "executor": "measured"}.get(value, str(value))
    if key in _COUNTED:
        return count(int(value), _COUNTED[key])
    return f"{title(key)} {said(value, key)}"


def title(key: str) -> str:
    """A key in words: its last one, or two where that says little."""
    if key in _WORDS:
        return _WORDS[key]
    if key in TAKEN_OVER:
        return key.split(".")[key.endswith(".profile")]
    words = key.split(".")
    words = words[-2:] if words[-1] in ("name", "count", "kind", "time", "value", "mean") else words[-1:]
    return " ".join(words).replace("_", " ")


def varied(runs: pd.DataFrame, swept: Sequence[str] = ()) -> list[str]:
    """The keys that tell points apart: strategy, workers, those swept, and others that these do not imply."""
    presets = [key for key in TAKEN_OVER if key in runs and runs[key].nunique(dropna=False) > 1]
    found = ["strategy.name", *presets, "cluster.workers"]
    names = [str(column) for column in runs]
    candidates = [name for name in names if name == "engine" or (is_key(name) and name != "seed")]
    there = [key for key in candidates if key not in found and runs[key].nunique(dropna=False) > 1]
    for key in sorted(there, key=lambda key: key not in swept):
        if key in swept or not _implied(runs, found, key):
            found.append(key)
    return found


def _implied(runs: pd.DataFrame, by: Sequence[str], key: str) -> bool:
    return bool((runs.groupby(list(by), dropna=False, sort=False)[key].nunique(dropna=False) <= 1).all())


def points(runs: pd.DataFrame, keys: Sequence[str]) -> list[Point]:
    """The points, in the order of their first runs."""
    number = runs.groupby(list(keys), dropna=False, sort=False).ngroup()
    ended = undisturbed(runs[runs["status"] == "ok"].assign(number=number))
    tables = {
        metric: intervals(ended, ["number"], metric).set_index("number")
        if metric in ended and ended[metric].notna().any()
        else pd.DataFrame()
        for metric in METRICS
    }
    found = []
    for this, group in runs.groupby(number, sort=True):
        first = group.iloc[0]
        settings = {key: None if pd.isna(first[key]) else first[key] for key in keys}
        estimates = {metric: _estimate(table, this) for metric, table in tables.items()}
        failed, rows = int((group["status"] != "ok").sum()), ended[ended["number"] == this]
        found.append(Point(settings, rows, failed, len(group) - failed - len(rows), estimates))
    return found


def _estimate(table: pd.DataFrame, number: Any) -> Estimate:
    if number not in table.index:
        return Estimate()
    row = table.loc[number]
    return Estimate(float(row["mean"]), float(row["high"] - row["mean"]), int(row["runs"]))
