"""What messages cost on this machine's loopback, on a testbed, or between hosts: `measure`.

Probes (probes.py) are run for real. What a message costs its sender and its receiver, and an update its
server, is read off their records (readings.py); what is left of the exchanges is the path's, and is fitted
(path.py).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from executor.launch import execute
from lockstep.calibration import path, readings
from lockstep.calibration.findings import Findings
from lockstep.calibration.probes import BACKLOG, FAN_OUT, ONE, probes
from scenarios import Scenario

Progress = Callable[[float], None]
RATE = 12.5e6  # bytes/s (100 Mbit/s) of a testbed's cables
_ROUNDS = 2  # of all probes: a machine is not the same a little later
_SECONDS = 1.0  # that a probe computes and talks, at least
_ON_TESTBED = (1, 1000, 4000, 16_000, 64_000, 250_000, 1_000_000)  # values of 4 bytes
_ELSEWHERE = (1, 16_000, 64_000, 250_000, 1_000_000, 2_000_000)
_LARGE = 60_000  # values: an update of fewer is over before its bytes count
_PASSES = 3  # over a shard: an update of one push reads it and the parameters, and writes these

Measured = Mapping[str, Sequence[pd.DataFrame]]  # the records of each probe's runs


def measure(testbed: bool = False, hosts: Sequence[str] = (), progress: Progress | None = None) -> Findings:
    """Measure the network of real runs, with one worker and two: on the loopback, on a testbed, or on `hosts`.

    Settings: `network.message_overhead`, `.receive_overhead`, `.latency`, `apply_overhead`,
    `memory_bandwidth`; on a testbed `network.goodput`, `.burst.size`, `.burst.line_rate`, elsewhere
    `network.bandwidth`, and on the loopback `.intra_host.bandwidth`, `.intra_host.latency`.
    """
    network = {"bandwidth": RATE} if testbed else {}
    chosen = probes(_ON_TESTBED if testbed else _ELSEWHERE, network, _SECONDS)
    return found(chosen, run(chosen, testbed, progress), testbed)


def run(chosen: Mapping[str, Scenario], testbed: bool, progress: Progress | None = None) -> Measured:
    """Run all probes in turn, several times; their records."""
    measured: dict[str, list[pd.DataFrame]] = {name: [] for name in chosen}
    for turn in range(_ROUNDS):
        for number, (name, probe) in enumerate(chosen.items()):
            if progress is not None:
                progress((turn + number / len(chosen)) / _ROUNDS)
            measured[name].append(execute(probe, testbed=testbed).records)
    return measured


def found(chosen: Mapping[str, Scenario], measured: Measured, testbed: bool) -> Findings:
    """What the records of the probes say."""
    known, intervals = busy(measured)
    parameters = [path.LATENCY, path.GOODPUT, path.BURST] if testbed else [path.LATENCY, path.BYTE]
    exchanges = {name: [readings.exchanges_s(r) for r in runs] for name, runs in measured.items()}
    fit = path.fit(chosen, exchanges, parameters, known)
    values, intervals = {**known, **fit.values}, {**intervals, **fit.intervals}
    if testbed:
        values["network.burst.line_rate"] = path.LINE_RATE
    else:
        values["network.bandwidth"] = 1 / values.pop(path.BYTE.key)
        low, high = intervals.pop(path.BYTE.key)
        intervals["network.bandwidth"] = (1 / high, 1 / low)
        for key in ("latency", "bandwidth"):
            values[f"network.intra_host.{key}"] = values[f"network.{key}"]
            intervals[f"network.intra_host.{key}"] = intervals[f"network.{key}"]
    rows = [_row(chosen[name], runs, fit.simulated[name]) for name, runs in exchanges.items()]
    return Findings(values, intervals, {"probes": rows})


def busy(measured: Measured) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """What messages and updates take of the processes' own time, by key: medians, and their intervals."""
    updates = {
        size: np.concatenate([readings.updates_s(r) for r in runs])
        for size, runs in ((_alone(runs), runs) for runs in measured.values())
        if size
    }
    overhead = updates[min(updates)]
    per_byte = [
        (seconds - np.median(overhead)) / (_PASSES * size)
        for size, seconds in updates.items()
        if size >= 4 * _LARGE
    ]
    samples = {
        "network.message_overhead": np.concatenate([readings.sending_s(r) for r in measured[FAN_OUT]]),
        "network.receive_overhead": np.concatenate([readings.taking_in_s(r) for r in measured[BACKLOG]]),
        "apply_overhead": overhead,
        "memory_bandwidth": 1 / np.maximum(np.concatenate(per_byte), 1e-12),
    }
    return (
        {key: float(np.median(sample)) for key, sample in samples.items()},
        {key: _interval(sample) for key, sample in samples.items()},
    )


def _alone(runs: Sequence[pd.DataFrame]) -> int:
    """The bytes of a push, if one worker pushed to one server, and each push was a message; else 0."""
    pushes = runs[0][runs[0]["kind"] == "push"]
    answers = runs[0][runs[0]["kind"] == "parameters"]
    if pushes.empty or set(pushes["node"]) != {0} or set(pushes["peer"]) != {1} or len(answers) > len(pushes) + 2:
        return 0
    return int(pushes["nbytes"].iloc[0])


def _interval(sample: np.ndarray) -> tuple[float, float]:
    """95% confidence of a median, by bootstrap."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(sample, size=(1000, len(sample))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(low), float(high)


def _row(probe: Scenario, runs: Sequence[np.ndarray], fitted: float) -> dict[str, Any]:
    """A line of the table of probes; times in s."""
    low, middle, high = np.quantile(np.concatenate(runs), [0.25, 0.5, 0.75])
    return {
        "probe": probe.name,
        "exchanges": sum(map(len, runs)),
        "measured": float(middle),
        "quartiles": [float(low), float(high)],
        "fitted": fitted,
        "error_of_step": (fitted - float(middle)) / (path.PACE_S + float(middle)),
    }
