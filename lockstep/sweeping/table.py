"""The table of a sweep: a row a run; and its points, with intervals over their seeds."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.scenarios import TAKEN_OVER
from lockstep.sweeping.points import Plan

Row = Mapping[str, Any]
_HEAD = ("point", "run", "status", "error")
_SECTIONS = ("cluster", "workload", "strategy", "stop")


def frame(plan: Plan, rows: Mapping[str, Row]) -> pd.DataFrame:
    """The rows of those runs that have ended, in the order of the plan's.

    Columns: point, run, status, error, presets and profiles that vary by their names (`cluster.preset`), the
    scenario's keys, the metrics. Each has one type: numbers, or texts; other values among texts are JSON.
    What a run does not have is missing.
    """
    named = [_named(changes) for changes in plan.points]
    found = [
        {"point": run.point, **named[run.point], **rows[run.key]} for run in plan.runs if run.key in rows
    ]
    columns = dict.fromkeys([*_HEAD, *(key for row in found for key in row)])
    ordered = sorted(columns, key=lambda name: (name not in _HEAD, not _is_key(name)))
    return pd.DataFrame({name: _column([row.get(name) for row in found]) for name in ordered})


def _named(changes: Mapping[str, Any]) -> dict[str, str]:
    """What a point takes over, by the name that the sweep has for it; a file by its own."""
    found = {}
    for key, value in changes.items():
        if key in ("cluster", "workload"):  # a bare name, or a section that has one
            key, value = f"{key}.preset", value.get("preset") if isinstance(value, dict) else value
        if key in TAKEN_OVER and isinstance(value, str):
            found[key] = Path(value).stem
    return found


def _is_key(column: str) -> bool:
    return column in ("name", "seed") or column.split(".")[0] in _SECTIONS


def _column(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 or kinds == {int, float}:
        return values
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The table as plain values for JSON; None for what is missing."""
    missing = table.isna().to_numpy()
    plain = table.astype(object).to_numpy()
    plain[missing] = None
    return [dict(zip(table.columns, row, strict=True)) for row in plain.tolist()]
