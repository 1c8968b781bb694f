"""Work in processes of its own, each with one torch thread, and keeping what it frees, as in a real run."""

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from lockstep.executor.fork_server import start_fork_server
from lockstep.executor.forking import no_main_module
from lockstep.executor.heartbeat import repr_line
from lockstep.executor.launch import RunFailed
from lockstep.executor.parent import end_with_parent, print_aside
from lockstep.scenarios import ScenarioError
from lockstep.workloads.heap import keep_freed_memory

T = TypeVar("T")
PRELOADED = (__name__,)
"""Modules for the fork server to import, so that no process of calibration takes a second to."""


def alone(function: Callable[..., T], *arguments: Any) -> T:
    """What a function returns in a process of its own; it and its arguments must be picklable.

    Raises ScenarioError as the function does, RunFailed for anything else, also if the process dies.
    """
    return together(function, [arguments])[0]


def together(function: Callable[..., T], arguments: Sequence[Sequence[Any]]) -> list[T]:
    """As `alone`, in several processes at the same time, one for each sequence of arguments."""
    start_fork_server(PRELOADED)
    context = multiprocessing.get_context("forkserver")
    pipes = [context.Pipe(duplex=False) for _ in arguments]
    children = [
        context.Process(target=_child, args=(theirs, function, given), name="lockstep-calibrate")
        for (_, theirs), given in zip(pipes, arguments, strict=True)
    ]
    try:
        with no_main_module():
            for child in children:
                child.start()
        for _, theirs in pipes:
            theirs.close()
        return [_result(ours) for ours, _ in pipes]
    finally:
        for child in children:
            if child.is_alive():
                child.kill()
            if child.pid is not None:
                child.join()


def barrier(parties: int) -> Any:
    """What so many processes can wait for each other with."""
    return multiprocessing.get_context("forkserver").Barrier(parties)


def _result(ours: Connection) -> Any:
    try:
        value, error, details = ours.recv()
    except EOFError:
        raise RunFailed("a process that measured has died") from None
    if isinstance(error, ScenarioError):
        raise error
    if error is not None:
        raise RunFailed(f"a process that measured failed: {error}", details=details)
    return value


def _child(theirs: Connection, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    end_with_parent()
    print_aside()
    keep_freed_memory()
    torch.set_num_threads(1)
    try:
        theirs.send((function(*arguments), None, ""))
    except ScenarioError as error:
        theirs.send((None, error, ""))
    except Exception as error:
        theirs.send((None, repr_line(error), traceback.format_exc()))
    os._exit(0)


def timed(function: Callable[[], Any], least: int, seconds: float, pace: float = 0.0) -> list[float]:
    """Seconds of successive calls, at least so many and for so long, with a pause before each.

    A process that has just slept is slower than one in a tight loop, and in a real run it has.
    """
    times: list[float] = []
    spent = 0.0
    while len(times) < least or spent < seconds:
        time.sleep(pace)
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
        spent += times[-1] + pace
    return times
