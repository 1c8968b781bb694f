"""How long the runs of a point last: so long that chance makes about a percent of what one of them measures.

What a run of some seconds measures is one of many possible courses, where workers do not wait for each other.
How far apart these are the simulator knows before anything is measured: as far as simulations are that have
other draws of the network's latencies, on the shipped testbed with some jitter. What is left to chance falls
with the root of the time. So the rule knows no strategies: a point's length follows from its scenario. Where
the longest run that there is leaves too much to chance, there are several.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from math import ceil

import lockstep
from lockstep.pool import cores, results
from lockstep.scenarios.network import Jitter
from lockstep.scenarios.profile import Profile, read
from lockstep.scenarios.shelves import shelf
from lockstep.studies.accuracy_suite.chance import scatter
from lockstep.studies.accuracy_suite.point import Point
from lockstep.studies.accuracy_suite.predicting import by_chance, over
from lockstep.studies.accuracy_suite.profiles import with_profile
from lockstep.validation import on_testbed

CHANCE = 0.01  # standard deviation of what single runs measure, relative to the mean
MOST = 21  # times as long as the grid says, which is eight seconds: nearly three minutes
_COURSES = 8  # simulated of each point
_JITTER = Jitter(deviation="105 us")  # type: ignore[arg-type]  # of the shipped profile's first probe: quartiles


def settled(point: Point) -> Point:
    """The point with runs as long, and as many, as must be: a pure function. What learns stays as it is."""
    if point.part != "rates":
        return point
    wanted = max(1, ceil((spread(point) / CHANCE) ** 2))
    times = min(MOST, wanted)
    stop = {key: _longer(bound, times) for key, bound in point.document["stop"].items()}
    runs = max(point.runs, ceil(wanted / times))
    return replace(point, document={**point.document, "stop": stop}, runs=runs)


def settle(points: Sequence[Point], progress: Callable[[float], None] | None = None) -> list[Point]:
    """All of them, on all cores."""
    found = []
    with results(
        [partial(settled, point) for point in points], min(cores(), max(1, len(points) // 4))
    ) as each:
        for point in each:
            found.append(point)
            if progress is not None:
                progress(len(found) / len(points))
    return found


def spread(point: Point) -> float:
    """How far apart single runs are: see `scatter`."""
    there = over(on_testbed(with_profile(point, [_testbed()])).sizes_only, jitter=_JITTER)
    runs = [lockstep.simulate(by_chance(there, k)).metrics for k in range(_COURSES)]
    return scatter([run["throughput"] for run in runs], [run["staleness"]["mean"] for run in runs])


def _longer(bound: int | str, times: int) -> int | str:
    """A bound of a run, a number of something or a time in s, so many times."""
    if isinstance(bound, int):
        return times * bound
    return f"{times * float(bound.removesuffix(' s')):g} s"


@cache
def _testbed() -> Profile:
    return read(shelf("profiles")["testbed"])
