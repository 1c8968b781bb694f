"""Core-seconds that a run takes: of its processes, and of the kernel's interrupts on the whole machine.

Most kernels count an interrupt as the time of the process that it interrupts, too (unless they are built with
CONFIG_IRQ_TIME_ACCOUNTING). So the sum of both is at most what the machine's cores were not idle.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_FILE = Path("/proc/stat")
# columns of its first line, in ticks: idle, iowait, steal; irq, softirq; steal alone
_IDLE, _INTERRUPTS, _STEAL = (4, 5, 8), (6, 7), (8,)


class CoreTime:
    """How much there is from now on, as a process sees it."""

    def __init__(self) -> None:
        self._own, self._begun = time.process_time(), time.monotonic()
        self._idle, self._interrupts, self._steal = _seconds()

    def taken(self) -> dict[str, float]:
        """Core-seconds, those of the process's threads in the kernel too.

        Of the whole machine: `busy_s`, `steal_s` (what its host gave to others), `whole_s`: all there were.
        """
        idle, interrupts, steal = _seconds()
        whole = (time.monotonic() - self._begun) * (os.cpu_count() or 1)
        return {
            "own_s": time.process_time() - self._own,
            "interrupts_s": interrupts - self._interrupts,
            "busy_s": whole - (idle - self._idle),
            "steal_s": steal - self._steal,
            "whole_s": whole,
        }


def of_all(processes: Sequence[Mapping[str, float]]) -> float | None:
    """What all processes of a machine, which were told by `taken`, took together; None of none."""
    if not processes:
        return None
    together = sum(each["own_s"] for each in processes) + max(each["interrupts_s"] for each in processes)
    return min(together, max(each["busy_s"] for each in processes))


def _seconds() -> tuple[float, float, float]:
    """Since the machine was started: when cores did nothing, interrupts, and steal; 0 where nobody tells."""
    if not _FILE.exists():
        return 0.0, 0.0, 0.0
    with _FILE.open("rb") as file:
        columns = file.readline().split()
    ticks = os.sysconf("SC_CLK_TCK")
    idle, interrupts, steal = (
        sum(int(columns[place]) for place in places) / ticks for places in (_IDLE, _INTERRUPTS, _STEAL)
    )
    return idle, interrupts, steal
