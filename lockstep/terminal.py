"""What people see on a terminal."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from analysis.records import Result
from analysis.summary import DONE, figures
from analysis.words import NOTHING, count, number, percent
from strategies import STRATEGIES


@contextmanager
def progress(doing: str, quiet: bool) -> Iterator[Callable[[float], None] | None]:
    """A function to tell the fraction done: a bar on a terminal, a plain line otherwise (standard error)."""
    if quiet:
        yield None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"{doing} …", file=sys.stderr, flush=True)
        yield None
        return
    doing_ = TextColumn("{task.description}", markup=False)
    with Progress(
        doing_, BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task(doing, total=None)  # until the first fraction is known
        yield lambda fraction: bar.update(task, total=1.0, completed=min(1.0, fraction))


def show(result: Result, out: Path | None) -> None:
    """One run, as a table of its figures in words and units."""
    m = result.metrics
    title = f"{m['scenario']}: {m['strategy']}, {count(m['workers'], 'worker')}"
    table = Table("", DONE[result.engine], title=title, title_justify="left")
    for name, value in figures(result).items():
        table.add_row(name, value)
    _console().print(table)
    _warn(m)
    if out is not None:
        print(f"Written to {out}.")


def show_comparison(comparisons: list[dict[str, Any]]) -> None:
    """Predicted against measured: for each figure, a row a strategy."""
    table = Table("", "strategy", title="Predicted and measured", title_justify="left")
    for head in ("predicted", "measured", "error"):
        table.add_column(head, justify="right")
    for figure, (error, value) in _COMPARED.items():
        name = figure
        for c in comparisons:
            a, b = (number(value(c[side])) for side in ("predicted", "measured"))
            if (a, b) != (NOTHING, NOTHING):
                table.add_row(name, c["predicted"]["strategy"], a, b, percent(c["error"][error], sign=True))
                name = ""
        table.add_section()
    _console().print(table)
    for c in comparisons:
        _warn(c["measured"], c["predicted"])


_COMPARED: dict[str, tuple[str, Callable[[dict[str, Any]], float | None]]] = {
    "samples/s": ("throughput", lambda m: m["throughput"]),
    "mean staleness": ("staleness_mean", lambda m: m["staleness"]["mean"]),
    "held-out loss": ("loss", lambda m: m["loss"]),
    "s to target": ("time_to_target_s", lambda m: m["time_to_target_s"]),
}  # figure: its error's key, and its value in the metrics


def show_verification(found: dict[str, Any]) -> None:
    """Theory against simulation: a row a case, as a table on a terminal and as bare columns in a pipe."""
    head = ("case", "theory", "simulated", "error", "tolerance", "verdict")
    title = "The simulator against theory"
    table = Table(title=title, title_justify="left") if sys.stdout.isatty() else Table.grid(padding=(0, 2))
    for name in head:
        right = name not in ("case", "verdict")
        table.add_column(name, justify="right" if right else "left", no_wrap=right)
    if not sys.stdout.isatty():
        table.add_row(*head)
    for row in found["cases"]:
        figures = [
            number(row["theory"]),
            number(row["simulated"]),
            *map(_small, (row["error"], row["tolerance"])),
        ]
        style = "bold red" if row["verdict"] == "fail" else None
        table.add_row(row["case"], *figures, row["verdict"], style=style)
    _console().print(table)
    for what, why in found["skipped"].items():
        print(f"{what}: skipped ({why})")
    print(f"{count(len(found['cases']), 'case')}, {found['failed'] or 'none'} failed.")


def show_claims(found: dict[str, Any], out: Path | None) -> None:
    """Claims, what was published, what was measured, and the verdicts."""
    from lockstep.literature import table as claims

    table = Table(title="Published behaviour", title_justify="left", show_lines=True)
    for name, share in zip(claims.HEAD, (4, 2, 3, 6, 1), strict=True):
        table.add_column(name, ratio=share)
    for row in found["claims"]:
        style = None if row["verdict"] == "holds" else "bold"
        table.add_row(*claims.row(row), style=style)
    _console().print(table)
    print(", ".join(f"{count} {verdict}" for verdict, count in found["verdicts"].items()) + ".")
    if out is not None:
        print(f"Written to {out}: claims.md, claims.json, runs.csv.")


def show_accuracy(summary: dict[str, Any], out: Path) -> None:
    """How near the suite's predictions were: the bars, errors by group, times to the target."""
    from lockstep.truth import tables

    for title, head, rows in tables.tables(summary):
        table = Table(title=title, title_justify="left")
        for number_, name in enumerate(head):
            table.add_column(name, justify="right" if number_ else "left")
        for row in rows:
            table.add_row(*row, style="bold red" if row[-1] == "missed" else None)
        _console().print(table)
    for line in tables.lines(summary):
        print(line)
    print(f"Written to {out}: accuracy.md, summary.json, results.parquet and the pictures.")


def _small(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1e}"


def _warn(*runs: dict[str, Any]) -> None:
    """Print what the runs of one strategy warn of, each thing once."""
    for warning in dict.fromkeys(warning for metrics in runs for warning in metrics["warnings"]):
        print(f"warning: {runs[0]['strategy']}: {warning}", file=sys.stderr)


def two_columns(rows: dict[str, str]) -> None:
    """Names and what they are."""
    table = Table.grid(padding=(0, 2))
    for name, text in rows.items():
        table.add_row(name, text)
    _console().print(table)


def show_strategies() -> None:
    """What each strategy does and its own parameters; those that many share once, at the end."""
    rows: dict[str, str] = {}
    shared: dict[str, Parameter] = {}
    for name, strategy in STRATEGIES.items():
        own = strategy.own_parameters
        rows[name] = "\n".join(filter(None, [strategy.summary, _defaults(own)]))
        shared |= {key: p for key, p in strategy.parameters.items() if key not in own}
    two_columns(rows)
    about = (
        "Besides, for whatever has them: "
        f"{_defaults(shared)}. With a server: schedule, consistency and rule, each the name of the strategy "
        "to take it from. --json lists all parameters of each strategy; docs/strategies.md explains them."
    )
    _console().print(f"\n{about}")


def _defaults(parameters: Mapping[str, Parameter]) -> str:
    """Parameters and their defaults in a line; None, which stands for one that depends, is left out."""
    return ", ".join(
        name
        if p.default is None
        else f"{name}={str(p.default).lower() if isinstance(p.default, bool) else p.default}"
        for name, p in parameters.items()
    )


def fits(table: Table) -> bool:
    """Whether no cell of a table has to be broken."""
    console = _console()
    return console.measure(table).maximum <= console.width


def show_table(table: Table) -> None:
    """Any table."""
    _console().print(table)


def _console() -> Console:
    """As wide as the terminal; a pipe gets lines that are not broken."""
    plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}  # names may have any text
    return Console(**plain) if sys.stdout.isatty() else Console(width=120, **plain)


def first_comment(path: Path) -> str:
    """The first sentence of the comment that a YAML file begins with: what it is for."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.strip("# ") for line in takewhile(lambda line: line.startswith("#"), lines))
    return re.split(r"(?<=\.)\s", comment)[0]
