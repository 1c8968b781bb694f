"""The runs in folders that `sweep`, `simulate`, `run` and `validate` wrote, as one table and as Results."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
from pandas.api.types import is_numeric_dtype

from lockstep.analysis.result import Result
from lockstep.analysis.saved import UNREADABLE, check_ended, is_run, load, said
from lockstep.analysis.table import keys, row
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.renamed import COLUMNS

_NUMBERS = ("cluster.workers", "workload.batch_size", "throughput")


@dataclass(frozen=True)
class Runs:
    """Runs: a table with a row each (`analysis.table`), and those whose records were kept."""

    table: pd.DataFrame
    """A row a run: the columns of `analysis.table.row`; of a sweep also `point`, `run`, `status`, `error`."""
    folders: Sequence[Path]
    """The folders of the runs with records, which `Result.save` wrote; not one for each row of the table."""

    @cached_property
    def results(self) -> list[Result]:
        """The runs of the folders, read when they are asked for."""
        return [load(folder) for folder in self.folders]

    def only(self, choose: Callable[[pd.DataFrame], pd.DataFrame]) -> "Runs":
        """Those whose rows `choose` keeps, of the table and of the folders.

        What `choose` raises ScenarioError for is an error if the table does not have it.
        """
        kept = Runs(choose(self.table), [])
        chosen: Sequence[int] = []
        if self.results:
            with suppress(ScenarioError):
                chosen = choose(describe(self.results)).index.tolist()
        vars(kept)["results"] = [self.results[place] for place in chosen]
        return kept


def describe(results: Sequence[Result]) -> pd.DataFrame:
    """The keys of each Result's scenario, and its engine: a row each, in their order."""
    return pd.DataFrame([keys(result.scenario) | {"engine": result.engine} for result in results])


def read(paths: Sequence[str | Path]) -> Runs:
    """The runs that are in files and folders, in their order.

    Each is a sweep's folder or its results.parquet, a run's folder, or a folder of `validate`. Raises
    ScenarioError for one that does not exist, has no runs or cannot be read.
    """
    tables: list[pd.DataFrame] = []
    folders: list[Path] = []
    for path in map(Path, paths):
        table, inside = _read(path)
        tables.append(table)
        folders += inside
    return Runs(tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=True), folders)


def _read(path: Path) -> tuple[pd.DataFrame, list[Path]]:
    sweep = path / "results.parquet" if path.is_dir() else path
    if sweep.is_file():
        return _table(sweep), _runs(sweep.parent / "runs")
    if is_run(path):
        return _rows([path]), [path]
    pairs = [
        folder
        for side in sorted(path.glob("*/predicted"))
        for folder in (side, side.with_name("measured"))
        if is_run(folder)
    ]
    if pairs:
        return _rows(pairs), pairs
    if not path.exists():
        raise ScenarioError("there is no such file or folder", file=str(path))
    check_ended(path)
    raise ScenarioError(
        "has no runs; give the --out of a sweep, simulate, run or validate, or a results.parquet",
        file=str(path),
    )


def _runs(folder: Path) -> list[Path]:
    return [run for run in sorted(folder.iterdir()) if is_run(run)] if folder.is_dir() else []


def _rows(folders: Sequence[Path]) -> pd.DataFrame:
    return pd.DataFrame([row(load(folder)) for folder in folders])


def _table(file: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(file).rename(columns=COLUMNS)
    except UNREADABLE as error:
        raise ScenarioError(f"cannot be read as a table ({said(error)})", file=str(file)) from None
    if missing := {"strategy.name", "cluster.workers"} - {*table}:
        problem = f"has no column {min(missing)}; give the results.parquet of 'lockstep sweep'"
        raise ScenarioError(problem, file=str(file))
    for name in table.columns[table.notna().any()]:
        if (name in _NUMBERS or name.startswith("breakdown.")) and not is_numeric_dtype(table[name]):
            raise ScenarioError(f"its {name} is not a number everywhere", file=str(file))
    return table
