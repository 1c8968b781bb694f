"""Runs a scenario with real processes on this machine, over its loopback or over a testbed.

The processes are forked from multiprocessing's fork server, and meet in a store that this one serves. A
process that dies ends the run, and so do Ctrl-C and SIGTERM: the others are told to stop, hand over what
they have recorded, and are killed. Should this process be killed, they end by themselves.
"""

import multiprocessing
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from math import inf
from multiprocessing import connection, forkserver, resource_tracker, util
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType

import pandas as pd
import torch.distributed as dist

from analysis.records import Result
from executor import collect, process, signals
from executor.stolen import Stolen
from executor.testbed import Seat, Testbed
from scenarios import Scenario, ScenarioError

Progress = Callable[[float], None]
# What every process would import for itself, seconds of work, is imported once by the one they fork from.
_PRELOADED = ("workloads.classifier", "sklearn.datasets", "torch.utils.flop_counter", "torch._dynamo")
_LOST = 255  # the exit code of a process whose fork server has died
_LEAST_BYTES = 20e6  # that a process takes for itself, with next to nothing to learn; the rest is shared
_LONGEST_FOLDER = 71  # bytes; a socket's name has 103 at most, and "/pymp-…/listener-…" is 32 of these
_SETTLE_S = 0.1  # in which the death that made a process fail is known too


class RunFailed(RuntimeError):
    """A process of the run died. `records`: what the others had measured; `details`: its traceback."""

    def __init__(self, message: str, records: pd.DataFrame | None = None, details: str = "") -> None:
        super().__init__(message)
        self.records = records
        self.details = details


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended the run. `records`: what had been measured."""

    def __init__(self, records: pd.DataFrame | None) -> None:
        super().__init__("interrupted")
        self.records = records


def execute(scenario: Scenario, progress: Progress | None = None, *, testbed: bool = False) -> Result:
    """Measure a run of the scenario; `progress` is told the fraction done now and then.

    With `testbed` the processes talk over the scenario's own network, else over this machine's loopback.
    Raises ScenarioError if memory has no room for its processes, RunFailed if one dies, RunInterrupted at
    Ctrl-C or SIGTERM. However it ends, nothing of the run is left behind.
    """
    interruption = signals.Interruption()
    with signals.handled(interruption, *signals.ENDING), ExitStack() as stack:
        bed = None
        if testbed:
            bed = stack.enter_context(Testbed(scenario.cluster, process.everyone(scenario)))
        stolen = Stolen()
        try:
            result = _execute(scenario, progress, interruption, bed)
        except KeyboardInterrupt:
            _kill_fork_server()
            raise
        warnings = [*(bed.warnings() if bed else ()), *stolen.warnings()]
        return replace(result, warnings=[*result.warnings, *warnings])


def _execute(
    scenario: Scenario, progress: Progress | None, interruption: signals.Interruption, bed: Testbed | None
) -> Result:
    start_fork_server()
    # Meanwhile: what cannot be built is bad input, and data are downloaded once.
    learner = collect.evaluator(scenario)
    _check_room(len(process.everyone(scenario)))
    store = serve_store()
    context = multiprocessing.get_context("forkserver")
    ranks = range(len(process.everyone(scenario)))
    seats = [bed.seat(rank) if bed else Seat() for rank in ranks]
    processes = [
        context.Process(
            target=process.main, args=(scenario, rank, store.port, seats[rank]), name=f"lockstep-{rank}"
        )
        for rank in ranks
    ]
    try:
        with no_main_module():
            for child in processes:
                child.start()
        watch = collect.Watch(scenario, store, learner)
        for _ in _until_all_have_ended(scenario, store, processes):
            interruption.check()
            watch.look()
            if progress is not None and store.check(["progress"]):
                progress(float(store.get("progress")))
        return collect.result(scenario, store, learner)
    except KeyboardInterrupt:
        raise RunInterrupted(_records_so_far(store, processes)) from None
    except RunFailed as failure:
        failure.records = _records_so_far(store, processes)
        raise
    finally:
        for child in processes:
            if child.is_alive():
                child.kill()
            if child.pid is not None:
                child.join()


def _check_room(processes: int) -> None:
    """Raise ScenarioError for more processes than memory has room for: the machine would go down."""
    needed, free = processes * _LEAST_BYTES, _free_bytes()
    if needed > free:
        problem = (
            f"its {processes:,} processes take {needed / 1e9:,.1f} GB of memory or more, and "
            f"{free / 1e9:,.1f} GB is free; take fewer, or more hosts (docs/hosts.md)"
        )
        raise ScenarioError(problem, key="cluster.workers")


def _free_bytes() -> float:
    """Memory that processes can still have; without end where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return inf
    return next((float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), inf)


