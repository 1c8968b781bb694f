"""The folder of a sweep.

scenario.yaml     the scenario with its sweep
points.jsonl      a line for each run that has ended, with its checksum: what is not run again
results.parquet   the table: a row for each run of the sweep that has ended, in the sweep's order
runs/KEY/         the records of chosen runs, as `Result.save` writes them

A line at a time is all that a crash can cost. Lines of runs that are no longer in the sweep stay, and are
found again when they are.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lockstep.analysis.whole import put, put_text
from lockstep.scenarios import Scenario, ScenarioError, dump

if TYPE_CHECKING:  # it takes more memory than a run of many workers
    import pandas as pd

POINTS = "points.jsonl"
Row = dict[str, Any]


class Store:
    """An open folder: rows by the run's key, and where to add some."""

    def __init__(self, folder: Path, file: BinaryIO) -> None:
        self._folder, self._file = folder, file
        self.rows, complete, self.changed = _rows(file)
        file.truncate(complete)
        file.seek(complete)

    def has(self, key: str, files: bool) -> bool:
        """Whether a run need not be made: it ended well and, if they are wanted, its files are here."""
        row = self.rows.get(key)
        return row is not None and row["status"] == "ok" and not (files and not self._of(key).is_dir())

    def keep(self, row: Row, files: Mapping[str, bytes]) -> None:
        """Write down a run that has ended, its files first."""
        if files:
            part = self._of(f".{row['run']}")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            for name, content in files.items():
                (part / name).write_bytes(content)
            shutil.rmtree(self._of(row["run"]), ignore_errors=True)
            part.rename(self._of(row["run"]))
        self._file.write(json.dumps({**row, "sum": _sum(row)}, allow_nan=False).encode() + b"\n")
        self._file.flush()
        self.rows[row["run"]] = row

    def finish(self, scenario: Scenario, table: "pd.DataFrame") -> None:
        """Write scenario.yaml and results.parquet, each as a whole or not at all; the table stays at hand."""
        self.table = table
        put(self._folder / "results.parquet", partial(table.to_parquet, index=False))
        put_text(self._folder / "scenario.yaml", dump(scenario))

    def _of(self, key: str) -> Path:
        return self._folder / "runs" / key


def _sum(row: Row) -> str:
    """A checksum of a line: against accidents and hasty edits, not against forgery."""
    return sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]


def _rows(file: BinaryIO) -> tuple[dict[str, Row], int, int]:
    """The rows in a file by the run's key, how many bytes are whole lines, and how many lines were changed.

    A line that is not as it was written costs its run only, which is made again.
    """
    rows: dict[str, Row] = {}
    complete = changed = 0
    for line in file:
        if not line.endswith(b"\n"):
            break  # it was being written when everything stopped
        complete += len(line)
        try:
            row = json.loads(line)
            if row.pop("sum") != _sum(row):
                raise ValueError
            rows[row["run"]] = row
        except (ValueError, KeyError, TypeError):
            changed += 1
    return rows, complete, changed


def ended(folder: Path) -> set[str]:
    """The keys of the runs in a folder that have ended well; none, if it has no sweep."""
    try:
        with (folder / POINTS).open("rb") as file:
            return {key for key, row in _rows(file)[0].items() if row["status"] == "ok"}
    except OSError:
        return set()


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    """The folder of a sweep, made if need be, for one process at a time. Raises ScenarioError."""
    check(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(os.open(folder / POINTS, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"another sweep is writing to {str(folder)!r}; wait for it, or give another folder"
            raise ScenarioError(problem, key="--out") from None
        yield Store(folder, file)


def is_sweep(folder: Path) -> bool:
    """Whether it is the folder of a sweep."""
    return (folder / POINTS).is_file()


def check(folder: Path) -> None:
    """Refuse a folder that has something else in it, or that is none."""
    if folder.exists() and not folder.is_dir():
        raise ScenarioError(f"{str(folder)!r} is not a folder; give another one", key="--out")
    if folder.is_dir() and any(folder.iterdir()) and not is_sweep(folder):
        problem = f"{str(folder)!r} has something else than a sweep in it; give another folder"
        raise ScenarioError(problem, key="--out")
