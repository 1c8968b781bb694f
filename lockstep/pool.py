"""Processes on this machine that work side by side: joblib's pool, which ends with its user."""

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from errno import ENOSPC
from multiprocessing import resource_tracker
from signal import SIGINT
from typing import Any, TypeVar

from lockstep.executor import signals
from lockstep.executor.parent import end_with_parent
from lockstep.workloads.importing import require_guard

T = TypeVar("T")
_QUIET = "ignore:resource_tracker:UserWarning"
Submit = Callable[..., "Future[Any]"]  # function and arguments, which must be picklable


def cores() -> int:
    """How many processes can compute at once: what the machine, or the container, has for this one."""
    from joblib import cpu_count

    return int(cpu_count())


@contextmanager
def pool(jobs: int) -> Iterator[Submit]:
    """So many processes; they stay for the next time if all goes well.

    Raises ScenarioError in the midst of the import of a user's module.
    """
    from joblib.executor import get_memmapping_executor  # its Parallel, too, can go on with this one

    require_guard()
    with _named():
        _start_trackers()  # here: to start one lets the signals through again
        processes = get_memmapping_executor(
            jobs, timeout=60, initializer=end_with_parent, initargs=(os.getpid(),)
        )

    def submit(function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        # Processes that this starts never hear Ctrl-C: who waits ends them.
        with signals.blocked(SIGINT), _named():
            future: Future[Any] = processes.submit(function, *arguments)
        return future

    try:
        with warnings.catch_warnings():  # loky replaces a worker whose memory has grown, and says so
            warnings.filterwarnings("ignore", message="A worker stopped", category=UserWarning)
            yield submit
    except BaseException:
        with _no_word_of_its_thread():
            processes.shutdown(wait=True, kill_workers=True)
        raise


@contextmanager
def _no_word_of_its_thread() -> Iterator[None]:
    """While the pool is ended, its managing thread may stumble over work that is gone: that is no news."""
    told = threading.excepthook
    threading.excepthook = lambda _: None
    try:
        yield
    finally:
        threading.excepthook = told


@contextmanager
def _named() -> Iterator[None]:
    """Say which disk is full where semaphores are made: the system does not."""
    try:
        yield
    except OSError as error:
        if error.errno == ENOSPC and error.filename is None:
            raise OSError(
                ENOSPC, os.strerror(ENOSPC), "/dev/shm, which one job (--jobs 1) needs not"
            ) from None
        raise


def _start_trackers() -> None:
    """Start Python's and joblib's processes that clean up what is left by those that are interrupted.

    They say what they have found, on the terminal, also where somebody else was removing it: that is no news.
    """
    from joblib.externals.loky.backend import resource_tracker as joblibs

    sys.warnoptions.append(_QUIET)  # which they are started with
    try:
        resource_tracker.ensure_running()
        joblibs.ensure_running()
    finally:
        sys.warnoptions.remove(_QUIET)


@contextmanager
def results(calls: Sequence[Callable[[], T]], jobs: int | None = None) -> Iterator[Iterator[T]]:
    """What each of the calls returns, in their order, as it comes; with one job they are made here.

    `jobs`: processes, one a core if None. Leaving early, by an error or Ctrl-C, ends what is under way.
    """
    jobs = min(jobs or cores(), len(calls))
    if jobs <= 1:
        yield (call() for call in calls)
        return
    with pool(jobs) as submit:
        futures = [submit(call) for call in calls]
        yield (future.result() for future in futures)
