"""What a command prints for programs: one JSON object, or a table for a spreadsheet (docs/metrics.md)."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from lockstep.scenarios import ScenarioError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print a table for a spreadsheet and nothing else.")]
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Printing:
    """`--json` and `--csv`: with one of them nothing else is printed, and this is true.

    Raises ScenarioError for both.
    """

    json: bool = False
    csv: bool = False

    def __post_init__(self) -> None:
        if self.json and self.csv:
            raise ScenarioError("cannot be printed beside --json; give one of the two", key="--csv")

    def __bool__(self) -> bool:
        return self.json or self.csv

    def print(self, document: Any, rows: Callable[[], Rows]) -> bool:
        """Print the document, or the rows that it comes to; whether one of them was wanted."""
        if self.json:
            from json import dumps

            print(dumps(document, allow_nan=False))
        if self.csv:
            _table(rows())
        return bool(self)


def named(rows: Mapping[str, str]) -> Rows:
    """The rows of a list of names and what they are."""
    return ({"name": name, "about": text} for name, text in rows.items())


def _table(rows: Rows) -> None:
    """Comma-separated values (RFC 4180): a header, and a line a row; mappings have dotted columns.

    Columns come in the order in which rows first have them. What is missing is empty, a Boolean is `true` or
    `false`, a list is JSON text; numbers have all their digits.
    """
    import csv

    from lockstep.analysis.flat import flat

    flattened = [flat(row) for row in rows]
    columns = dict.fromkeys(key for row in flattened for key in row)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(key)) for key in columns] for row in flattened)


def _cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        return value
    from json import dumps

    return dumps(value)
