"""`lockstep sweep`."""

import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep import terminal
from lockstep.analysis.words import count
from lockstep.commands.options import (
    File,
    Out,
    Quiet,
    Set,
    Testbed,
    Trust,
    Yes,
    all_is_loaded,
    ask_first,
    check_out,
)
from lockstep.printing import Csv, Json, Markdown, Printing
from lockstep.scenarios import ScenarioError

if TYPE_CHECKING:
    from lockstep.sweeping.points import Plan
    from lockstep.work import Work

Seeds = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Make each point with N seeds, from the scenario's on.")
]
Jobs = Annotated[int | None, typer.Option(metavar="N", min=1, help="So many processes; one a core without.")]
Engine = Annotated[
    str, typer.Option(metavar="ENGINE", help="simulator, or executor: real runs, one at a time.")
]
BackendName = Annotated[
    str, typer.Option("--backend", metavar="NAME", help="joblib (this machine), dask or ray.")
]
Scheduler = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where the Dask or Ray cluster is.")]
KeepRecords = Annotated[
    str, typer.Option(metavar="all|POINT,…", help="Keep the records of all, or of these points' runs.")
]


def sweep(
    file: File,
    set_: Set = None,
    out: Out = None,
    seeds: Seeds = None,
    jobs: Jobs = None,
    engine: Engine = "simulator",
    testbed: Testbed = False,
    backend: BackendName = "joblib",
    scheduler: Scheduler = None,
    keep_records: KeepRecords = "",
    trust: Trust = False,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
    yes: Yes = False,
) -> None:
    """Run a scenario's sweep, as one table.

    With --out it can be stopped at any moment: started again, it goes on. Runs that failed make the exit
    status 3; the others are made all the same.
    """
    from lockstep.sweeping.backends import choose
    from lockstep.sweeping.points import plan
    from lockstep.sweeping.show import show
    from lockstep.sweeping.sweep import sweep
    from lockstep.sweeping.table import rows

    printing = Printing(json_, csv, markdown)
    overrides = [*(set_ or []), *([f"sweep.seeds={seeds}"] if seeds else [])]
    planned = plan(file, overrides, engine, testbed)
    workers = choose(backend, jobs, scheduler, planned)
    records_of = _points(keep_records, len(planned.points))
    check_out(out)
    if records_of and out is None:
        raise ScenarioError("needs a folder to keep them in; give --out", key="--keep-records")
    ask_first(lambda: _work(planned, out, 1 if jobs is None and backend != "joblib" else jobs), yes)
    all_is_loaded()
    talks = not (quiet or printing)
    if planned.same and talks:
        print(f"Left out: {count(planned.same, 'run')}, the same as others.", file=sys.stderr)

    def begun(kept: int) -> None:
        if kept and talks:
            print(f"{kept} of {count(len(planned.runs), 'run')} already there.", file=sys.stderr)

    doing = f"sweeping {planned.scenario.name}: {count(len(planned.runs), 'run')}"
    try:
        with terminal.progress(doing, not talks) as progress:
            swept = sweep(planned, workers, out=out, records_of=records_of, progress=progress, begun=begun)
    except KeyboardInterrupt:
        kept = (
            f"what has ended is in {out}; started again, the rest follows"
            if out
            else "without --out nothing is kept"
        )
        print(f"{kept}.", file=sys.stderr)
        raise
    table = rows(swept.table)
    about = {"schema": 1, "scenario": planned.scenario.name, "engine": engine, "varying": planned.swept}
    counts = {"runs": len(swept.table), "kept": swept.kept, "failed": swept.failed}
    if not printing.print(about | counts | {"points": table}, lambda: table):
        show(planned, swept, out)
    if swept.failed:
        raise typer.Exit(3)


def _work(planned: "Plan", out: Path | None, jobs: int | None) -> "Work":
    """That of the runs that are not there yet."""
    from lockstep import work
    from lockstep.pool import cores
    from lockstep.sweeping.store import ended

    there = ended(out) if out is not None else set()
    todo = [run.scenario for run in planned.runs if run.key not in there]
    if planned.engine == "executor":
        return work.of_many(todo, partial(work.running, testbed=planned.testbed))
    return work.of_many(todo, work.simulating, jobs or cores())


def _points(text: str, points: int) -> Collection[int]:
    """The points that `--keep-records` names."""
    if text == "all":
        return range(points)
    try:
        chosen = {int(number) for number in text.split(",") if text}
    except ValueError:
        chosen = {-1}
    if chosen - set(range(points)):
        raise ScenarioError(
            f"must be all, or points from 0 to {points - 1}, not {text!r}", key="--keep-records"
        )
    return chosen