def start_fork_server() -> None:
    """Start what processes are forked from, if it does not run; it imports their modules by and by.

    Ctrl-C, which a terminal sends to all processes, is not for it.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["executor.orphan", "executor.process", *_PRELOADED]
    )
    _short_folder()
    resource_tracker.ensure_running()  # here: it lets the signals through again
    with no_main_module(), signals.blocked(*signals.ENDING):
        forkserver.ensure_running()


def _short_folder() -> None:
    """See to it that the fork server's socket is in a folder whose name is short enough for a socket's.

    As from Python 3.14 on, it is then one below /tmp: an abstract name would be anyone's to connect to.
    """
    before = tempfile.gettempdir()
    if len(os.fsencode(before)) <= _LONGEST_FOLDER:
        return
    tempfile.tempdir = "/tmp"
    try:
        util.get_temp_dir()  # makes it, once, and sees that it is removed
    except OSError as error:
        problem = f"is too long for the names of sockets, and /tmp cannot be written ({error.strerror})"
        raise ScenarioError(f"{problem}; at most {_LONGEST_FOLDER} bytes", key="TMPDIR") from None
    finally:
        tempfile.tempdir = before


def _kill_fork_server() -> None:
    """End it at once: while it imports, for seconds, it does not see that nobody needs it any more."""
    server = forkserver._forkserver  # type: ignore[attr-defined]
    if server._forkserver_pid is not None:
        with suppress(ProcessLookupError):
            os.kill(server._forkserver_pid, signal.SIGKILL)


def serve_store() -> dist.TCPStore:
    """A store that listens on the loopback only: what is read from it gets unpickled."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    return dist.TCPStore(
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )


def _until_all_have_ended(
    scenario: Scenario, store: dist.TCPStore, processes: list[ForkServerProcess]
) -> Iterator[None]:
    """Give way several times a second; raise RunFailed as soon as a process ends badly."""
    while True:
        exitcodes = [child.exitcode for child in processes]
        if any(exitcodes):
            time.sleep(_SETTLE_S)
            raise _failure(scenario, store, [child.exitcode for child in processes])
        if None not in exitcodes:
            return
        connection.wait([child.sentinel for child in processes if child.exitcode is None], timeout=0.1)
        yield


def _failure(scenario: Scenario, store: dist.TCPStore, exitcodes: list[int | None]) -> RunFailed:
    """What went wrong first: a process that dies lets others fail who were talking to it."""
    found = []
    for rank, exitcode in enumerate(exitcodes):
        if not exitcode:
            continue
        at, cause, details = float("inf"), f"exit code {exitcode}", ""
        if exitcode < 0:
            at, cause = 0.0, f"killed by {signal.Signals(-exitcode).name}"
        elif store.check([f"failure/{rank}"]):
            at, cause, details = pickle.loads(store.get(f"failure/{rank}"))
        elif exitcode == _LOST:
            cause = "lost, because the process that it was forked from has died"
        found.append((at, rank, cause, details))
    _, rank, cause, details = min(found)
    who = process.everyone(scenario)[rank].name
    return RunFailed(f"{who} (rank {rank}) died: {cause}", details=details)


def _records_so_far(store: dist.TCPStore, processes: list[ForkServerProcess]) -> pd.DataFrame | None:
    """Stop the processes that still run, and gather what they and those that ended have recorded."""
    with signals.handled(signal.SIG_IGN, *signals.ENDING):
        for child in processes:
            if child.is_alive():
                child.terminate()
        collect.await_outcomes(
            store, lambda: [rank for rank, child in enumerate(processes) if child.is_alive()]
        )
        return collect.records_so_far(store, len(processes))


@contextmanager
def no_main_module() -> Iterator[None]:
    """Keep multiprocessing from running the caller's script again in every process it starts."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
