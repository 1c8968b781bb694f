"""Calibration: what it fits to known samples, and a short one of this machine."""

import json
import math
import resource
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lockstep
from lockstep import calibration, loopback
from lockstep.calibration import (
    Calibration,
    apply,
    calibrate,
    codecs,
    compute,
    cores,
    layers,
    process,
    profile_file,
)
from lockstep.calibration.estimates import Estimates, line, rate, resampled
from lockstep.calibration.fit import FAMILIES, candidates, fits, independent_draws, with_intervals
from lockstep.calibration.save import over, save
from lockstep.cli import app, main
from lockstep.executor.launch import RunFailed
from lockstep.scenarios import Data, Problem, ScenarioError, units
from lockstep.scenarios.profile import read
from lockstep.strategies.codecs import NAMES
from lockstep.strategies.updates import passes_of
from tests.support.brief import briefly

TRUE: dict[str, dict[str, float]] = {
    "uniform": {"low": 0.01, "high": 0.03},
    "exponential": {"mean": 0.02},
    "shifted-exponential": {"shift": 0.01, "mean": 0.02},
    "lognormal": {"mean": 0.02, "cv": 0.3},
    "gamma": {"mean": 0.02, "cv": 0.5},
    "pareto": {"mean": 0.02, "shape": 3.0},
}


def drawn(name: str, count: int, seed: int) -> Any:
    return FAMILIES[name].frozen(*TRUE[name].values()).rvs(count, random_state=np.random.default_rng(seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUE)
def test_a_known_distribution_is_recovered_and_its_intervals_cover(name: str) -> None:
    best = fits(drawn(name, 1500, 0))[0]
    assert best.distribution == name
    assert best.p is not None
    assert best.p > 0.01
    covered, runs = dict.fromkeys(TRUE[name], 0), 60
    for seed in range(runs):
        x = drawn(name, 150, seed)
        fit = with_intervals(next(fit for fit in candidates(x) if fit.distribution == name), x)
        for key, (low, high) in (fit.intervals or {}).items():
            covered[key] += low <= TRUE[name][key] <= high
    for key, count in covered.items():
        assert count >= 0.85 * runs, (key, count)  # 95% is 57; below 51 with 0.3%


def test_a_wrong_distribution_is_seen() -> None:
    both = np.concatenate([drawn("uniform", 500, 1), 0.2 + drawn("uniform", 500, 2)])
    best = fits(np.random.default_rng(0).permutation(both))[0]
    assert best.p is not None
    assert best.p < 0.01
    assert best.ks > 0.1


def test_no_spread_is_constant() -> None:
    (only,) = fits([0.25] * 20)
    assert (only.distribution, only.parameters) == ("constant", {"value": 0.25})


@pytest.mark.slow
def test_the_smallest_of_a_sample_is_possible() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        x = rng.uniform(1e-4, 1e-1) * (1 + rng.pareto(rng.uniform(1.5, 9), 50))
        assert all(np.isfinite(fit.aic) for fit in candidates(x))


def test_neighbours_that_are_alike_count_for_less() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=20_000)
    alike = np.empty_like(noise)
    alike[0] = noise[0]
    for n in range(1, len(noise)):
        alike[n] = 0.8 * alike[n - 1] + noise[n]
    assert independent_draws(noise) == pytest.approx(len(noise), rel=0.1)
    assert independent_draws(alike) == pytest.approx(len(noise) * 0.2 / 1.8, rel=0.25)


def test_overhead_and_bandwidth_of_a_line() -> None:
    sizes = [4e3, 1e6, 25e6]
    found = line(sizes, [30e-6 + n / 8e9 for n in sizes])
    assert found.overhead == pytest.approx(30e-6)
    assert found.bandwidth == pytest.approx(8e9)
    assert rate(sizes, [n / 3e8 for n in sizes]) == pytest.approx(3e8)
    rng = np.random.default_rng(0)
    samples = [(30e-6 + n / 8e9) * rng.lognormal(0, 0.1, 50) for n in sizes]
    _, ((low, high), (slow, fast)) = resampled(lambda medians: line(sizes, medians), samples)
    assert low < 30e-6 < high
    assert slow < 8e9 < fast


