"""The table of a sweep: a row a run; and its points, with intervals over their seeds."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lockstep.sweeping.points import Run

Row = Mapping[str, Any]
_HEAD = ("point", "run", "status", "error")
_SECTIONS = ("cluster", "workload", "strategy", "stop")


def frame(runs: Sequence[Run], rows: Mapping[str, Row]) -> pd.DataFrame:
    """The rows of those runs that have ended, in the order of `runs`.

    Columns: point, run, status, error, the scenario's keys, the metrics. Each has one type: numbers, or
    texts; other values among texts are JSON. What a run does not have is missing.
    """
    found = [{"point": run.point, **rows[run.key]} for run in runs if run.key in rows]
    columns = dict.fromkeys([*_HEAD, *(key for row in found for key in row)])
    ordered = sorted(columns, key=lambda name: (name not in _HEAD, not _is_key(name)))
    return pd.DataFrame({name: _column([row.get(name) for row in found]) for name in ordered})


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
