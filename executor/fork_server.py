"""The fork server of a run: what is seen to before it is begun, and when it does not do as it should."""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

from lockstep.executor import blame, cuts, forking, signals
from lockstep.executor.devices import asked
from lockstep.executor.devices import require as require_device
from lockstep.executor.forking import kill as kill_fork_server
from lockstep.executor.forking import start
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
            pid = forking.pid()
            if pid is None or not blame.is_stopped(pid):
                since = time.monotonic()
            elif time.monotonic() - since > self._deadline_s:
                self.why = (
                    f"the process {pid}, which all others are forked from, has been stopped (SIGSTOP) for "
                    f"{self._deadline_s:.0f} s"
                )
                kill_fork_server()
                return


@contextmanager
def begun(plan: Plan, testbed: bool) -> Iterator[None]:
    """Import, beside the fork server of the plan's run, what it imports too."""
    interruption = signals.Interruption()
    with signals.handled(interruption, *signals.ENDING), interruptible(interruption), _no_garbage():
        start_for(plan, testbed)
        yield
        interruption.check()


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Keep Python from looking for garbage among modules as they load: a fifth of the time.

    Nor does it look among them afterwards where that holds of those that were there before, as in a command.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        if gc.get_freeze_count():
            gc.freeze()
    finally:
        if was_on:
            gc.enable()


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
    """As `forking.start`; raises ScenarioError in the midst of the import of a user's module.

    `imported`: what else each of its processes would import for itself, seconds of work, and has from the
    start then.
    """
    require_guard()
    start(imported)
