"""Fits what a path is like, so that simulated exchanges of the probes last as long as the measured ones.

The model is the simulator itself. A residual is an error of the time of a whole step, computing included:
what a wrong setting would do to a predicted throughput. Large ones count less (soft L1).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from lockstep.calibration.probes import PACE_S
from lockstep.calibration.readings import exchanges_s
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario
from lockstep.scenarios.network import Burst, Jitter, Processing
from lockstep.scenarios.schema import Stop
from lockstep.simulator.engine import simulate

_USUAL = 0.005  # of a step: an error up to this counts in full
_RESAMPLES = 500
_DIFFERENCE = 0.02  # by which settings are changed to see what that does
_SEED = 0


@dataclass(frozen=True)
class Parameter:
    """A setting to be fitted: where to begin, and the unit in which the fit counts it."""

    key: str
    start: float
    unit: float
    least: float = 0.0
    most: float = np.inf


LATENCY = Parameter("network.latency", 2e-4, 1e-4)
BURST = "network.burst."
JITTER = "network.jitter.deviation"
BYTE = Parameter("s per byte", 1e-9, 1e-10, least=1e-13)  # the reciprocal of network.bandwidth
SHAPED = (LATENCY,)  # a path of known bandwidth, with known token buckets
PLAIN = LATENCY, BYTE  # one of unknown bandwidth
PROCESSING = "network.processing."
LEAST = 3  # exchanges that a probe must have seen to count
_FEW = 3  # steps: of crowded probes, one is like the other


@dataclass(frozen=True)
class Fit:
    """Values and 95% intervals by a parameter's key; each probe's simulated exchange (s)."""

    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    simulated: Mapping[str, float]


def fit(
    probes: Mapping[str, Scenario],
    measured: Mapping[str, Sequence[np.ndarray]],
    parameters: Sequence[Parameter],
    known: Mapping[str, float],
) -> Fit:
    """Fit to the exchanges (s) that were measured, by probe, in each of its runs.

    `known`: other settings, by key. Intervals: bootstrap over probes, over their runs and over the exchanges
    of these; each sample is refitted by one Gauss-Newton step.
    """
    names = list(measured)
    middles = np.array([_middle(measured[name]) for name in names])
    steps = PACE_S + middles
    as_many = [_of_steps(probes[name], max(map(len, measured[name]))) for name in names]
    units = np.array([p.unit for p in parameters])

    def settings(x: np.ndarray) -> dict[str, float]:
        return dict(known) | {p.key: float(v) for p, v in zip(parameters, x * units, strict=True)}

    def simulated(x: np.ndarray) -> np.ndarray:
        found = settings(x)
        return np.array([float(np.median(exchanges(probe, found))) for probe in as_many])

    solution = least_squares(
        lambda x: (simulated(x) - middles) / steps,
        [p.start / p.unit for p in parameters],
        bounds=([p.least / p.unit for p in parameters], [p.most / p.unit for p in parameters]),
        loss="soft_l1",
        f_scale=_USUAL,
        diff_step=_DIFFERENCE,
        xtol=1e-5,
    )
    fitted = simulated(solution.x)
    slopes = [
        (simulated(solution.x + d) - fitted) / d.sum() for d in np.diag(_DIFFERENCE * solution.x + 0.01)
    ]
    near = solution.x - _steps(np.array(slopes).T, fitted, measured, steps)
    intervals = {}
    for p, sample in zip(parameters, (near * units).T, strict=True):
        low, high = np.clip(np.quantile(sample, [0.025, 0.975]), p.least, p.most)
        intervals[p.key] = (float(low), float(high))
    values = settings(solution.x)
    return Fit(
        {p.key: values[p.key] for p in parameters},
        intervals,
        dict(zip(names, map(float, fitted), strict=True)),
    )


def simulated(probes: Mapping[str, Scenario], settings: Mapping[str, float]) -> dict[str, float]:
    """The exchange (s) of each probe, of whose steps one is like the other."""
    short = {name: probe.model_copy(update={"stop": Stop(steps=_FEW)}) for name, probe in probes.items()}
    return {name: float(np.median(exchanges(probe, settings))) for name, probe in short.items()}


def update_s(probe: Scenario, settings: Mapping[str, float]) -> float:
    """What an update by a probe's worker, or an addition of a ring, takes on average, s, by the simulator."""
    records = simulate(Plan.of(on_cluster(probe, settings))).records
    return float((records["end"] - records["start"])[records["event"] == "work"].mean())


