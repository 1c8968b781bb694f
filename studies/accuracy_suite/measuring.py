"""Measures points, one after the other, with nothing else computing, and keeps each at once."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import lockstep
from lockstep.attempts import ATTEMPTS
from lockstep.studies.accuracy_suite import campaign
from lockstep.studies.accuracy_suite.digest import digest
from lockstep.studies.accuracy_suite.point import Point

Tell = Callable[[str], None]


def measure(
    points: Sequence[Point], folder: Path, testbed: bool, tell: Tell | None = None
) -> list[dict[str, Any]]:
    """A row for each point: what was kept of it, or else is measured now; `tell` is told line by line.

    One that fails has its `error` instead of metrics, and is tried again by the next call. After Ctrl-C all
    that were finished are kept.
    """
    rows = {point.name: row for point in points if (row := campaign.kept(folder, point)) and not row["error"]}
    missing = [point for point in points if point.name not in rows]
    begun = monotonic()
    for number, point in enumerate(missing, 1):
        rows[point.name], said = _measured(point, testbed)
        campaign.keep(folder, point, rows[point.name])
        if tell is not None:
            place = len(points) - len(missing) + number
            left = _time((monotonic() - begun) / number * (len(missing) - number))
            tell(f"{place} of {len(points)}, {point.name}: {said}; {left} left")
    return [rows[point.name] for point in points]


def _measured(point: Point, testbed: bool) -> tuple[dict[str, Any], str]:
    """What is kept of a point, and what is said about it."""
    try:
        result = lockstep.run(point.scenario, testbed=testbed, attempts=ATTEMPTS)
    except (RuntimeError, OSError) as failure:
        error = f"{type(failure).__name__}: {failure}".splitlines()[0]
        return campaign.row(point, None, error), error
    found = {**digest(result), **{key: result.metrics[key] for key in ("disturbed", "attempts")}}
    said = f"{found['throughput'] or 0:.1f} samples/s"
    if found["attempts"] > 1:
        said += f" ({'disturbed in all' if found['disturbed'] else 'after'} {found['attempts']} attempts)"
    return campaign.row(point, found, None), said


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
