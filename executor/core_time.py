"""Core-seconds that a run takes: of its processes, and of the kernel's interrupts on the whole machine."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_FILE = Path("/proc/stat")
_IRQ, _SOFTIRQ = 6, 7  # columns of its first line, in ticks


class CoreTime:
    """How much there is from now on, as a process sees it."""

    def __init__(self) -> None:
        self._own, self._interrupts = time.process_time(), _interrupts()

    def taken(self) -> dict[str, float]:
        """Core-seconds, those of the process's threads in the kernel too."""
        return {
            "own_s": time.process_time() - self._own,
            "interrupts_s": _interrupts() - self._interrupts,
        }


def of_all(processes: Sequence[Mapping[str, float]]) -> float | None:
    """What all processes of a machine, which were told by `taken`, took together; None of none."""
    if not processes:
        return None
    return sum(each["own_s"] for each in processes) + max(each["interrupts_s"] for each in processes)


def _interrupts() -> float:
    """Since the machine was started; 0 where the system does not tell."""
    if not _FILE.exists():
        return 0.0
    with _FILE.open("rb") as file:
        columns = file.readline().split()
    return (int(columns[_IRQ]) + int(columns[_SOFTIRQ])) / os.sysconf("SC_CLK_TCK")