def _of_steps(probe: Scenario, exchanges: int) -> Scenario:
    """The probe until its workers together, or more, have seen so many exchanges, however long these take.

    Its own end is a time, in which a network that the fit tries on its way may finish none.
    """
    each = math.ceil(exchanges / probe.cluster.workers)
    return probe.model_copy(update={"stop": Stop(steps=each + 1)})


def exchanges(probe: Scenario, settings: Mapping[str, float]) -> np.ndarray:
    """A probe's exchanges in the simulator (s), on a cluster with these settings."""
    return exchanges_s(simulate(Plan.of(on_cluster(probe, settings))).records)


def on_cluster(scenario: Scenario, settings: Mapping[str, float]) -> Scenario:
    """The scenario with these settings of its cluster, by dotted key, in base units."""
    here: dict[str, Any] = {}
    network: dict[str, Any] = {}
    burst: dict[str, Any] = {}
    processing: dict[str, Any] = {}
    for key, value in settings.items():
        if key == BYTE.key:
            network["bandwidth"] = 1 / value
        elif key.startswith(BURST):
            burst[key.removeprefix(BURST)] = value
        elif key == JITTER:
            network["jitter"] = Jitter.model_construct(deviation=value)
        elif key.startswith(PROCESSING):
            processing[key.removeprefix(PROCESSING)] = value
        elif key.startswith("network."):
            network[key.removeprefix("network.")] = value
        else:
            here[key] = value
    if burst:
        network["burst"] = Burst.model_construct(**burst)
    if processing:
        network["processing"] = Processing.model_construct(**processing)
    cluster = scenario.cluster
    here["network"] = cluster.network.model_copy(update=network)
    return scenario.model_copy(update={"cluster": cluster.model_copy(update=here)})


def _middle(runs: Sequence[np.ndarray]) -> float:
    return float(np.median(np.concatenate(runs)))


def _steps(
    slopes: np.ndarray, fitted: np.ndarray, measured: Mapping[str, Sequence[np.ndarray]], steps: np.ndarray
) -> np.ndarray:
    """How far samples of the measurements lead away from the fit, shape (samples, parameters).

    `slopes` of the fitted exchanges, shape (probes, parameters); `steps`: what a probe's errors relate to.
    """
    rng, runs, found = np.random.default_rng(_SEED), list(measured.values()), []
    for _ in range(_RESAMPLES):
        rows = rng.integers(len(runs), size=len(runs))
        middles = np.array([_middle(_sample(runs[row], rng)) for row in rows])
        residuals = (fitted[rows] - middles) / steps[rows]
        weights = (1 + (residuals / _USUAL) ** 2) ** -0.25  # the roots of soft L1's
        jacobian = slopes[rows] / steps[rows][:, None]
        step, *_ = np.linalg.lstsq(jacobian * weights[:, None], residuals * weights, rcond=None)
        found.append(step)
    return np.array(found)


def _sample(runs: Sequence[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Some of a probe's runs, and of the exchanges of each, with replacement."""
    chosen = rng.integers(len(runs), size=len(runs))
    return [rng.choice(runs[run], size=len(runs[run])) for run in chosen]


def row(name: str, runs: Sequence[np.ndarray], fitted: float) -> dict[str, Any]:
    """A line of the table of probes; times in s, the error relative to a whole step."""
    low, middle, high = map(float, np.quantile(np.concatenate(runs), [0.25, 0.5, 0.75]))
    return {
        "probe": name,
        "exchanges": sum(map(len, runs)),
        "measured": middle,
        "quartiles": [low, high],
        "fitted": fitted,
        "error": (fitted - middle) / (PACE_S + middle),
    }