@pytest.mark.parametrize("c", [1.0, 1.8, 4.0])
def test_effective_cores(c: float) -> None:
    counts = [1, 2, 3, 4, 8]
    times = [0.01 * max(1.0, m / c) for m in counts]
    assert cores.effective_cores(counts, times) == pytest.approx(c, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("sgd", 3),  # w − η·g
        ("momentum", 8),  # μ·v: 2, + g: 3, and as above
        ("deltas, added", 3),
        ("dynsgd", 5),  # and ÷ (τ + 1): 2
        ("adam", 26),  # of m and v 12, their corrections 4, √ and + ε 4, ÷ 3, and as above
        ("sgd, mean of 4", 12),  # three additions more
    ],
)
def test_what_a_rule_touches_is_counted(name: str, passes: int) -> None:
    rule, pushes = apply.update_rules()[name]
    assert passes_of(rule, pushes, False) == passes


def test_units_of_a_profile() -> None:
    assert profile_file.unit_of("network.latency") == "s"
    assert profile_file.unit_of("network.burst.line_rate") == "B/s"
    assert profile_file.unit_of("network.intra_host.bandwidth") == "B/s"
    assert profile_file.unit_of("network.goodput") == ""
    assert profile_file.unit_of("codecs.1-bit.encode") == "B/s"
    assert profile_file.unit_of("cores_per_host") == ""
    assert units.quantity(95.34e-6, "s") == "95.34 us"
    assert units.quantity(0.0, "s") == "0 ns"
    assert units.quantity(7_654_321_000.0, "B/s") == "7.654 GB/s"
    assert units.quantity(8192.0, "B") == "8.192 kB"
    assert units.quantity(2, "") == 2
    assert units.quantity(math.inf, "B/s") == "inf"


def found(latency: float, **time: Any) -> Calibration:
    evidence: dict[str, Any] = {"network": {"sizes": [1.0, 2.0]}}
    intervals = {"network.latency": (0.9 * latency, 1.1 * latency)}
    if time:
        evidence["compute"] = {"digits": {"fits": []}}
        intervals |= {f"compute.digits.{key}": (0.0, 1.0) for key in time if key != "distribution"}
    estimates = Estimates({"network.latency": latency, "codecs.1-bit.encode": 3e8}, intervals, evidence)
    entry = {"workload": {"dataset": "digits"}, "compute": {"time": time, "backward": 0.5}}
    return Calibration(profile_file.document(estimates, [entry] if time else [], "testbed", 2.5e6), {})


