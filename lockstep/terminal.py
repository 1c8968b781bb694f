"""What people see on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from analysis.records import Result


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
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(doing, total=1.0)
        yield lambda fraction: bar.update(task, completed=min(1.0, fraction))


def show(result: Result, out: Path | None) -> None:
    """One run, as a table of its figures in words and units."""
    m = result.metrics
    done = "predicted" if result.engine == "simulator" else "measured"
    table = Table(
        "", done, title=f"{m['scenario']}: {m['strategy']}, {m['workers']} workers", title_justify="left"
    )
    stale, parts = m["staleness"], m["breakdown"]
    rows = {
        "duration": number(m["duration_s"], "s"),
        "throughput": number(m["throughput"], "samples/s"),
        "speedup": f"{number(m['speedup'])} (efficiency {percent(m['efficiency'])})",
        "updates": f"{m['updates']} ({number(m['updates_per_s'], '/s')})",
        "staleness": f"mean {number(stale['mean'])}, median {number(stale['p50'])}, max {number(stale['max'])}",
        "workers' time": ", ".join(f"{name} {percent(part)}" for name, part in parts.items()),
        "sent": number(m["bytes_sent"] / 1e6, "MB"),
        "held-out loss": number(m["loss"]),
        "accuracy": percent(m["accuracy"]),
    }
    if m["target"] is not None:
        rows[f"time to {percent(m['target'])}"] = number(m["time_to_target_s"], "s")
    for name, value in rows.items():
        if value != "–":
            table.add_row(name, value)
    _console().print(table)
    _warn(m)
    if out is not None:
        print(f"Written to {out}.")


def show_comparison(comparisons: list[dict[str, Any]]) -> None:
    """Predicted against measured, a row a strategy."""
    table = Table(title="Predicted and measured", title_justify="left")
    table.add_column("strategy")
    for head in (
        "samples/s predicted",
        "measured",
        "error",
        "staleness predicted",
        "measured",
        "loss predicted",
        "measured",
    ):
        table.add_column(head, justify="right")
    for comparison in comparisons:
        a, b, error = comparison["predicted"], comparison["measured"], comparison["error"]
        table.add_row(
            a["strategy"],
            number(a["throughput"]),
            number(b["throughput"]),
            percent(error["throughput"], sign=True),
            number(a["staleness"]["mean"]),
            number(b["staleness"]["mean"]),
            number(a["loss"]),
            number(b["loss"]),
        )
    _console().print(table)
    for comparison in comparisons:
        _warn(comparison["measured"])


def _warn(metrics: dict[str, Any]) -> None:
    for warning in metrics["warnings"]:
        print(f"warning: {metrics['strategy']}: {warning}", file=sys.stderr)


def two_columns(rows: dict[str, str]) -> None:
    """Names and what they are."""
    table = Table.grid(padding=(0, 2))
    for name, text in rows.items():
        table.add_row(name, text)
    _console().print(table)


def _console() -> Console:
    """As wide as the terminal; a pipe gets lines that are not broken."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def first_comment(path: Path) -> str:
    """The first comment line of a YAML file: what it is for."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("#")), "")


def number(value: float | None, unit: str = "") -> str:
    """Four significant digits and the unit; a dash for nothing."""
    if value is None:
        return "–"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


def percent(value: float | None, sign: bool = False) -> str:
    """A fraction as a percentage; a dash for nothing."""
    if value is None:
        return "–"
    return f"{100 * value:+.1f}%" if sign else f"{100 * value:.1f}%"
