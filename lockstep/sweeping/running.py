"""Makes the runs of a sweep: the task that a worker has, and the loop that hands them out."""

import platform
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import lockstep
from lockstep.job.version import version as version_here
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.sweeping.backends import Backend, Workers
from lockstep.sweeping.points import Run

if TYPE_CHECKING:
    from lockstep.job.plan import Plan

Row = dict[str, Any]
Progress = Callable[[float], None]
_LONG_S = 0.5  # after which a call gives back what it has not begun: so much is lost if everything stops
_PATIENCE_S = 10.0  # without a result
_one_at_a_time = Lock()  # a Dask worker may have threads, and torch's number of threads is the process's
_jobs: list["Plan"] = []  # the last one


class Outcome(NamedTuple):
    """A run's row, its status and error included, and the files of its result, if these were wanted."""

    row: Row
    files: Mapping[str, bytes]


class OtherVersion(ScenarioError):
    """A worker would not give the results that this process gives."""


def require(wanted: Mapping[str, str], engine: str) -> None:
    """Raise OtherVersion, which says what differs, unless this process has the same version of everything."""
    here = version_here(engine)
    if here == wanted:
        return
    differ = ", ".join(
        f"{name} ({here[name]}, not {wanted[name]})" for name in wanted if here[name] != wanted[name]
    )
    raise OtherVersion(
        f"a worker on {platform.node()} has another {differ}; install the same", key="--scheduler"
    )


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
                result = simulated(scenario, progress)
            else:
                result = lockstep.run(scenario, progress, testbed=testbed)
            metrics = row(result)
        except Exception as error:
            return Outcome({"status": "failed", "error": described(error), **keys(scenario)}, {})
        return Outcome({"status": "ok", "error": None, **metrics}, _files(result) if files else {})


def simulated(scenario: Scenario, progress: Progress | None = None) -> lockstep.Result:
    """As `lockstep.simulate`; a job that differs from the last one in the seed only is not checked again."""
    from lockstep.simulating import simulate

    plan = next((job for job in _jobs if _only_the_seed_differs(job.scenario, scenario)), None)
    plan = lockstep.check(scenario) if plan is None else plan.seeded(scenario)
    _jobs[:] = [plan.seeded(scenario)]  # without what a run caches in it
    return simulate(plan, progress)


def _only_the_seed_differs(one: Scenario, other: Scenario) -> bool:
    """As of the runs of a point, which have their sections in common, here and in one call to elsewhere."""
    return all(value is getattr(other, name) for name, value in one if name != "seed")


def make_some(some: Sequence[Sequence[Any]]) -> tuple[list[Outcome], float]:
    """`make` with each, until that has taken `_LONG_S`: outcomes of those made, and mean s of one."""
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
    under_way, suspects = dict[Future[Any], list[Run]](), list[Run]()
    with backend() as workers:
        left = _Left(runs, workers)
        while True:
            while not suspects and (some := left.take(len(under_way))):
                try:
                    future = workers.submit(make_some, [(run.scenario, *arguments(run)) for run in some])
                except BrokenExecutor:
                    suspects += some
                else:
                    under_way[future] = some
                    future.add_done_callback(done.put)
            if not under_way:
                return suspects, left.runs
            try:
                future = done.get(timeout=_PATIENCE_S)
            except Empty:
                left.waits = False
                continue
            some, error = under_way.pop(future), future.exception()
            if error is None:
                made, took = future.result()
                left.give_back(some[len(made) :])
                left.took[some[0].point] = took
                yield from ((run, Outcome(*each)) for run, each in zip(some, made, strict=False))
            elif isinstance(error, BrokenExecutor):
                suspects += some
            elif isinstance(error, OtherVersion):
                raise error
            elif isinstance(error, ImportError):
                problem = f"a worker cannot import what it needs ({error}); install lockstep there too"
                raise ScenarioError(problem, key="--scheduler")
            elif len(some) > 1:  # one of them: each by itself
                left.give_back(some, alone=True)
            else:  # the backend's, such as of a worker that has gone
                yield some[0], _failed(some[0], described(error))


class _Left:
    """Runs that nobody has begun: the first of each point, then the others, short ones several at a time."""

    def __init__(self, runs: Sequence[Run], workers: Workers) -> None:
        self._workers = workers
        self._few = 2 * max(1, workers.processes)  # calls under way that keep every process busy
        first = {run.point: run for run in reversed(runs)} if workers.together > 1 else {}
        others = [run for run in runs if first.get(run.point) is not run]
        self._left = deque([*reversed(first.values()), *others])
        self._begun, self._alone = set[int](), set[str]()
        self.took = dict[int, float]()
        """Seconds of a run of a point, by the last that ended."""
        self.waits = self._workers.together > 1
        """Whether it pays to wait until that is known: not where nothing ends for long."""

    @property
    def runs(self) -> list[Run]:
        return [*self._left]

    def take(self, under_way: int) -> list[Run]:
        """The runs of the next call, where so many are under way; empty if none should begin yet."""
        if not self._left:
            return []
        point, key = self._left[0].point, self._left[0].key
        took, waits = self.took.get(point), self.waits and point in self._begun
        ahead = self._workers.ahead
        if under_way >= (min(self._few, ahead) if took is None and waits else ahead):
            return []
        count = 1
        if took is not None and key not in self._alone:
            # fewer and fewer at the end, so that all processes have something to do until then
            most = min(self._workers.together, len(self._left) // (2 * self._few))
            count = max(1, min(most, int(_LONG_S / 2 / max(took, 1e-9))))
        self._begun.add(point)
        some = [self._left.popleft()]
        while self._left and len(some) < count and self._goes_with(some[0]):
            some.append(self._left.popleft())
        return some

    def _goes_with(self, run: Run) -> bool:
        following = self._left[0]
        return following.point == run.point and following.key not in self._alone

    def give_back(self, runs: Sequence[Run], alone: bool = False) -> None:
        """They are left after all; `alone`: each has its own call from now on."""
        self._left.extendleft(reversed(runs))
        if alone:
            self._alone.update(run.key for run in runs)


def _failed(run: Run, problem: str) -> Outcome:
    from lockstep.analysis.table import keys

    return Outcome({"status": "failed", "error": problem, **keys(run.scenario)}, {})
