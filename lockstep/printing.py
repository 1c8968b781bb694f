"""What a command prints for others: one JSON object, a table for a spreadsheet, or one for a page.

docs/metrics.md says what is in them.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from lockstep.scenarios import ScenarioError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print a table for a spreadsheet and nothing else.")]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Print a table for a pull request and nothing else.")
]
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Printing:
    """`--json`, `--csv` and `--markdown`: with one of them nothing else is printed, and this is true.

    Raises ScenarioError for several.
    """

    json: bool = False
    csv: bool = False
    markdown: bool = False

    def __post_init__(self) -> None:
        given = [f"--{name}" for name in ("json", "csv", "markdown") if getattr(self, name)]
        if len(given) > 1:
            raise ScenarioError(f"cannot be printed beside {given[0]}; give one of them", key=given[1])

    def __bool__(self) -> bool:
        return self.json or self.csv or self.markdown

    def print(self, document: Any, rows: Callable[[], Rows]) -> bool:
        """Print the document, or the rows that it comes to; whether one of them was wanted."""
        if self.json:
            from json import dumps

            print(dumps(document, allow_nan=False))
        if self.csv:
            _for_a_spreadsheet(*_table(rows()))
        if self.markdown:
            _for_a_page(*_table(rows()))
        return bool(self)


def named(rows: Mapping[str, str]) -> Rows:
    """The rows of a list of names and what they are."""
    return ({"name": name, "about": text} for name, text in rows.items())


def _table(rows: Rows) -> tuple[list[str], list[list[Any]]]:
    """The columns, dotted where rows have mappings, as rows first have them; and the lines. Missing: None."""
    from lockstep.analysis.flat import flat

    flattened = [flat(row) for row in rows]
    columns = list(dict.fromkeys(key for row in flattened for key in row))
    return columns, [[row.get(key) for key in columns] for row in flattened]


def _for_a_spreadsheet(columns: list[str], lines: list[list[Any]]) -> None:
    """Comma-separated values (RFC 4180): a header, and a line a row.

    What is missing is empty, a Boolean is `true` or `false`, a list is JSON text; numbers have all their
    digits.
    """
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in line] for line in lines)


def _for_a_page(columns: list[str], lines: list[list[Any]]) -> None:
    """A table of Markdown, with four digits of a number; on its side if it has more columns than rows.

    Without the scenario's keys that are the same in all rows, histograms and the like, and what no row has.
    """
    kept = [place for place, key in enumerate(columns) if _tells(key, [line[place] for line in lines])]
    table = [[columns[place] for place in kept], *([_short(line[place]) for place in kept] for line in lines)]
    if len(kept) > len(lines):
        table = [list(line) for line in zip(*table, strict=True)]
    head, *body = table
    for line in (head, ["---"] * len(head), *body):
        print(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |")


def _tells(key: str, values: list[Any]) -> bool:
    """Whether a column tells anything on a page."""
    if all(value in (None, "[]") for value in values) or any(
        str(value).startswith(("{", "[{")) for value in values
    ):
        return False
    if "." not in key and key not in ("seed", "sweep"):
        return True
    from lockstep.scenarios import Scenario

    return key.partition(".")[0] not in Scenario.model_fields or any(value != values[0] for value in values)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) and value == value else _cell(value)


def _cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        return value
    from json import dumps

    return dumps(value)
