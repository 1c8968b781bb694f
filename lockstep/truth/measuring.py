"""Measures points, one after the other, with nothing else computing, and keeps each at once."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import lockstep
from lockstep.truth import campaign
from lockstep.truth.digest import digest
from lockstep.truth.point import Point

Tell = Callable[[str], None]


def measure(points: Sequence[Point], folder: Path, testbed: bool, tell: Tell | None = None) -> list[dict[str, Any]]:
    """A row for each point: what was kept of it, or else is measured now; `tell` is told line by line.

    One that fails has its `error` instead of figures, and is tried again by the next call. After Ctrl-C all
    that were finished are kept.
    """
    found = {point.name: campaign.kept(folder, point) for point in points}
    found = {name: row for name, row in found.items() if row and row["error"] is None}
    missing = [point for point in points if point.name not in found]
    begun = monotonic()
    for number, point in enumerate(missing, 1):
        error, figures = None, None
        try:
            figures = digest(lockstep.run(point.scenario, testbed=testbed))
        except (RuntimeError, OSError) as failure:
            error = f"{type(failure).__name__}: {failure}".splitlines()[0]
        found[point.name] = campaign.row(point, figures, error)
        campaign.keep(folder, point, found[point.name])
        if tell is not None:
            left_s = (monotonic() - begun) / number * (len(missing) - number)
            what = error or f"{figures['throughput'] or 0:.1f} samples/s"  # type: ignore[index]
            tell(f"{len(points) - len(missing) + number} of {len(points)}, {point.name}: {what}; {_time(left_s)} left")
    return [found[point.name] for point in points]


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
