"""What else this machine does: processor time that other programs take while a run is measured."""

import os
import time

import psutil

from lockstep.analysis.words import percent

MUCH = 0.1  # of the processors' time: daemons take less, one program on eight cores more


class Others:
    """How busy all programs but this one, and those that it has started, are from now on."""

    def __init__(self) -> None:
        self._begun, self._before = time.monotonic(), _seconds()

    def share(self) -> float | None:
        """Their part of the processors' time, in [0, 1]; None where the system does not tell."""
        now = _seconds()
        if now is None or self._before is None:
            return None
        offered = (time.monotonic() - self._begun) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, now - self._before) / offered) if offered else 0.0

    def said(self) -> str:
        """What that means for a measurement that is far from its prediction, in a sentence or two."""
        share = self.share()
        if share is None:
            return "Whether other programs kept this machine busy is not known here."
        took = f"Other programs took {percent(share)} of this machine's processors meanwhile"
        if share >= MUCH:
            return f"{took}: it was busy. Measure again when it does nothing else."
        return f"{took}: it was not busy. docs/accuracy.md says what predictions miss."


def _seconds() -> float | None:
    """Processor time that all programs but our own have had; None where the system does not tell."""
    try:
        programs = {its.pid: its.info["cpu_times"] for its in psutil.process_iter(["cpu_times"])}
        ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    except (OSError, psutil.Error):
        return None
    # user and system, of a program itself and of its children that ended
    return sum(sum(took[:4]) for pid, took in programs.items() if took and pid not in ours)
