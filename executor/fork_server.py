"""The fork server of multiprocessing: how it is begun, and when it does not do as it should."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from threading import Event, Thread
from types import ModuleType

from lockstep.executor import blame, cuts, signals
from lockstep.executor.devices import asked
from lockstep.executor.devices import require as require_device
from lockstep.executor.folder import short_names
from lockstep.job.plan import Plan
from lockstep.workloads import modules, require_importable
from lockstep.workloads.importing import require_guard

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


@contextmanager
def begun(plan: Plan, testbed: bool) -> Iterator[None]:
    """Import, beside the fork server of the plan's run, what it imports too."""
    interruption = signals.Interruption()
    with signals.handled(interruption, *signals.ENDING), interruptible(interruption):
        start_for(plan, testbed)
        yield
        interruption.check()


@contextmanager
def interruptible(interruption: signals.Interruption) -> Iterator[None]:
    """Whenever the run is interrupted, and whatever a library makes of that, the fork server ends too."""
    try:
        with interruption.unmasked():
            yield
    except KeyboardInterrupt:
        kill_fork_server()
        raise


def start_for(plan: Plan, testbed: bool) -> None:
    """Start what the processes of a run are forked from.

    Raises ScenarioError, before, for what they could not do: import its task, have its devices or cut its
    links; and as `start_fork_server`.
    """
    cuts.check(plan, testbed)
    require_importable(plan.scenario.workload)
    require_device(*asked(plan.scenario.cluster, of_worker=True))
    if plan.has_servers:
        require_device(*asked(plan.scenario.cluster, of_worker=False))
    start_fork_server(modules(plan.scenario.workload, in_layers=bool(plan.stages)))


def start_fork_server(imported: Sequence[str] = ()) -> None:
    """Start what processes are forked from, if it does not run; it imports their modules by and by.

    `imported`: what else each of them would import for itself, seconds of work, and has from the start then.
    Ctrl-C, which a terminal sends to all processes, is not for it. Raises ScenarioError in the midst of the
    import of a user's module.
    """
    require_guard()
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["lockstep.executor.orphan", "lockstep.executor.process", *imported]
    )
    short_names()
    resource_tracker.ensure_running()  # here: it lets the signals through again
    with no_main_module(), signals.blocked(*signals.ENDING):
        forkserver.ensure_running()


@contextmanager
def no_main_module() -> Iterator[None]:
    """Keep multiprocessing from running the caller's script again in every process it starts."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
