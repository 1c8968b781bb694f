"""The runs of a folder: a table with the columns that tell them apart, and what is known of one of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from lockstep.analysis import plots, runs
from lockstep.analysis.plots.words import METRICS, is_key, label, scale
from lockstep.analysis.runs import Runs
from lockstep.analysis.summary import DONE, main_metrics
from lockstep.analysis.words import number
from lockstep.scenarios import ScenarioError
from lockstep.serving.prediction import Picture, beginning

_METRICS = ("throughput", "speedup", "staleness.mean", "time_to_target_s", "accuracy", "loss", "cost")
_ALWAYS = ("strategy.name", "cluster.workers")
_HIDDEN = ("sweep",)


@dataclass(frozen=True)
class Shelf:
    """Runs of a folder, and of each row where its records are, if they were kept."""

    table: pd.DataFrame
    folders: Sequence[Path | None]

    def one(self, place: int) -> Runs:
        """A run by itself."""
        folder = self.folders[place]
        return Runs(self.table.iloc[[place]].reset_index(drop=True), [] if folder is None else [folder])


@dataclass(frozen=True)
class Column:
    """A column as people read it: its key, its heading, and whether it has numbers."""

    key: str
    heading: str
    numeric: bool


def read(path: Path) -> Shelf:
    """The runs of a folder that `--out` made, or of all such folders in it. Raises ScenarioError for none."""
    try:
        found = [_one(path)]
    except ScenarioError as error:
        inside = sorted(each for each in path.iterdir() if each.is_dir()) if path.is_dir() else []
        found = [shelf for each in inside if (shelf := _maybe(each)) is not None]
        if not found:
            raise error
    return Shelf(
        pd.concat([each.table for each in found], ignore_index=True),
        [folder for each in found for folder in each.folders],
    )


def _maybe(path: Path) -> Shelf | None:
    try:
        return _one(path)
    except ScenarioError:
        return None


def _one(path: Path) -> Shelf:
    found = runs.read([path])
    table = found.table.assign(folder=path.name)
    if "run" in table:  # a sweep's, which keeps the records of some
        kept = {folder.name: folder for folder in found.folders}
        return Shelf(table, [kept.get(run) for run in table["run"]])
    return Shelf(table, list(found.folders))


def columns(table: pd.DataFrame) -> list[Column]:
    """What tells the runs apart, and the main metrics that some of them have."""
    keys = [str(key) for key in table if is_key(str(key)) and key not in (*_HIDDEN, "engine", "seed")]
    varying = [key for key in keys if table[key].astype(str).nunique(dropna=False) > 1]
    shown = [key for key in _ALWAYS if key in table] + [key for key in varying if key not in _ALWAYS]
    shown += ["seed"] if "seed" in table and table["seed"].nunique() > 1 else []
    metrics = [name for name in _METRICS if name in table and table[name].notna().any()]
    folder = [Column("folder", "folder", False)] if table["folder"].nunique() > 1 else []
    found = [Column(key, _heading(table, key), _numeric(table, key)) for key in [*shown, *metrics]]
    return [*folder, Column("engine", "predicted or measured", False), *found]


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """What the cells have: numbers in the unit of their heading, texts; `place` is that of the run."""
    found: list[dict[str, Any]] = [{"place": place} for place in range(len(table))]
    for column in columns(table):
        factor = scale(column.key, _numbers(table, column.key)).factor if column.numeric else 1.0
        for row, value in zip(found, table[column.key], strict=True):
            row[column.key] = _cell(column, value, factor)
    return found


def details(table: pd.DataFrame, place: int, shelf: Shelf) -> dict[str, str]:
    """The metrics of a run, in words and units."""
    if shelf.folders[place] is not None:
        return main_metrics(shelf.one(place).results[0])
    row = table.iloc[place]
    found = {}
    for name in METRICS:
        value = row.get(name)
        if isinstance(value, int | float) and value == value:
            its = scale(name, [value])
            found[label(name, its).partition(" (")[0]] = number(value * its.factor, its.unit)
    return found


def describe(shelf: Shelf, place: int) -> Iterator[dict[str, str] | Picture]:
    """Of a run the metrics, then every picture that it can carry."""
    yield details(shelf.table, place, shelf)
    one = shelf.one(place)
    for kind in _KINDS:
        try:
            yield Picture.of(kind, _draw(kind, one))
        except ScenarioError:  # it cannot carry it
            continue


def _draw(kind: str, one: Runs) -> Figure:
    if kind == "gantt" and one.results:
        first, iterations = beginning(one.results[0])
        return plots.gantt([first], iterations)
    return plots.draw(kind, one, {})


_KINDS = ("breakdown", "gantt", "loss-time", "staleness", "utilisation", "pipeline")


def _heading(table: pd.DataFrame, key: str) -> str:
    if not _numeric(table, key):
        return label(key, scale(key, []))
    its = scale(key, _numbers(table, key))
    return "workers" if key == "cluster.workers" else label(key, its)


def _numeric(table: pd.DataFrame, key: str) -> bool:
    column = table[key]
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _numbers(table: pd.DataFrame, key: str) -> list[float]:
    return [float(value) for value in table[key].dropna()]


def _cell(column: Column, value: Any, factor: float) -> Any:
    if value is None or value != value:
        return None
    if column.key == "engine":
        return DONE.get(value, value)
    if column.numeric:
        return float(f"{float(value) * factor:.4g}")
    return value if isinstance(value, str) else str(value)
