"""Runs what a plan has and is not there yet, keeps it as it comes, and makes the table of it."""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from lockstep.executor import signals
from lockstep.job.version import version
from lockstep.scenarios import Scenario
from lockstep.sweeping import store, table
from lockstep.sweeping.backends import Backend, here
from lockstep.sweeping.points import Plan, Run
from lockstep.sweeping.running import Progress, Row, outcomes


class Swept(NamedTuple):
    """What came of a sweep. `kept`: how many of its runs were there already."""

    table: pd.DataFrame
    kept: int

    @property
    def failed(self) -> int:
        """How many runs failed."""
        return int((self.table["status"] == "failed").sum())


def sweep(
    plan: Plan,
    backend: Callable[[], Backend] = here,
    *,
    out: Path | None = None,
    records_of: Collection[int] = (),
    progress: Progress | None = None,
    begun: Callable[[int], None] | None = None,
) -> Swept:
    """Make the runs of a plan, in an order of the backend's; the table is in the plan's.

    `records_of`: the points whose records are kept. With `out` nothing is lost that has come to its end: on
    KeyboardInterrupt, and on errors, the folder has the table of it. `begun` is told how many runs are there.
    """
    with _opened(plan, out) as folder:
        todo = [run for run in plan.runs if not folder.has(run.key, run.point in records_of)]
        kept, done = len(plan.runs) - len(todo), 0
        if begun is not None:
            begun(kept)

        def told(fraction: float) -> None:
            if progress is not None:
                progress((done + fraction) / len(todo))

        def arguments(run: Run) -> tuple[object, ...]:
            inner = told if backend is here else None  # a run elsewhere is not heard of until it ends
            return plan.engine, plan.testbed, version(plan.engine), run.point in records_of, inner

        with closing(outcomes(todo, backend, arguments)) as found:
            for run, (row, files) in found:
                folder.keep({"run": run.key, **row}, files)
                done += 1
                told(0.0)
    return Swept(folder.table, kept)


class _Memory:
    """In place of a folder: rows that are not kept."""

    changed = 0

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def has(self, key: str, files: bool) -> bool:
        return False

    def keep(self, row: Row, files: Mapping[str, bytes]) -> None:
        self.rows[row["run"]] = row

    def finish(self, scenario: Scenario, table: pd.DataFrame) -> None:
        self.table = table


@contextmanager
def _opened(plan: Plan, out: Path | None) -> Iterator[store.Store | _Memory]:
    """Where rows go; in the end it has the table of them."""
    with nullcontext(_Memory()) if out is None else store.opened(out) as folder:
        if folder.changed:
            lines = "a line is" if folder.changed == 1 else f"{folder.changed} lines are"
            what = f"warning: {out}/{store.POINTS}: {lines} not as written; what ran is made again"
            print(what, file=sys.stderr)
        try:
            yield folder
        finally:
            with signals.blocked(*signals.ENDING):
                folder.finish(plan.scenario, table.frame(plan, folder.rows))