def test_a_profile_is_written_read_and_extended(tmp_path: Path) -> None:
    out = tmp_path / "p.yaml"
    first = found(95e-6, distribution="gamma", mean=2e-3, cv=0.1)
    assert save(first, first.profile, out) == [out]
    read_back = read(out)
    assert read_back.cluster.network.latency == pytest.approx(95e-6)
    assert read_back.compute[0].compute.time.mean_s == pytest.approx(2e-3)
    assert read_back.bandwidth == 2.5e6
    assert read_back.intervals["network.latency"] == ["85.5 us", "104.5 us"]
    again = found(50e-6)
    save(again, over(out, again), out)
    read_back = read(out)
    assert read_back.cluster.network.latency == pytest.approx(50e-6)
    assert read_back.cluster.codecs["1-bit"].encode == 3e8
    assert len(read_back.compute) == 1  # kept
    assert {"compute.digits.mean", "compute.digits.cv"} < set(read_back.intervals)
    another = over(out, found(50e-6, distribution="constant", value=2e-3))
    assert [key for key in another["intervals"] if key.startswith("compute")] == ["compute.digits.value"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.yaml"]
    other = Estimates({"network.goodput": 0.9}, {"network.goodput": (0.8, 1.0)}, {"network": {}})
    new = over(out, Calibration(profile_file.document(other, [], "loopback", None), {}))
    assert "bandwidth" not in new
    assert new["cluster"]["network"] == {"goodput": 0.9}  # nothing of another network stays beside it
    assert [key for key in new["intervals"] if key.startswith("network")] == ["network.goodput"]


# ------------------------------------------------------------------ this machine, briefly


def test_updates_of_a_user_s_step_never_replace_what_is_known_better(tmp_path: Path) -> None:
    """Its optimizer's own numbers are the profile's only where nothing else has measured updates."""
    step = {
        "cluster": {"apply_overhead": "9 us", "memory_bandwidth": "9 GB/s"},
        "intervals": {},
        "compute": [],
    }

    def cluster(evidence: dict[str, Any]) -> Any:
        out = tmp_path / "p.yaml"
        out.write_text("profile: 1\ncluster: {apply_overhead: 1 us, memory_bandwidth: 1 GB/s}\n")
        return over(out, Calibration({"profile": 1, **deepcopy(step), "evidence": evidence}, {}))["cluster"]

    assert cluster({"compute": {}}) == {"apply_overhead": "1 us", "memory_bandwidth": "1 GB/s"}
    assert cluster({"apply": {}}) == {"apply_overhead": "9 us", "memory_bandwidth": "9 GB/s"}


def test_a_rate_that_chance_makes_infinite_has_an_interval() -> None:
    """Some draws of the larger size take less time than the smaller one does."""
    samples = [[1.0, 1.0, 1.0], [1.0, 1.0, 2.0, 2.0]]
    found, (_, (low, high)) = resampled(partial(line, [10, 20]), samples)
    assert found.bandwidth == 20
    assert (low, high) == (10, math.inf)


def test_an_update_whose_bytes_noise_hides_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "alone", lambda *_: ([20_000, 5_000_000], [[3e-3] * 5, [2e-3] * 5]))
    with pytest.raises(RunFailed, match=r"^an update by sgd of 1,000,000 bytes took 2 ms, no longer"):
        apply.measure((4_000, 1_000_000))


def test_a_loopback_whose_bytes_noise_hides_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "_push_pull_s", lambda run, parameters: 2e-3)
    monkeypatch.setattr(loopback, "_paced_run", lambda *_, **__: None)
    with pytest.raises(RunFailed, match=r"^a push-pull of 4,000,000 bytes took 2 ms, no longer"):
        loopback.measure_loopback(10)


