"""How multiprocessing's fork server is started and ended; what this loads is there in an instant."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from types import ModuleType

from lockstep.executor import signals
from lockstep.executor.folder import short_names

LEARNERS = (
    "lockstep.workloads.classifier",
    "lockstep.workloads.embedding",
    "lockstep.workloads.problems",
    "torch.utils.flop_counter",
)
"""What one of which it is not known yet what it learns imports besides: all that takes no time."""

_ahead = False  # whether it was started before that was known


def start(imported: Collection[str]) -> None:
    """Start what processes are forked from, if it does not run; it imports their modules by and by.

    `imported`: what else they need; one that was started ahead, without, is started again. Ctrl-C, which a
    terminal sends to all processes, is not for it.
    """
    global _ahead
    if _ahead and not {*imported} <= {*LEARNERS}:
        kill()
    _ahead = False
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["lockstep.executor.orphan", "lockstep.executor.process", *imported, "lockstep.executor.preloaded"]
    )
    short_names()
    resource_tracker.ensure_running()  # here: it lets the signals through again
    with no_main_module(), signals.blocked(*signals.ENDING):
        forkserver.ensure_running()


@contextmanager
def ahead() -> Iterator[None]:
    """Start the fork server of a run of which nothing is known yet; it ends if the run does not come to be.

    One that there is already is others', too. Raises ScenarioError where its sockets have no place.
    """
    global _ahead
    if pid() is not None:
        yield
        return
    interruption = signals.Interruption()
    try:
        with signals.handled(interruption, *signals.ENDING), interruption.unmasked():
            start(LEARNERS)
            _ahead = True
            yield
            interruption.check()
    except BaseException:
        kill()
        raise


def kill() -> None:
    """End it at once: while it imports, for seconds, it does not see that nobody needs it any more."""
    if (found := pid()) is not None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(found, signal.SIGKILL)
            os.waitid(os.P_PID, found, os.WEXITED | os.WNOWAIT)  # or the next run takes it for alive


def pid() -> int | None:
    """multiprocessing tells nobody."""
    return vars(forkserver._forkserver)["_forkserver_pid"]  # type: ignore[no-any-return]


@contextmanager
def no_main_module() -> Iterator[None]:
    """Keep multiprocessing from running the caller's script again in every process it starts."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
