"""Measures points, one after the other, with nothing else computing, and keeps each run at once."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import lockstep
from lockstep.attempts import ATTEMPTS
from lockstep.studies.accuracy_suite import campaign
from lockstep.studies.accuracy_suite.chance import wanting
from lockstep.studies.accuracy_suite.digest import Digest, digest
from lockstep.studies.accuracy_suite.point import Point

Tell = Callable[[str], None]

MOST = 5  # runs of a point
ENOUGH = 0.01  # standard error of their mean, relative to it


def measure(
    points: Sequence[Point],
    folder: Path,
    testbed: bool,
    tell: Tell | None = None,
    attempts: int = ATTEMPTS,
) -> list[dict[str, Any]]:
    """A row for each point: what was kept of it, or else is measured now; `tell` is told line by line.

    A point has as many runs as chance asks for: as many as it says beforehand, then as the runs say. One that
    fails has its `error` instead of metrics, and is tried again by the next call. After Ctrl-C all runs that
    were finished are kept.
    """
    runs = {point.name: campaign.kept(folder, point) for point in points}
    missing = [point for point in points if _wanting(point, runs[point.name])]
    errors, begun = dict[str, str](), monotonic()
    for number, point in enumerate(missing, 1):
        try:
            said = _complete(point, runs[point.name], folder, testbed, attempts)
        except (RuntimeError, OSError) as failure:
            errors[point.name] = said = f"{type(failure).__name__}: {failure}".splitlines()[0]
        if tell is not None:
            place = len(points) - len(missing) + number
            left = _time((monotonic() - begun) / number * (len(missing) - number))
            tell(f"{place} of {len(points)}, {point.name}: {said}; {left} left")
    return [campaign.row(point, runs[point.name], errors.get(point.name)) for point in points]


def _wanting(point: Point, runs: Sequence[Digest]) -> bool:
    return wanting(runs, min(point.runs, MOST), MOST, ENOUGH)


def _complete(point: Point, runs: list[Digest], folder: Path, testbed: bool, most: int) -> str:
    """Append the runs that are missing, and keep each; what is said about them."""
    while _wanting(point, runs):
        result = lockstep.run(point.scenario, testbed=testbed, attempts=most)
        runs.append(digest(result) | {key: result.metrics[key] for key in ("disturbed", "attempts")})
        campaign.keep(folder, point, runs)
    attempts, disturbed = sum(run["attempts"] for run in runs), any(run["disturbed"] for run in runs)
    said = ", ".join(f"{run['throughput'] or 0:.1f}" for run in runs) + " samples/s"
    if attempts > len(runs):
        said += f" ({attempts} attempts{', disturbed in the end' * disturbed})"
    return said


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
