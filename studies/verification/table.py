"""The verified cases on a terminal."""

import sys
from typing import Any

from rich.table import Table

from lockstep.analysis.words import NOTHING, count, number
from lockstep.terminal import show_table, titled


def show(found: dict[str, Any]) -> None:
    """Theory against simulation: a row a case, as a table on a terminal and as bare columns in a pipe."""
    head = ("case", "theory", "simulated", "error", "tolerance", "verdict")
    title = "The simulator against theory"
    table = titled(title) if sys.stdout.isatty() else Table.grid(padding=(0, 2))
    for name in head:
        right = name not in ("case", "verdict")
        table.add_column(name, justify="right" if right else "left", no_wrap=right)
    if not sys.stdout.isatty():
        table.add_row(*head)
    for row in found["cases"]:
        values = [
            number(row["theory"]),
            number(row["simulated"]),
            *map(_small, (row["error"], row["tolerance"])),
        ]
        style = "bold red" if row["verdict"] == "fail" else None
        table.add_row(row["case"], *values, row["verdict"], style=style)
    show_table(table)
    for what, why in found["skipped"].items():
        print(f"{what}: skipped ({why})")
    print(f"{count(len(found['cases']), 'case')}, {found['failed'] or 'none'} failed.")


def _small(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1e}"
