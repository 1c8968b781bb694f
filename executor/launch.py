"""Runs a scenario with real processes on this machine."""

import multiprocessing
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from types import ModuleType

import pandas as pd
import torch.distributed as dist

from analysis.records import Result
from executor import collect, process
from scenarios import Scenario

Progress = Callable[[float], None]
# What every process would import for itself, seconds of work, is imported once by the one they fork from.
_PRELOADED = ("workloads.classifier", "sklearn.datasets", "torch.utils.flop_counter", "torch._dynamo")
_GRACE_S = 3.0  # for a process told to stop to hand over its records


class RunFailed(RuntimeError):
    """A process of the run died. `records`: what the others had measured; `details`: its traceback."""

    def __init__(self, message: str, records: pd.DataFrame | None = None, details: str = "") -> None:
        super().__init__(message)
        self.records = records
        self.details = details


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C ended the run. `records`: what had been measured."""

    def __init__(self, records: pd.DataFrame | None) -> None:
        super().__init__("interrupted")
        self.records = records


def execute(scenario: Scenario, progress: Progress | None = None) -> Result:
    """Measure a run of the scenario; `progress` is told the fraction done now and then.

    Raises RunFailed if a process dies. However it ends, no process is left behind.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["executor.process", *_PRELOADED])
    ranks = range(process.world_size(scenario))
    processes = [
        context.Process(target=process.main, args=(scenario, rank, store.port), name=f"lockstep-{rank}")
        for rank in ranks
    ]
    try:
        with _no_main_module():
            for child in processes:
                child.start()
        _watch(scenario, store, processes, progress)
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
    return collect.result(scenario, store)


def _watch(
    scenario: Scenario, store: dist.TCPStore, processes: list[ForkServerProcess], progress: Progress | None
) -> None:
    """Wait for all processes to end; raise RunFailed as soon as one ends badly."""
    watch = collect.Watch(scenario, store)
    alive = dict(enumerate(processes))
    while alive:
        connection.wait([child.sentinel for child in alive.values()], timeout=0.1)
        for rank, child in list(alive.items()):
            if child.exitcode is None:
                continue
            del alive[rank]
            if child.exitcode != 0:
                raise _failure(scenario, store, rank, child.exitcode)
        watch.look()
        if progress is not None and store.check(["progress"]):
            progress(float(store.get("progress")))


def _failure(scenario: Scenario, store: dist.TCPStore, rank: int, exitcode: int) -> RunFailed:
    workers = scenario.cluster.workers
    who = f"worker {rank}" if rank < workers else f"server {rank - workers}"
    cause, details = f"exit code {exitcode}", ""
    if exitcode < 0:
        cause = f"killed by {signal.Signals(-exitcode).name}"
    elif store.check([f"failure/{rank}"]):
        cause, details = pickle.loads(store.get(f"failure/{rank}"))
    return RunFailed(f"{who} (rank {rank}) died: {cause}", details=details)


def _records_so_far(store: dist.TCPStore, processes: list[ForkServerProcess]) -> pd.DataFrame | None:
    """Stop the processes that still run, and gather what they and those that ended have recorded."""
    for child in processes:
        if child.is_alive():
            child.terminate()
    keys = {rank: f"outcome/{rank}" for rank, child in enumerate(processes) if child.is_alive()}
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until:
        waiting = [
            rank for rank, key in keys.items() if processes[rank].is_alive() and not store.check([key])
        ]
        if not waiting:
            break
        time.sleep(0.02)
    found = collect.outcomes(store, range(len(processes)))
    return collect.records(found) if found else None


@contextmanager
def _no_main_module() -> Iterator[None]:
    """Keep multiprocessing from running the caller's script again in every process it starts."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
