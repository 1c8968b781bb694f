"""Makes the runs of a sweep: the task that a worker has, and the loop that hands them out."""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

import lockstep
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.sweeping.backends import Backend, Workers
from lockstep.sweeping.points import Run
from lockstep.sweeping.version import OtherVersion, require

Row = dict[str, Any]
Progress = Callable[[float], None]
_LONG_S = 0.5  # of runs that are made together, of which all are lost if everything stops
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


def make_some(some: Sequence[Sequence[Any]]) -> tuple[list[Outcome], float]:
    """`make` with each of these until it takes long: what came of the first ones, and s that one took."""
    begin, found = monotonic(), list[Outcome]()
    for each in some:
        found.append(make(*each))
        spent = monotonic() - begin
        if spent > _LONG_S:
            break
    return found, spent / len(found)


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
    under_way: dict[Future[Any], list[Run]] = {}
    left, suspects = deque(runs), list[Run]()
    took: float | None = None  # s of a run, as far as is known
    with backend() as workers:
        while True:
            ahead = workers.ahead if took is not None else min(workers.ahead, 2 * max(1, workers.processes))
            while left and len(under_way) < ahead and not suspects:
                some = [left.popleft() for _ in range(_together(workers, took, len(left)))]
                try:
                    future = workers.submit(make_some, [(run.scenario, *arguments(run)) for run in some])
                except BrokenExecutor:
                    suspects += some
                else:
                    under_way[future] = some
                    future.add_done_callback(done.put)
            if not under_way:
                return suspects, list(left)
            future = done.get()
            some, error = under_way.pop(future), future.exception()
            if error is None:
                made, took = future.result()
                left.extendleft(reversed(some[len(made) :]))
                yield from ((run, Outcome(*each)) for run, each in zip(some, made, strict=False))
            elif isinstance(error, BrokenExecutor):
                suspects += some
            elif isinstance(error, OtherVersion):
                raise error
            elif isinstance(error, ImportError):
                problem = f"a worker cannot import what it needs ({error}); install lockstep there too"
                raise ScenarioError(problem, key="--scheduler")
            else:  # the backend's, such as of a worker that has gone
                yield from ((run, _failed(run, described(error))) for run in some)


def _together(workers: Workers, took: float | None, left: int) -> int:
    """How many of the runs that are left are one call: what takes half as long as is long.

    At the end fewer, so that all have something to do until then.
    """
    if took is None:
        return 1
    fair = left // (4 * max(1, workers.processes))
    return max(1, min(workers.together, fair, int(_LONG_S / 2 / max(took, 1e-9))))


def _failed(run: Run, problem: str) -> Outcome:
    from lockstep.analysis.table import keys

    return Outcome({"status": "failed", "error": problem, **keys(run.scenario)}, {})
