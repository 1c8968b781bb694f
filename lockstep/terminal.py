"""What people see on a terminal."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import listing
from lockstep.analysis.summary import DONE, main_metrics
from lockstep.analysis.words import NOTHING, count, number, of_replica, percent

if TYPE_CHECKING:  # they load when something is shown: a list of what there is needs none of them
    from rich.console import Console
    from rich.table import Table

    from lockstep.analysis.gains import Gain
    from lockstep.analysis.result import Result
    from lockstep.analysis.what_if import WhatIf
    from lockstep.job.plan import Plan


@contextmanager
def progress(doing: str, quiet: bool) -> Iterator[Callable[[float], None] | None]:
    """A function to tell the fraction done: a bar on a terminal, a plain line otherwise (standard error)."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        print(f"{doing} …", file=sys.stderr, flush=True)
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    doing_ = TextColumn("{task.description}", markup=False)
    with Progress(
        doing_, BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task(doing, total=None)  # until the first fraction is known
        yield lambda fraction: bar.update(task, total=1.0, completed=min(1.0, fraction))


def noting(quiet: bool) -> Callable[[str], None] | None:
    """A function to tell what a run waits for: said once, until it is something else (standard error)."""
    said = {""}

    def note(text: str) -> None:
        if text not in said:
            said.clear()
            said.update(("", text))
            print(f"{text} …", file=sys.stderr, flush=True)

    return None if quiet else note


def show(result: "Result", out: Path | None) -> None:
    """One run, as a table of its metrics in words and units."""
    m = result.metrics
    title = f"{m['scenario']}: {m['strategy']}, {_devices(result.plan)}"
    table = titled(title, "", DONE[result.engine])
    for name, value in main_metrics(result).items():
        table.add_row(name, value)
    show_table(table)
    _warn(m)
    if out is not None:
        print(f"Written to {out}.")


def _devices(plan: "Plan") -> str:
    """ "8 workers", "2 replicas of 4 stages × 2 parts, 1f1b, 16 micro-batches"."""
    split, micro = plan.scenario.split, plan.micro_batches
    replicas = (
        f"{count(plan.replicas, 'replica')} of {of_replica(split.pipeline, split.parts, split.redundancy)}"
    )
    parts = [count(micro, "micro-batch")]
    if split.pipeline == 1:
        whole = count(len(plan.workers), "worker") if split.tensor == 1 else replicas
        return ", ".join([whole, *parts * (micro > 1)])
    if not plan.strategy.own_passes:
        parts.insert(0, split.order + f" with {split.chunks} chunks" * (split.chunks > 1))
    return ", ".join([replicas, *parts])


def show_gains(gains: "Sequence[Gain]") -> None:
    """What would shorten a run most, the most first."""
    from lockstep.analysis.gains import lines

    print("\nWhat a tenth more speed would save (each tried by itself, by sizes only, with the same seed):")
    rows = lines(gains) or [("nothing", "no gradient was applied")]
    listing.two_columns({f"  {name}": text for name, text in rows})


def show_what_if(found: "WhatIf", out: Path | None) -> None:
    """The way from now to the ideal, a change a row."""
    heads = list(found.rows[0])
    table = titled("\nWhat if? (each change besides those above it)", heads[0])
    for head in heads[1:]:
        table.add_column(head, justify="right")
    for row in found.rows:
        table.add_row(*row.values())
    show_table(table)
    if out is not None and found.steps[0].seconds is not None:
        print(f"Drawn in {out / 'what-if.png'}.")


def show_comparison(comparisons: list[dict[str, Any]]) -> None:
    """Predicted against measured: for each metric, a row a strategy."""
    table = titled("Predicted and measured", "", "strategy")
    for head in ("predicted", "measured", "error"):
        table.add_column(head, justify="right")
    for metric, (error, value) in _COMPARED.items():
        name = metric
        for c in comparisons:
            a, b = (number(value(c[side])) for side in ("predicted", "measured"))
            if (a, b) != (NOTHING, NOTHING):
                strategy = c["predicted"]["strategy"] + " (disturbed)" * bool(c["measured"].get("disturbed"))
                table.add_row(name, strategy, a, b, percent(c["error"][error], sign=True))
                name = ""
        table.add_section()
    show_table(table)
    for c in comparisons:
        _warn(c["measured"], c["predicted"])


_COMPARED: dict[str, tuple[str, Callable[[dict[str, Any]], float | None]]] = {
    "samples/s": ("throughput", lambda m: m["throughput"]),
    "mean staleness": ("staleness_mean", lambda m: m["staleness"]["mean"]),
    "held-out loss": ("loss", lambda m: m["loss"]),
    "s to target": ("time_to_target_s", lambda m: m["time_to_target_s"]),
}  # metric: its error's key, and its value in the metrics


def _warn(*runs: dict[str, Any]) -> None:
    """Print what the runs of one strategy warn of, each thing once."""
    for warning in dict.fromkeys(warning for metrics in runs for warning in metrics["warnings"]):
        print(f"warning: {runs[0]['strategy']}: {warning}", file=sys.stderr)


def narrow_enough(table: "Table") -> bool:
    """Whether no cell of a table has to be broken."""
    console = _console()
    # a table that may have all the width that it wants: otherwise what is measured is what it gets
    unbound = console.options.update(max_width=1_000_000)
    return console.measure(table, options=unbound).maximum <= console.width


def show_table(table: "Table") -> None:
    """Any table."""
    _console().print(table)


def titled(title: str, *heads: str, **options: Any) -> "Table":
    """A table whose title stands on the left."""
    from rich.table import Table

    return Table(*heads, title=title, title_justify="left", **options)


def _console() -> "Console":
    """As wide as the terminal; a pipe gets lines that are not broken."""
    from rich.console import Console

    plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}  # names may have any text
    return Console(**plain) if sys.stdout.isatty() else Console(width=120, **plain)
