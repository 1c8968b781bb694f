"""Runs as rows of one tidy table: every key of the scenario and every metric is a column.

Keys of the scenario are dotted paths (`cluster.workers`, `strategy.name`), quantities floats in base units
(s, bytes, bytes/s, FLOP/s). Nested metrics are dotted too (`staleness.mean`, `breakdown.compute`). What is a
list, or a mapping without fixed keys, is JSON text. A metric that only repeats a key is left out.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from lockstep.analysis.flat import flat
from lockstep.analysis.result import Result
from lockstep.analysis.student import half_width
from lockstep.scenarios import Scenario

if TYPE_CHECKING:
    import pandas as pd

# What the keys of the scenario say already.
_SAID = ("schema", "scenario", "workers", "strategy", "target", "target_metric", "seed")


def row(result: Result) -> dict[str, Any]:
    """One run: the keys of its scenario, its metrics, and how many `hosts` it takes.

    Keys come first, as `keys` gives them; metrics have dotted names (`staleness.p99`), and `engine` and
    `warnings` (JSON text) are among them. None where a metric does not exist. `staleness.histogram`,
    `utilisation`, `breakdown_by_worker` and `bottleneck_data` (a `Bottleneck`) are JSON text.
    """
    metrics = {key: value for key, value in result.metrics.items() if key not in _SAID}
    limits = result.bottleneck and result.bottleneck.to_json()
    return keys(result.scenario) | flat(metrics) | {"bottleneck_data": limits, "hosts": hosts(result)}


def hosts(result: Result) -> int:
    """The hosts that a run takes: those of the workers and, if it has any of their own, of the servers."""
    cluster = result.scenario.cluster
    has_servers = result.plan.has_servers
    return cluster.hosts + cluster.servers.hosts * has_servers


def keys(scenario: Scenario) -> dict[str, Any]:
    """The keys of a scenario as dotted paths, all defaults filled in, without those of its sweep.

    Quantities are floats in base units (s, bytes, bytes/s, FLOP/s), lists JSON text; a key that was not given
    and has no default is left out.
    """
    return flat({key: value for key, value in _plain(scenario).items() if key != "sweep"})


def _plain(value: Any) -> Any:
    """A section as a mapping, quantities as plain numbers; keys that were not given are left out."""
    if isinstance(value, str | float | int):  # as most are
        return value
    if isinstance(value, BaseModel):
        names = _names(type(value))
        return {names.get(key, key): _plain(item) for key, item in value if item is not None}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


@cache
def _names(section: type[BaseModel]) -> dict[str, str]:
    """How a scenario file spells the fields of a section."""
    return {name: field.alias or name for name, field in section.model_fields.items()}


def undisturbed(table: "pd.DataFrame") -> "pd.DataFrame":
    """The rows without those of real runs that stayed disturbed, where there are others of their settings.

    Settings are the keys of the scenario that differ, but for the seed, and the engine: predictions are no
    others of measurements.
    """
    quiet = ~disturbed(table)
    if quiet.all():
        return table
    from lockstep.analysis.plots.words import is_key  # matplotlib comes with it

    keys = [name for name in map(str, table) if is_key(name) and name not in ("seed", "name")]
    by = [table[name] for name in keys if table[name].nunique(dropna=False) > 1]
    if not by:
        return table[quiet] if quiet.any() else table
    return table[quiet | ~quiet.groupby(by, dropna=False).transform("any")]


def disturbed(table: "pd.DataFrame") -> "pd.Series[bool]":
    """Whether a row is of a real run that stayed disturbed (`Result.disturbed`)."""
    return table.reindex(columns=["disturbed"])["disturbed"].isin([True])


def intervals(table: "pd.DataFrame", by: Sequence[str], metric: str) -> "pd.DataFrame":
    """Mean of a metric over the rows that agree in `by` (seeds, mostly), and its 95% interval (Student's t).

    Columns: those of `by`, `mean`, `low`, `high` (in the metric's unit), `runs` (how many). low and high are
    the mean itself where there is one run only. Groups come in the order of their first row; rows without the
    metric do not count.
    """
    groups = table.dropna(subset=[metric]).groupby(list(by), sort=False, dropna=False)[metric]
    found = groups.agg(["mean", "sem", "count"]).reset_index()
    runs = found.pop("count").to_numpy()
    half = half_width(found.pop("sem").fillna(0.0).to_numpy(), runs)
    return found.assign(low=found["mean"] - half, high=found["mean"] + half, runs=runs)
