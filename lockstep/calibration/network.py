"""What messages cost on this machine's loopback, on a testbed, or between hosts: `measure`.

Probes (probes.py) are run for real. What a message costs its sender and its receiver, and an update its
server, is read off their records (readings.py); what is left of the exchanges is the path's, and is fitted
(path.py).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Literal

import numpy as np
import pandas as pd

from lockstep.analysis.result import Result
from lockstep.attempts import undisturbed
from lockstep.calibration import path, readings
from lockstep.calibration.crowd import CoreSeconds, Measured, Probes, with_processing
from lockstep.calibration.estimates import Estimates, resampled
from lockstep.calibration.hosts import check as check_hosts
from lockstep.calibration.hosts import run_on
from lockstep.calibration.probes import BACKLOG, FAN_OUT, ONE, crowded, probes
from lockstep.executor.launch import RunFailed, execute
from lockstep.executor.shaping import DATA, FRAME, LINE_RATE, QUEUE, bucket, trains
from lockstep.executor.testbed import require
from lockstep.job.plan import Plan
from lockstep.loopback import no_slope
from lockstep.machine import cores
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.strategies.corrections import UpdateRule
from lockstep.strategies.optimizers import optimizer
from lockstep.strategies.updates import passes_of
from lockstep.workloads import sizes

Progress = Callable[[float], None]
RATE = 12.5e6  # bytes/s (100 Mbit/s) of a testbed's cables, if nothing else is said
SECONDS = 1.0  # that a probe computes and talks, at least
_TURNS = 2  # of all probes: a machine is not the same a little later
_ON_TESTBED = (1, 1000, 4000, 16_000, 64_000, 250_000, 1_000_000)  # values of 4 bytes
_ON_LOOPBACK = (1, 16_000, 64_000, 250_000, 1_000_000, 2_000_000)
_BETWEEN_HOSTS = (1, 16_000, 250_000, 2_000_000)
_LARGE = 60_000  # values: an update of fewer is over before its bytes count
_PASSES = passes_of(UpdateRule(optimizer(optimizer="sgd")), 1, False)  # over a shard, of an update


def measure(
    testbed: bool = False,
    hosts: Sequence[str] = (),
    progress: Progress | None = None,
    rate: float = RATE,
    disturbed: list[str] | None = None,
) -> Estimates:
    """Measure the network of real runs, of one worker or two: on the loopback, a testbed, or two `hosts`.

    `rate`: of a testbed's cables, bytes/s. `disturbed`: takes the names of probes of which each run was.

    Settings: `network.message_overhead`, `.receive_overhead`, `.latency`, `apply_overhead`,
    `memory_bandwidth`, and of a machine with few cores `network.processing`; on a testbed `network.jitter`,
    and what is known of its cables: `.goodput`, `.queue` and `.burst`; elsewhere `network.bandwidth`, on
    the loopback `.intra_host.bandwidth` and `.intra_host.latency` too.
    Two and a half minutes. Raises ScenarioError for what cannot be measured here, RunFailed if a process
    dies.
    """
    check(testbed, hosts)
    chosen = all_probes(testbed, bool(hosts), rate)
    crowd = {} if hosts else crowded(cores(), rate if testbed else None, SECONDS)
    measured, core_s = run({**chosen, **crowd}, testbed, hosts, progress, disturbed, crowd)
    steady = {name: measured[name] for name in chosen}
    estimates = found(chosen, steady, "testbed" if testbed else "path" if hosts else "loopback")
    return with_processing(estimates, crowd, measured, core_s) if crowd else estimates


def check(testbed: bool, hosts: Sequence[str]) -> None:
    """Raise ScenarioError for what cannot be measured here."""
    if testbed and hosts:
        raise ScenarioError("a testbed is on this machine alone; give one of the two", key="--hosts")
    if hosts:
        check_hosts(hosts)
    if testbed:
        require()


def all_probes(testbed: bool, between_hosts: bool, rate: float = RATE, seconds: float = SECONDS) -> Probes:
    """The probes for a testbed of cables of that rate (bytes/s), for two hosts, or for the loopback."""
    if between_hosts:
        chosen = probes(_BETWEEN_HOSTS, None, 2 * seconds)
        return {
            name: probe for name, probe in chosen.items() if len(Plan.of(probe).roles) == 2 or name == FAN_OUT
        }
    return probes(_ON_TESTBED, rate, seconds) if testbed else probes(_ON_LOOPBACK, None, seconds)


def run(
    chosen: Probes,
    testbed: bool,
    hosts: Sequence[str] = (),
    progress: Progress | None = None,
    stayed: list[str] | None = None,
    crowd: Collection[str] = (),
) -> tuple[Measured, CoreSeconds]:
    """Run all probes in turn, and again; their records, without those of runs that stayed disturbed.

    Of a probe that has no others these are taken, and `stayed` takes its name. Where there is a `crowd` on
    the cores, gradients may overrun.
    """
    measured: dict[str, list[pd.DataFrame]] = {name: [] for name in chosen}
    disturbed: dict[str, list[pd.DataFrame]] = {name: [] for name in chosen}
    core_s: dict[str, list[float]] = {name: [] for name in chosen}
    core_s_disturbed: dict[str, list[float]] = {name: [] for name in chosen}
    turns = 1 if hosts else _TURNS  # to start a run by ssh takes its time
    for turn in range(turns):
        for number, (name, probe) in enumerate(chosen.items()):
            if progress is not None:
                progress((turn + number / len(chosen)) / turns)
            once = partial(run_on, hosts) if hosts else partial(_run_here, testbed)
            result = undisturbed(partial(once, probe), overruns_too=name not in crowd)
            noisy = bool(result.disturbances if name in crowd else result.disturbed)
            (disturbed if noisy else measured)[name].append(result.records)
            (core_s_disturbed if noisy else core_s)[name].append(result.core_s or 0.0)
    if stayed is not None:
        stayed += [f"network, probe {name}" for name, runs in measured.items() if not runs]
    return (
        {name: runs or disturbed[name] for name, runs in measured.items()},
        {name: runs or core_s_disturbed[name] for name, runs in core_s.items()},
    )


def _run_here(testbed: bool, probe: Scenario) -> Result:
    return execute(Plan.of(probe), testbed=testbed)


def found(chosen: Probes, measured: Measured, where: Literal["testbed", "loopback", "path"]) -> Estimates:
    """What the records of the probes say. Raises RunFailed for too little, or too noisy, ones."""
    exchanges = {name: [readings.exchanges_s(r) for r in runs] for name, runs in measured.items()}
    exchanges = {name: runs for name, runs in exchanges.items() if sum(map(len, runs)) >= path.LEAST}
    samples = _busy(chosen, measured) if ONE in exchanges else {"none": np.empty(0)}
    if where == "testbed" and ONE in exchanges:
        samples[path.JITTER] = np.concatenate([readings.jitter_s(records) for records in measured[ONE]])
    for key in ("network.message_overhead", "network.receive_overhead"):
        if not len(samples.get(key, (0,))):
            samples[key] = np.zeros(1)  # no message had to wait for another's: nothing is seen of it
    if not all(map(len, samples.values())):
        raise RunFailed(
            "the probes had no time for their messages: the network, or this machine, is too slow"
        )
    on_testbed = where == "testbed"
    known: dict[str, float] = {}
    if on_testbed:
        rate = next(iter(chosen.values())).cluster.network.bandwidth
        assert rate is not None
        known = {"network.queue": QUEUE, "network.goodput": DATA / FRAME}
        buckets = {"size": bucket(rate), "line_rate": LINE_RATE, **trains(rate)}
        known |= {f"{path.BURST}{name}": value for name, value in buckets.items()}
    intervals: dict[str, tuple[float, float]] = {}
    for key, sample in samples.items():
        known[key], (intervals[key],) = resampled(itemgetter(0), [sample.tolist()])
    if not on_testbed:
        _check_slope(chosen, exchanges)
    fit = path.fit(chosen, exchanges, path.SHAPED if on_testbed else path.PLAIN, known)
    values = {**known, **fit.values}
    intervals |= fit.intervals
    if not on_testbed:
        values["network.bandwidth"] = 1 / values.pop(path.BYTE.key)
        low, high = intervals.pop(path.BYTE.key)
        intervals["network.bandwidth"] = (1 / high, 1 / low if low > path.BYTE.least else np.inf)
    if where == "loopback":
        for key in ("latency", "bandwidth"):
            values[f"network.intra_host.{key}"] = values[f"network.{key}"]
            intervals[f"network.intra_host.{key}"] = intervals[f"network.{key}"]
    rows = [path.row(name, runs, fit.simulated[name]) for name, runs in exchanges.items()]
    return Estimates(values, intervals, {"network": {"probes": rows}})


def _busy(chosen: Probes, measured: Measured) -> dict[str, np.ndarray]:
    """What messages and updates take of the processes' own time, by key."""

    def read(name: str, reading: Callable[..., np.ndarray], kind: str) -> np.ndarray:
        return np.concatenate([reading(records, kind) for records in measured[name]])

    sending = (FAN_OUT, "parameters") if FAN_OUT in measured else (BACKLOG, "push")
    samples = {
        "network.message_overhead": read(sending[0], readings.sending_s, sending[1]),
        "network.receive_overhead": read(BACKLOG, readings.taking_in_s, "parameters"),
        "apply_overhead": np.concatenate([readings.updates_s(records) for records in measured[ONE]]),
    }
    overhead, seconds = float(np.median(samples["apply_overhead"])), {}
    for name, probe in chosen.items():
        cluster, size = probe.cluster, sizes(probe.workload).parameters
        alone = (cluster.workers, cluster.servers.count, probe.strategy.name) == (1, 1, "asynchronous")
        if alone and size >= _LARGE:
            seconds[size] = np.concatenate([readings.updates_s(records) for records in measured[name]])
    if seconds:
        per_byte = [(times - overhead) / (_PASSES * 4 * size) for size, times in seconds.items()]
        with np.errstate(divide="ignore"):  # by chance one of many bytes takes no longer than one of a few
            samples["memory_bandwidth"] = 1 / np.maximum(np.concatenate(per_byte), 0.0)
        if len(samples["memory_bandwidth"]) and np.median(samples["memory_bandwidth"]) == np.inf:
            short, size = min((float(np.median(times)), n) for n, times in seconds.items() if len(times))
            raise no_slope("an update", (4, 4 * size), (overhead, short))
    return samples


def _check_slope(chosen: Probes, exchanges: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Raise RunFailed if the probe with the most to send takes no longer than the one with the least."""
    nbytes = {name: 4 * sizes(chosen[name].workload).parameters for name in exchanges}
    ends = min(nbytes, key=nbytes.__getitem__), max(nbytes, key=nbytes.__getitem__)
    short, long = (float(np.median(np.concatenate(exchanges[name]))) for name in ends)
    if long <= short:
        raise no_slope("an exchange", [nbytes[name] for name in ends], (short, long))
