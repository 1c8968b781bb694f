"""The fork server of multiprocessing, when it does not do as it should."""

import os
import signal
import time
from contextlib import suppress
from multiprocessing import forkserver
from threading import Event, Thread

from lockstep.executor import blame

_LOOK_S = 0.5  # how often the guard looks


class ForkServerGuard:
    """Ends the fork server if it is stopped for longer than `deadline_s`: nothing starts, no end is told."""

    def __init__(self, deadline_s: float) -> None:
        self.why = ""
        self._deadline_s = deadline_s
        self._over = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Watch no more."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        since = time.monotonic()
        while not self._over.wait(_LOOK_S):
            pid = _fork_server_pid()
            if pid is None or not blame.is_stopped(pid):
                since = time.monotonic()
            elif time.monotonic() - since > self._deadline_s:
                self.why = (
                    f"the process {pid}, which all others are forked from, has been stopped (SIGSTOP) for "
                    f"{self._deadline_s:.0f} s"
                )
                kill_fork_server()
                return


def kill_fork_server() -> None:
    """End it at once: while it imports, for seconds, it does not see that nobody needs it any more."""
    if (pid := _fork_server_pid()) is not None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # or the next run takes it for alive


def _fork_server_pid() -> int | None:
    """multiprocessing tells nobody."""
    return vars(forkserver._forkserver)["_forkserver_pid"]  # type: ignore[no-any-return]
