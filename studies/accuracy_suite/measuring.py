"""Measures points, a run of each in turn, with nothing else computing, and keeps each run at once."""

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
    between: Callable[[int], object] | None = None,
) -> list[dict[str, Any]]:
    """A row for each point: what was kept of it, or else is measured now; `tell` is told line by line.

    A point has as many runs as chance asks for: as many as it says beforehand, then as the runs say. They go
    round: all points have a run before any has another, so that a machine that is faster for a quarter of an
    hour is so for a run of each, and their scatter shows it. A point that fails has its `error` instead of
    metrics, and is tried again by the next call. After Ctrl-C all runs that were finished are kept.

    `between`: is called before each round and after the last, with the number of the round that follows.
    """
    runs = {point.name: campaign.kept(folder, point) for point in points}
    errors, begun, made, rounds = dict[str, str](), monotonic(), 0, 0
    while missing := [each for each in points if each.name not in errors and _missing(each, runs[each.name])]:
        point = min(missing, key=lambda each: len(runs[each.name]))
        its = runs[point.name]
        number = len(its) + 1
        if between is not None and number > rounds:
            between(number)
            rounds = number
        try:
            said = _once_more(point, its, folder, testbed, attempts)
        except (RuntimeError, OSError) as failure:
            errors[point.name] = said = f"{type(failure).__name__}: {failure}".splitlines()[0]
        made += 1
        if tell is not None:
            rest = [_missing(each, runs[each.name]) for each in points if each.name not in errors]
            left = _time((monotonic() - begun) / made * sum(rest))
            done = f"{len(points) - sum(map(bool, rest))} of {len(points)} points"
            tell(f"{point.name}, run {number}: {said}; {done} done, {left} left")
    if between is not None:
        between(1 + max(map(len, runs.values())))
    return [campaign.row(point, runs[point.name], errors.get(point.name)) for point in points]


def _missing(point: Point, runs: Sequence[Digest]) -> int:
    """How many runs are known to be wanted; those that stayed disturbed tell nothing."""
    least, sound = min(point.runs, MOST), campaign.sound(runs)
    more = len(runs) < MOST and wanting(sound, least, MOST, ENOUGH)
    return min(MOST - len(runs), max(1, least - len(sound))) if more else 0


def _once_more(point: Point, runs: list[Digest], folder: Path, testbed: bool, most: int) -> str:
    """Append a run, and keep it; what is said about it."""
    expected = point.overruns_expected and testbed  # of the loopback no profile says what cores take
    result = lockstep.run(point.scenario, testbed=testbed, attempts=most, overruns_expected=expected)
    runs.append(digest(result) | {key: result.metrics[key] for key in ("disturbed", "attempts")})
    campaign.keep(folder, point, runs)
    said = f"{runs[-1]['throughput'] or 0:.1f} samples/s"
    if result.attempts > 1:
        said += f" ({result.attempts} attempts{', disturbed in the end' * result.disturbed})"
    return said


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
