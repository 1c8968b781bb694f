"""Where runs are made. Each backend is a context that gives `Workers`."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from lockstep.pool import Submit, cores, pool
from lockstep.scenarios import ScenarioError
from lockstep.sweeping.points import Plan


class Workers(NamedTuple):
    """What makes runs: `submit(function, *arguments)` gives a Future."""

    submit: Submit
    processes: int
    """That work side by side, as far as is known."""
    ahead: int
    """Calls under way, or waiting for a process, at most."""
    together: int = 1
    """Short runs of a point in one call, at most: to send a call and to hear of it takes milliseconds."""


Backend = AbstractContextManager[Workers]
BACKENDS = ("joblib", "dask", "ray")
_MANY = 256  # enough for the workers of a cluster not to wait for the next one
_TOGETHER = 16


def choose(name: str, jobs: int | None, scheduler: str | None, plan: Plan) -> Callable[[], Backend]:
    """What opens the backend of that name. Raises ScenarioError for what does not fit together."""
    if name not in BACKENDS:
        raise ScenarioError(f"must be {', '.join(BACKENDS)}, not {name!r}", key="--backend")
    if plan.engine == "executor":
        for option, given in (("--backend", name != "joblib"), ("--jobs", (jobs or 1) > 1)):
            if given:
                raise ScenarioError("is for simulations; real runs are made one at a time, here", key=option)
        jobs = 1
    if name == "joblib":
        if scheduler is not None:
            raise ScenarioError("is for dask and ray; say --backend too", key="--scheduler")
        jobs = min(jobs or cores(), len(plan.runs))
        return partial(_cores, jobs) if jobs > 1 else here
    if jobs is not None:
        raise ScenarioError(f"is for joblib; {name} has as many as its cluster", key="--jobs")
    try:
        import_module({"dask": "distributed", "ray": "ray"}[name])
    except ImportError:
        problem = f"{name} is not installed; pip install 'lockstep[{name}]'"
        raise ScenarioError(problem, key="--backend") from None
    if name == "dask" and scheduler is None:
        raise ScenarioError("say where the cluster is, such as tcp://10.0.0.1:8786", key="--scheduler")
    return partial({"dask": _dask, "ray": _ray}[name], scheduler)


@contextmanager
def here() -> Iterator[Workers]:
    """This very process: a run is made when it is submitted."""

    def submit(function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future

    yield Workers(submit, 1, 1)


@contextmanager
def _cores(jobs: int) -> Iterator[Workers]:
    """Processes on this machine."""
    with pool(jobs) as submit:
        yield Workers(submit, jobs, 2 * jobs, _TOGETHER)


@contextmanager
def _dask(scheduler: str | None) -> Iterator[Workers]:
    """The workers of a Dask cluster."""
    import distributed

    try:
        client_of: Any = distributed.Client  # it has no types
        client = client_of(scheduler, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ScenarioError(
            f"no Dask cluster answers at {scheduler!r}: {reason}", key="--scheduler"
        ) from None
    with client:
        executor = client.get_executor(pure=False)
        try:
            yield Workers(executor.submit, len(client.nthreads()), _MANY, _TOGETHER)
        finally:
            executor.shutdown(wait=False)  # what has not begun is cancelled


@contextmanager
def _ray(scheduler: str | None) -> Iterator[Workers]:
    """The workers of a Ray cluster, or without an address of one that is started on this machine."""
    import ray

    try:
        ray.init(address=scheduler, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ScenarioError(f"no Ray cluster at {scheduler!r}: {reason}", key="--scheduler") from None
    try:
        processes = int(ray.cluster_resources().get("CPU", 1))

        def submit(function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
            future: Future[Any] = ray.remote(function).remote(*arguments).future()
            return future

        yield Workers(submit, processes, _MANY, _TOGETHER)
    finally:
        ray.shutdown()
