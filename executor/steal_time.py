"""Processor time that a virtual machine wanted and did not get: its host gave it to others."""

import os
import time

import psutil

_MUCH, _LEAST_S = 0.01, 0.1  # of the processors' time; a tick or two say little


class StealTime:
    """How much there is from now on."""

    def __init__(self) -> None:
        self._begun, self._before = time.monotonic(), _seconds()

    def disturbances(self) -> list[str]:
        """A line if it was so much that the run's metrics may be off."""
        offered = (time.monotonic() - self._begun) * (os.cpu_count() or 1)
        return disturbances(_seconds() - self._before, offered)


def disturbances(steal_s: float, offered_s: float) -> list[str]:
    """A line if so much was taken of the processor time of a machine that its metrics may be off."""
    if steal_s < max(_LEAST_S, _MUCH * offered_s):
        return []
    return [f"{steal_s / offered_s:.0%} of the processors' time went to other guests of this machine's host"]


def _seconds() -> float:
    """Steal time since the machine was started; 0 where the system does not tell."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))
