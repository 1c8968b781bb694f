"""How much slower this machine is, just now, than the one on which the times in the tests were chosen.

A test that the clock judges asks for a share: of a message's time, of a gradient's. What the processors need
besides is a number of instructions. So on a slower machine, or one that does something else too, that share
stays what it was if messages and gradients last longer by as much; tolerances stay what they are.
"""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import TypeVar

import lockstep
from lockstep import Result, Scenario

_LOOPS, _STEPS = 9, 500_000
_REFERENCE_S = 0.033  # of one loop: a Xeon of 2025, two virtual cores, where nothing else ran
_MOST = 10.0  # a test may not take for ever
T = TypeVar("T")


def slowness() -> float:
    """How many times as long work takes here and now, from 1 on: the median of some loops, 0.3 s of them."""
    return min(_MOST, max(1.0, median(_loop_s() for _ in range(_LOOPS)) / _REFERENCE_S))


def longer(milliseconds: float) -> str:
    """A duration for a scenario, by so much longer."""
    return f"{milliseconds * slowness():.3f} ms"


def undisturbed(tried: Callable[[], T], right: Callable[[T], bool]) -> T:
    """What comes of a try; of another one if it is not right: a busy machine is late now and then."""
    for _ in range(4):
        if right(found := tried()):
            return found
    return tried()


def measured(point: Scenario) -> Result:
    """A run without gradients that took longer than their draw: those say that others use the cores.

    The machine may be shared, which only ever slows a run down: of up to three, the fastest counts.
    """
    runs = []
    while len(runs) < 3:
        runs.append(lockstep.run(point, attempts=1))
        if not runs[-1].warnings:
            return runs[-1]
    return max(runs, key=lambda run: run.metrics["throughput"])


def _loop_s() -> float:
    start, total = perf_counter(), 0
    for number in range(_STEPS):
        total += number & 3
    return perf_counter() - start