@pytest.mark.parametrize(
    "begin", [lambda: process.alone(abs, 1), lambda: calibrate([lockstep.load("quickstart")], ["compute"])]
)
def test_its_processes_import_nothing_for_themselves(
    begin: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the thirty took a second for that."""

    def asked(names: Sequence[str]) -> None:
        assert process.__name__ in names
        raise InterruptedError

    for module in (calibration, process):
        monkeypatch.setattr(module, "start_fork_server", asked)
    with pytest.raises(InterruptedError):
        begin()


@pytest.mark.real
@pytest.mark.alone
def test_the_parts_measure_something() -> None:
    work = Data(dataset="digits", model="mlp", batch_size=8)
    updates = apply.measure((4_000, 2_000_000), 0.0)  # so far apart that no disturbance turns them round
    assert set(updates.evidence["apply"]["rules"]) == set(apply.update_rules())
    assert updates.settings["memory_bandwidth"] > 1e6
    coded = codecs.measure((4_000,), 0.0)
    assert len(coded.settings) == 2 * len(NAMES[1:])
    assert min(coded.settings.values()) > 0
    shared = cores.measure(work, 0.02, 1)
    assert shared.settings["cores_per_host"] >= 1
    assert shared.evidence["cores"]["slowdown"]["1"] == 1
    split = layers.split(work)
    assert 0 < split["backward"] < 1
    ready = [share for _, _, share in split["tensors"]]
    assert ready[0] > ready[-1]  # the pass goes from the last layer to the first
    for _, forward, backward, *spreads in split["layers"]:
        assert forward > 0
        assert backward >= 0
        assert len(spreads) == 2
        assert min(spreads) >= 0


@pytest.mark.real
def test_the_command_measures_writes_and_a_scenario_takes_it_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of fewer gradients than a profile needs to be good."""
    briefly(monkeypatch)
    out = tmp_path / "p.yaml"
    arguments = ["calibrate", "quickstart", "--set", "workload={problem: quadratic, batch_size: 4}"]
    rest = ["--set", "stop={steps: 3}", "--out", str(out), "--only", "compute", "--json"]
    done = CliRunner().invoke(app(), [*arguments, *rest])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    (name,) = printed["evidence"]["compute"]
    assert printed["evidence"]["compute"][name]["gradients"] >= 200
    update = printed["evidence"]["compute"][name]["update"]
    assert update["optimizer"] == "sgd"
    assert update["mean"] > 0
    assert set(printed["cluster"]) == {"apply_overhead", "memory_bandwidth"}
    sample = np.loadtxt(tmp_path / f"p-{name}.csv")
    assert len(sample) == printed["evidence"]["compute"][name]["gradients"]
    assert {file.suffix for file in tmp_path.iterdir()} == {".yaml", ".csv", ".png", ".svg"}
    (tmp_path / "s.yaml").write_text(
        "cluster: {workers: 2, profile: p.yaml}\nworkload: {problem: quadratic, batch_size: 4}\n"
        "strategy: all-reduce\nstop: {steps: 3}\n"
    )
    assert lockstep.simulate(lockstep.load(tmp_path / "s.yaml")).metrics["updates"] > 0
    larger = ["calibrate", str(tmp_path / "s.yaml"), "--set", "workload.batch_size=8", *rest]
    done = CliRunner().invoke(app(), larger)  # of which the profile that it names has no time yet
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["compute"]) == 2


def test_what_cannot_be_measured_is_said(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    sizes = lockstep.load("sizes-only")
    for part in ("compute", "cores"):
        with pytest.raises(ScenarioError, match="sizes only: there is no gradient to measure"):
            calibrate([sizes], [part])
    scenario = tmp_path / "s.yaml"
    scenario.write_text("name: x\n")
    for given, message in [
        (["--only", "computing"], "--only: no such part: 'computing'; did you mean 'compute'?"),
        (["--out", str(tmp_path)], "--out: is a folder"),
        (["--out", str(scenario)], "s.yaml:1: name: unknown key"),
        (["nowhere"], "no such file"),
    ]:
        monkeypatch.setattr("sys.argv", ["lockstep", "calibrate", *given])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 2
        assert message in capsys.readouterr().err
    assert scenario.read_text() == "name: x\n"


def test_workloads_are_told_apart_by_what_their_time_depends_on() -> None:
    assert compute.key(Problem(problem="logistic", dimension=5)) == {
        "problem": "logistic", "dimension": 5, "density": 1.0, "batch_size": 32,
    }  # fmt: skip
    assert compute.key(Data(dataset="digits", partition="iid", learning=False)) == {
        "dataset": "digits", "model": "mlp", "batch_size": 32,
    }  # fmt: skip


def _left_after_freeing(nbytes: int) -> int:
    """By how much this process is larger after it has had, and freed, so many bytes."""
    import torch

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before, vector = resident(), torch.zeros(nbytes // 4)
    del vector
    return resident() - before


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told to keep memory")
def test_what_is_measured_keeps_its_memory_as_a_real_run_does() -> None:
    assert process.alone(_left_after_freeing, 30_000_000) > 25_000_000  # of less than 32 MiB: heap.py
