"""What else this machine does: processor time that other programs take while a run is measured."""

import os
import time
from pathlib import Path

from lockstep.analysis.words import percent

MUCH = 0.1  # of the processors' time: daemons take less, one program on eight cores more
_PROC = Path("/proc")
_FIELDS = slice(11, 15)  # of /proc/PID/stat behind the name: utime, stime, and those of children that ended


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
    """Processor time that all programs but our own have had; None where there is no /proc of Linux's."""
    ticks, parents = {}, {}
    try:
        entries = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    except OSError:
        return None
    for pid in entries:
        try:
            fields = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[_FIELDS]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    if os.getpid() not in ticks:
        return None
    return sum(its for pid, its in ticks.items() if pid not in ours) / os.sysconf("SC_CLK_TCK")
