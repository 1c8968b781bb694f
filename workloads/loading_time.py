"""How long a worker waits for its mini-batches where processes of their own read ahead."""

from collections.abc import Callable

AHEAD = 2  # mini-batches that each process reads ahead: DataLoader's prefetch_factor


class LoadingTime:
    """The waits of one worker, in virtual time, as DataLoader's processes cause them.

    Mini-batch k is read by process k mod n, from when it is asked for: as soon as mini-batch k − 2n is taken
    (AHEAD = 2), and the process has read the one before. The first 2n are there at the start.
    """

    def __init__(self, processes: int, seconds: Callable[[], float]) -> None:
        """seconds: what the next mini-batch takes to read."""
        self._seconds = seconds
        self._ready = [0.0] * (
            AHEAD * processes
        )  # of the mini-batches that are read or being read, in a ring
        self._free = [0.0] * processes  # when each process will have read all that it was asked for
        self._taken = 0

    def wait(self, now: float) -> float:
        """Take a mini-batch at `now` (s since the start): how long until it is there."""
        place, process = self._taken % len(self._ready), self._taken % len(self._free)
        taken = max(now, self._ready[place])
        self._free[process] = max(taken, self._free[process]) + self._seconds()
        self._ready[place] = self._free[process]
        self._taken += 1
        return taken - now
