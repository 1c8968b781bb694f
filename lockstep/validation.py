"""Predicted against measured: the same scenario in both engines, on the cluster the real run really has."""

from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

import scenarios
from analysis.records import Result
from scenarios import Network, Scenario
from workloads import build, deterministic_threads, sizes

_TURNS = 200  # push-pulls timed to measure the loopback, of each size
_LARGE = 100_000  # parameters of the large ones, at least: smaller ones take no measurable time


@dataclass(frozen=True)
class Loopback:
    """What messages between processes of this machine cost."""

    latency: float  # s, one way
    bandwidth: float  # bytes/s

    def __str__(self) -> str:
        return f"{self.latency * 1e6:.0f} us a message, {self.bandwidth / 1e9:.2f} GB/s"


def measure_loopback(parameters: int) -> Loopback:
    """Time push-pulls of one worker with one server, empty ones and ones of the workload's size.

    A push-pull is two messages, and carries the server's own work too: what a run will really see.
    """
    parameters = max(parameters, _LARGE)
    small, large = _push_pull_s(1), _push_pull_s(parameters)
    return Loopback(small / 2, 2 * 4 * parameters / max(large - small, 1e-9))


def _push_pull_s(parameters: int) -> float:
    from executor.launch import execute

    scenario = Scenario.model_validate(
        {
            "name": "loopback",
            "cluster": {"workers": 1, "compute": {"time": {"distribution": "constant", "value": "0 s"}}},
            "workload": {"parameters": parameters},
            "strategy": "asynchronous",
            "stop": {"steps": _TURNS, "time": "1 s"},
        }
    )
    records = execute(scenario).records
    starts = records.loc[records["event"] == "gradient", "start"].sort_values()
    return float(median(starts.diff().dropna()))


def parameters(scenario: Scenario) -> int:
    """How many parameters the scenario's workload has."""
    return sizes(scenario.workload).parameters


def on_loopback(scenario: Scenario, loopback: Loopback) -> Scenario:
    """The scenario on the cluster of a real run here: the loopback, and this machine's compute times."""
    network = Network.model_construct(
        bandwidth=loopback.bandwidth, latency=loopback.latency, message_overhead=0.0, goodput=1.0
    )
    changes: dict[str, Any] = {"network": network}
    if scenario.cluster.compute == "measured":
        changes["compute"] = _measured_compute(scenario)
    cluster = scenario.cluster.model_copy(update=changes)
    return scenario.model_copy(update={"cluster": cluster})


def _measured_compute(scenario: Scenario) -> scenarios.Compute:
    """The time of this machine's gradients, alone on it: their median."""
    from time import monotonic

    times = []
    with deterministic_threads():
        learner = build(scenario.workload, scenario.cluster.workers, scenario.seed)
        parameters = learner.initial()
        for step in range(12):
            start = monotonic()
            learner.gradient(parameters, 0, step)
            times.append(monotonic() - start)
    value = f"{median(times[2:])!r} s"
    return scenarios.Compute.model_validate({"time": {"distribution": "constant", "value": value}})


def compare(predicted: Result, measured: Result) -> dict[str, Any]:
    """What `validate --json` prints: both sets of metrics, and the prediction's errors.

    Errors are relative to the measurement and signed (positive: predicted too high); `staleness_ks` is the
    Kolmogorov–Smirnov distance of the two staleness distributions.
    """
    a, b = predicted.metrics, measured.metrics
    keys = ("throughput", "duration_s", "updates_per_s", "speedup", "loss", "time_to_target_s")
    error = {key: relative_error(a[key], b[key]) for key in keys}
    error["staleness_mean"] = relative_error(a["staleness"]["mean"], b["staleness"]["mean"])
    error["staleness_ks"] = ks_distance(a["staleness"]["histogram"], b["staleness"]["histogram"])
    return {"predicted": a, "measured": b, "error": error}


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """(predicted − measured) / measured; 0 when both are 0, None where it has no meaning."""
    if predicted is None or measured is None:
        return None
    if measured == 0:
        return 0.0 if predicted == 0 else None
    return (predicted - measured) / measured


def ks_distance(a: dict[str, int], b: dict[str, int]) -> float | None:
    """The largest difference between two cumulative distributions, given as histograms."""
    if not a or not b:
        return None
    table = pd.DataFrame({"a": a, "b": b}).fillna(0)
    table = table.set_axis(table.index.astype(int)).sort_index()
    cumulative = (table / table.sum()).cumsum()
    return float((cumulative["a"] - cumulative["b"]).abs().max())
