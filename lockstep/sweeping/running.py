"""Makes the runs of a sweep: the task that a worker has, and the loop that hands them out."""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NamedTuple

import lockstep
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.sweeping.backends import Backend
from lockstep.sweeping.points import Run
from lockstep.sweeping.version import OtherVersion, require

Row = dict[str, Any]
Progress = Callable[[float], None]
_one_at_a_time = Lock()  # a Dask worker may have threads, and torch's number of threads is the process's


class Outcome(NamedTuple):
    """A run's row, its status and error included, and the files of its result, if these were wanted."""

    row: Row
    files: Mapping[str, bytes]


def make(
    scenario: Scenario,
    engine: str,
    testbed: bool,
    version: Mapping[str, str],
    files: bool,
    progress: Progress | None = None,
) -> Outcome:
    """Make one run, anywhere; what goes wrong with it is its outcome.

    Raises OtherVersion where this process has not the same `version` of everything.
    """
    require(version, engine)
    from lockstep.analysis.table import keys, row

    with _one_at_a_time:
        try:
            if engine == "simulator":
                result = lockstep.simulate(scenario, progress)
            else:
                result = lockstep.run(scenario, progress, testbed=testbed)
            metrics = row(result)
        except Exception as error:
            return Outcome({"status": "failed", "error": described(error), **keys(scenario)}, {})
        return Outcome({"status": "ok", "error": None, **metrics}, _files(result) if files else {})


def described(error: BaseException) -> str:
    """An error in one line."""
    said = str(error).strip().splitlines()
    expected = isinstance(error, RuntimeError | ScenarioError) and said
    return said[0] if expected else ": ".join([type(error).__name__, *said[:1]])


def _files(result: lockstep.Result) -> dict[str, bytes]:
    """What `Result.save` writes, by name: a worker need not share a file system with the keeper."""
    with TemporaryDirectory() as folder:
        result.save(folder)
        return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}


def outcomes(
    runs: Sequence[Run], backend: Callable[[], Backend], arguments: Callable[[Run], Sequence[Any]]
) -> Generator[tuple[Run, Outcome], None, None]:
    """The outcome of each run as it comes. Raises ScenarioError where workers are not fit for any."""
    while runs:
        suspects, runs = yield from _until_broken(runs, backend, arguments)
        for run in suspects:  # each by itself, to know which of them it was
            if (yield from _until_broken([run], backend, arguments))[0]:
                yield run, _failed(run, "the process that ran it was killed; for want of memory, perhaps")


def _until_broken(
    runs: Sequence[Run], backend: Callable[[], Backend], arguments: Callable[[Run], Sequence[Any]]
) -> Generator[tuple[Run, Outcome], None, tuple[list[Run], Sequence[Run]]]:
    """The outcomes up to where a process dies; returns the runs that were under way then, and the others."""
    done: SimpleQueue[Future[Any]] = SimpleQueue()
    under_way: dict[Future[Any], Run] = {}
    left, suspects = deque(runs), list[Run]()
    with backend() as workers:
        while True:
            while left and len(under_way) < workers.ahead and not suspects:
                run = left.popleft()
                try:
                    future = workers.submit(make, run.scenario, *arguments(run))
                except BrokenExecutor:
                    suspects.append(run)
                else:
                    under_way[future] = run
                    future.add_done_callback(done.put)
            if not under_way:
                return suspects, list(left)
            future = done.get()
            run, error = under_way.pop(future), future.exception()
            if error is None:
                yield run, Outcome(*future.result())
            elif isinstance(error, BrokenExecutor):
                suspects.append(run)
            elif isinstance(error, OtherVersion):
                raise error
            elif isinstance(error, ImportError):
                problem = f"a worker cannot import what it needs ({error}); install lockstep there too"
                raise ScenarioError(problem, key="--scheduler")
            else:  # the backend's, such as of a worker that has gone
                yield run, _failed(run, described(error))


def _failed(run: Run, problem: str) -> Outcome:
    from lockstep.analysis.table import keys

    return Outcome({"status": "failed", "error": problem, **keys(run.scenario)}, {})
