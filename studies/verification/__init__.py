"""The simulator against theory: the cases of `lockstep verify`, and what came of them."""

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from typing import Any

from lockstep import selection
from lockstep.simulator.errors import SimulationError
from lockstep.studies.verification import (
    failures,
    links,
    network,
    pipelines,
    queues,
    rounds,
    sharding,
    simgrid,
    simgrid_cases,
    staleness,
    tensor,
)
from lockstep.studies.verification.case import Case, Outcome, within

_VALUES = ("theory", "simulated", "error", "tolerance")


def cases() -> list[Case]:
    """All cases; those that need SimGrid only where it is installed."""
    kinds = (network, links, rounds, staleness, queues, pipelines, tensor, sharding, failures)
    own = [case for kind in kinds for case in kind.CASES]
    if simgrid.available() is not None:
        return own
    return own + [Case(f"SimGrid {case.name}", partial(_simgrid, case)) for case in simgrid_cases.named()]


def _simgrid(case: simgrid.Case) -> Outcome:
    """The largest relative difference of a flow's duration to SimGrid's."""
    return within(simgrid_cases.TOLERANCE, 0.0, simgrid_cases.compare([case])[0].difference)


def chosen(patterns: Sequence[str]) -> list[Case]:
    """The cases whose names have one of the patterns in them (shell wildcards); all without a pattern.

    Raises ScenarioError for a pattern that is in no name.
    """
    found = cases()
    kinds = ", ".join(dict.fromkeys(case.name.split()[0] for case in found))
    return selection.chosen(found, patterns, "case", f"names begin with {kinds}")


def verify(these: Sequence[Case], progress: Callable[[float], None] | None = None) -> dict[str, Any]:
    """Check the cases; `progress` is told the fraction done.

    What `lockstep verify --json` prints: `cases`, each with its name, values and verdict ("pass" or "fail");
    how many `failed`; and what was `skipped`, and why.
    """
    rows: list[dict[str, Any]] = []
    for case in these:
        rows.append(_row(case))
        if progress is not None:
            progress(len(rows) / len(these))
    failed = sum(row["verdict"] == "fail" for row in rows)
    missing = simgrid.available()
    return {"schema": 1, "cases": rows, "failed": failed, "skipped": {"SimGrid": missing} if missing else {}}


def _row(case: Case) -> dict[str, Any]:
    """The values of a case; None, and a failure, if the simulation deadlocks or breaks a law of its own."""
    try:
        outcome = case.check()
    except SimulationError as error:
        return {"case": f"{case.name}: {error}", **dict.fromkeys(_VALUES), "verdict": "fail"}
    values = {name: getattr(outcome, name) for name in _VALUES}
    finite = {name: value if isfinite(value) else None for name, value in values.items()}
    return {"case": case.name, **finite, "verdict": outcome.verdict}
