"""How many cores a host has for processes that compute at once: how they slow each other down."""

import time
from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from threading import BrokenBarrierError
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from lockstep.calibration.estimates import Estimates, resampled
from lockstep.calibration.process import barrier, together
from lockstep.executor.devices import visible
from lockstep.machine import cores
from lockstep.scenarios import Problem, ScenarioError, Sizes, Workload
from lockstep.scenarios.workload import Graph, Trained
from lockstep.workloads import build
from lockstep.workloads.guarded import NotFinite

_SECONDS, _ROUNDS = 1.0, 3
_MOST = 8  # different numbers of processes


def measure(workload: Workload, seconds: float = _SECONDS, rounds: int = _ROUNDS) -> Estimates:
    """`cores_per_host`: the c for which m processes run at min(1, c ÷ m) of the speed of one, rounded.

    In the evidence c as it is (`effective`), and `slowdown`: how much longer a gradient takes with m. Nothing
    on a machine with a GPU: gradients then take none of its cores.
    """
    if isinstance(workload, Sizes | Graph):
        raise ScenarioError("sizes only: there is no gradient to measure", key="workload")
    if visible():
        return Estimates({}, {}, {})
    workload = workload.model_copy(update={"learning": None})
    counts = _counts(cores())
    samples: list[list[float]] = [[] for _ in counts]
    for _ in range(rounds):
        for place, m in enumerate(counts):
            ready = barrier(m)
            samples[place] += together(_gradient_s, [(workload, n, seconds, ready) for n in range(m)])
    effective, ((low, high),) = resampled(lambda medians: effective_cores(counts, medians), samples)
    alone_s = median(samples[0])
    slowdown = {str(m): median(times) / alone_s for m, times in zip(counts, samples, strict=True)}
    evidence: dict[str, Any] = {"effective": effective, "interval": [low, high], "slowdown": slowdown}
    return Estimates({"cores_per_host": max(1, round(effective))}, {}, {"cores": evidence})


def effective_cores(counts: Sequence[int], seconds: Sequence[float]) -> float:
    """The c that fits times (s) of m processes each, relative to the first: least squares of logarithms."""
    m, slower = np.asarray(counts, float), np.log(np.asarray(seconds) / seconds[0])

    def off(c: float) -> float:
        return float(((np.log(np.maximum(1.0, m / c)) - slower) ** 2).sum())

    return float(minimize_scalar(off, bounds=(0.5, float(m.max())), method="bounded").x)


def _counts(most: int) -> list[int]:
    """1 to twice the cores; with many cores not all of them."""
    return sorted({round(m) for m in np.geomspace(1, 2 * most, _MOST)} | {most})


def _gradient_s(workload: Trained | Problem, number: int, seconds: float, ready: Any) -> float:
    """Mean seconds of a gradient while others compute theirs too."""
    learner = build(workload, 1, number)
    parameters, step = learner.initial(), 0
    with suppress(NotFinite):  # its time is that of others
        learner.gradient(parameters, 0, step)
    try:
        ready.wait(120)
    except BrokenBarrierError:
        raise RuntimeError("another process did not start") from None
    start = now = time.perf_counter()
    while now < start + seconds:
        with suppress(NotFinite):
            learner.gradient(parameters, 0, step)
        step, now = step + 1, time.perf_counter()
    return (now - start) / step
