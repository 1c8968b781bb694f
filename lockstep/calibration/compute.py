"""How long a gradient takes: real ones, one after the other, in a process of their own."""

from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch

from lockstep.calibration.fit import Fit, fits, independent_draws
from lockstep.calibration.process import alone, timed
from lockstep.executor.devices import Wanted, named, own, settle
from lockstep.scenarios import Problem, ScenarioError, Sizes, Workload
from lockstep.scenarios.profile import UNLESS_SAID, timed_with
from lockstep.scenarios.workload import Graph, Trained
from lockstep.workloads import Reader, build
from lockstep.workloads.guarded import NotFinite

_WARM = 10  # gradients not counted: memory, kernels and caches find their place
_LEAST, _LEAST_S = 200, 3.0  # gradients counted, and seconds, whatever is more;
_SLOW, _SLOW_S = 30, 20.0  # of slow ones fewer: at least so many, or this long
_FEW = 12  # of which the first two do not count


def key(workload: Workload) -> dict[str, Any]:
    """What a gradient's time depends on: the keys by which a profile finds it."""
    shape = ("layers", "hidden", "heads", "sequence")
    task = ("task", "options", "precision", "loaders", "compile")
    kept = ("dataset", "model", *shape, *task, "problem", "dimension", "density", "batch_size")
    values = timed_with(workload.model_dump())
    return {name: values[name] for name in kept if name in values and values[name] != UNLESS_SAID.get(name)}


class Times(NamedTuple):
    """In seconds."""

    gradients: list[float]
    device: str
    """That they were computed on."""
    reading: list[float]
    """Of mini-batches, where that is no part of a gradient."""
    note: str = ""
    """What is wrong with the gradients that were timed."""


def sample(
    workload: Workload, least: int = _LEAST, least_s: float = _LEAST_S, wanted: Wanted = "auto"
) -> Times:
    """Time gradients on a device, and reading their mini-batches if the workload has processes for that.

    Raises ScenarioError for a workload of which only sizes are known.
    """
    if isinstance(workload, Sizes | Graph):
        problem = "sizes only: there is no gradient to measure; give a workload with a dataset or a problem"
        raise ScenarioError(problem, key="workload")
    return alone(_sample, workload.model_copy(update={"learning": None}), least, least_s, wanted)


def _sample(workload: Trained | Problem, least: int, least_s: float, wanted: Wanted) -> Times:
    device = own(wanted)
    learner = build(workload, 1, 0, device)
    parameters = learner.initial().to(device)
    steps = iter(range(1, 1 << 62))
    reader = learner if workload.readers and isinstance(learner, Reader) else None
    if reader is not None:
        reader.read_ahead(0, 0)

    notes: list[str] = []

    def gradient() -> None:
        try:
            learner.gradient(parameters, 0, 0 if reader else next(steps))  # the first batch stays at hand
        except NotFinite as error:  # its time is that of others
            notes.append(error.problem)
        settle(torch.device(device))

    once = min(timed(gradient, 2, 0.0))
    timed(gradient, min(_WARM, least), 0.0)
    few = max(1, min(least, max(_SLOW, round(_SLOW_S / once))))
    times = timed(gradient, few, least_s)
    reading: list[float] = []
    if reader is not None:
        reading = timed(lambda: reader.batch(0, next(steps)), min(few, _SLOW), least_s / 3)
    return Times(times, named(device), reading, "".join(notes[:1]))


class Gradient(NamedTuple):
    """Medians of a few."""

    seconds: float
    backward: float
    """The share of it after the last layer's forward pass."""
    device: str
    """That they were computed on."""
    reading: float | None = None
    """Of a mini-batch, where processes of their own read."""


def a_few(workload: Workload, wanted: Wanted = "auto") -> Gradient:
    """Time so few gradients that a prediction can wait for them. Raises ScenarioError as `sample` does."""
    return alone(_a_few, workload.model_copy(update={"learning": None}), wanted)


def _a_few(workload: Trained | Problem, wanted: Wanted) -> Gradient:
    device = own(wanted)
    learner = build(workload, 1, 0, device)
    parameters, times, forward = learner.initial().to(device), list[float](), list[float]()

    def now() -> float:
        settle(torch.device(device))
        return perf_counter()

    reader = learner if workload.readers and isinstance(learner, Reader) else None
    if reader is not None:
        reader.read_ahead(0, 0)
    for step in range(_FEW):
        start, ready = now(), list[float]()
        learner.gradient(
            parameters, 0, 0 if reader else step, lambda *_, ready=ready: ready.append(now())
        )  # where others read the first batch stays at hand
        times.append(now() - start)
        forward.append(ready[0] - start if ready else times[-1])  # to the last layer's gradient
    whole, reading = median(times[2:]), None
    if reader is not None:
        steps = iter(range(1, _FEW))
        reading = median(timed(lambda: reader.batch(0, next(steps)), _FEW - 2, 0.0))
    backward = min(0.99, max(0.0, 1 - median(forward[2:]) / whole))
    return Gradient(whole, backward, named(device), reading)


def compute_of(fit: Fit, backward: float | None, reading: Fit | None = None) -> dict[str, Any]:
    """Fits as a scenario's `cluster.compute`, with times in seconds."""
    found = {} if backward is None else {"backward": round(backward, 3)}
    apart = {} if reading is None else {"loading": _drawn(reading)}
    return {"time": _drawn(fit), **found, **apart}


def _drawn(fit: Fit) -> dict[str, Any]:
    return {"distribution": fit.distribution, **fit.parameters}


def judged(times: list[float]) -> tuple[list[Fit], dict[str, Any]]:
    """The distributions that fit, the best first, and the evidence: plain numbers, seconds."""
    found = fits(times)
    x = np.array(times)
    evidence = {
        "gradients": len(times),
        "mean": float(x.mean()),
        "cv": float(x.std() / x.mean()),
        "median": float(np.median(x)),
        "least": float(x.min()),
        "most": float(x.max()),
        "independent": round(independent_draws(x)) if np.ptp(x) else len(x),
        "fits": [
            {
                "distribution": fit.distribution,
                **fit.parameters,
                "AIC above the best": fit.aic - found[0].aic if len(found) > 1 else 0.0,
                "KS": fit.ks,
                **({} if fit.p is None else {"p": fit.p}),
            }
            for fit in found
        ],
    }
    return found, evidence
