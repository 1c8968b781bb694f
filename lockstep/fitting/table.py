"""What others measured, as a table: a row is the scenario with some keys set, and what came of it."""

import csv
import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.document import BYTES, parse
from lockstep.scenarios.sweep import Changes
from lockstep.scenarios.units import shown


class Measure(StrEnum):
    """What was measured: samples a second, or seconds of a step."""

    THROUGHPUT = "throughput"
    STEP = "step_s"


class Use(StrEnum):
    """What a row is for."""

    FIT = "fit"
    PREDICT = "predict"


class Row(NamedTuple):
    """`changes`: keys of the scenario and their values. `sd`: of `measured`, in its unit; None: not known.

    `place`: where it stands, for messages.
    """

    changes: Changes
    measured: float
    sd: float | None
    use: Use
    place: str


class Table(NamedTuple):
    """The rows, what they measure, and whether they say themselves what they are for."""

    rows: list[Row]
    measure: Measure
    divided: bool


_SD, _USE = "sd", "use"
_LEAST, _MOST = 1e-12, 1e15  # of a measurement, far beyond any cluster's
_OURS = {*Measure, _SD, _USE}


def read(source: "str | Path | pd.DataFrame") -> Table:
    """The table in a CSV file (lines that begin with # are comments), or in a data frame.

    Cells are YAML, as after `--set key=`; one that is empty leaves the scenario as it is. Raises
    ScenarioError, with the file and line, for what is no such table.
    """
    if isinstance(source, pd.DataFrame):
        columns = [str(column) for column in source.columns]
        cells = zip(*(map(_text, source[column]) for column in source.columns), strict=True)
        lines: Iterator[tuple[str, list[str]]] = (
            (f"the table's row {number}", list(each)) for number, each in enumerate(cells, 1)
        )
        return _table("the table", columns if source.columns.is_unique else [*columns], lines)
    lines = _lines(Path(source))
    _, header = next(lines, ("", []))
    return _table(str(source), [name.strip() for name in header], lines)


def _text(cell: Any) -> str:
    """A cell of a data frame as a file would have it; a column of whole numbers with gaps has floats."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return str(cell)


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The lines of a file that are no comments and not empty, and where each is."""
    try:
        if path.stat().st_size > BYTES:
            raise ScenarioError("over 1 MiB; a table of measurements is smaller", file=str(path))
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise ScenarioError("is not UTF-8 text; give a CSV file", file=str(path)) from None
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; give a CSV file"
        raise ScenarioError(problem, file=str(path)) from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                yield f"{path}:{number}", next(csv.reader([line], strict=True))
            except csv.Error as error:
                raise ScenarioError(f"is not CSV: {error}", file=f"{path}:{number}") from None


def _table(file: str, columns: list[str], lines: Iterator[tuple[str, list[str]]]) -> Table:
    for column in columns:
        if columns.count(column) > 1:
            raise ScenarioError(f"column {shown(column)} is there twice; keep one", file=file)
    found = [measure for measure in Measure if measure in columns]
    if len(found) != 1:
        have = "both" if found else f"neither (columns: {', '.join(columns)[:60] or 'none'})"
        problem = f"must have one column throughput (samples/s) or step_s (s of a step); it has {have}"
        raise ScenarioError(problem, file=file)
    rows = [_row(place, columns, cells, found[0]) for place, cells in lines]
    if not rows:
        raise ScenarioError("has no rows; give one for each measurement", file=file)
    fitted = [row for row in rows if row.use is Use.FIT]
    if not fitted:
        raise ScenarioError("has no row to fit; say 'fit' in its column 'use'", file=file)
    known = [row for row in fitted if row.sd is not None]
    if known and len(known) < len(fitted):
        lacks = next(row for row in fitted if row.sd is None)
        raise ScenarioError("has no sd, but other rows to fit have; give all or none", file=lacks.place)
    return Table(rows, found[0], _USE in columns)


def _row(place: str, columns: list[str], cells: list[str], measure: Measure) -> Row:
    if len(cells) != len(columns):
        problem = f"must have {len(columns)} cells, as many as there are columns, not {len(cells)}"
        raise ScenarioError(problem, file=place)
    given = {name: cell.strip() for name, cell in zip(columns, cells, strict=True) if cell.strip()}
    use = given.get(_USE, Use.FIT)
    if use not in [*Use]:
        raise ScenarioError(f"must be fit or predict, not {shown(use)}", _USE, place)
    if measure not in given:
        raise ScenarioError("is empty; give what was measured, or leave the row out", measure, place)
    return Row(
        {name: _value(cell, name, place) for name, cell in given.items() if name not in _OURS},
        _positive(given, measure, place),
        _positive(given, _SD, place) if _SD in given else None,
        Use(use),
        place,
    )


def _value(cell: str, column: str, place: str) -> Any:
    try:
        return parse(cell, {})
    except ScenarioError as error:
        raise ScenarioError(error.problem, column, place) from None


def _positive(given: Mapping[str, str], column: str, place: str) -> float:
    try:
        number = float(given[column])
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ScenarioError(f"must be a number above 0, not {shown(given[column])}", column, place)
    if not _LEAST <= number <= _MOST:
        problem = f"must be from {_LEAST:g} to {_MOST:g}, not {shown(given[column])}"
        raise ScenarioError(problem, column, place)
    return number
