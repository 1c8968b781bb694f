"""A measurement that was disturbed is made again, before anybody compares it with anything."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from lockstep.analysis.result import Result

ATTEMPTS = 3
"""Of what is compared with a prediction."""

T = TypeVar("T")


def unstolen(
    measure: Callable[[], T], attempts: int = ATTEMPTS, stayed: Callable[[], object] = lambda: None
) -> T:
    """What is measured while the machine's host gives its processors to nobody else, or at last anyhow.

    `stayed` is called if the last one was disturbed, too.
    """
    from lockstep.executor.steal_time import StealTime  # psutil takes its time to load

    for _ in range(attempts):
        steal_time = StealTime()
        found = measure()
        if not steal_time.disturbances():
            break
    else:
        stayed()
    return found


def undisturbed(
    measure: "Callable[[], Result]",
    attempts: int = ATTEMPTS,
    told: Callable[[str], object] | None = None,
    overruns_too: bool = True,
    kept: "Callable[[Result], object] | None" = None,
) -> "Result":
    """The first result that nothing disturbed, of at most so many; else the last one, which says so.

    `told` hears of each that is not the last, and `kept` gets it. Without `overruns_too` gradients that
    overran are only said.
    """
    for attempt in range(1, attempts + 1):
        result = replace(measure(), attempts=attempt)
        if not (result.disturbances or (overruns_too and result.overruns)):
            break
        if kept is not None and attempt < attempts:
            kept(result)
        if told is not None and attempt < attempts:
            why = [*result.disturbances, *result.overruns][0]
            told(f"disturbed ({why}): measured again, attempt {attempt + 1} of at most {attempts}")
    return result
