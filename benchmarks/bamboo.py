"""Turns a trace of Bamboo's into one for `cluster.faults`: `bamboo.py TRACE PLACES BEGIN > hosts.csv`.

TRACE: of github.com/uclasystem/bamboo, traces/ (MIT licence), lines `milliseconds, add|remove, instance`. The
job has so many places, each a host; the oldest free instance takes a place, 45 s after it has come, as in the
authors' simulator. The job begins at BEGIN, s of the trace.
"""

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

READY_S = 45.0


def hosts(trace: Path, places: int, begin: float) -> Iterator[tuple[float, int, str]]:
    """When which place goes down, and up."""
    changes = []
    for number, line in enumerate(trace.read_text("utf-8").splitlines()):
        at, what, instance = line.split(",")
        comes, seconds = what == "add", float(at) / 1000
        changes.append((seconds + READY_S * (comes and seconds > 0), comes, number, instance))
    free, gone, holds = list[str](), set[str](), dict[int, str]()
    for at, group in groupby(sorted(changes), key=lambda change: change[0]):
        down = set[int]()
        for _, comes, _, instance in group:
            if comes:
                free += [instance] * (instance not in gone)
                continue
            gone.add(instance)
            free = [each for each in free if each != instance]
            down |= {place for place, there in holds.items() if there == instance}
            holds = {place: there for place, there in holds.items() if there != instance}
        up = [place for place in range(places) if place not in holds][: len(free)]
        holds |= dict(zip(up, free, strict=False))
        free = free[len(up) :]
        if at <= begin:
            assert at < begin or len(holds) == places, "not all places are taken when the job begins"
            continue
        yield from ((at - begin, place, "down") for place in sorted(down))
        yield from ((at - begin, place, "up") for place in up)


if __name__ == "__main__":
    for at, place, what in hosts(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])):
        print(f"{at:g}, {place}, {what}")
