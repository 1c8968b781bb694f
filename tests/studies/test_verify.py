"""`lockstep verify`: every case, that a wrong simulator fails, and the theory against what is known of it."""

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import lockstep
from lockstep.scenarios import Cluster, override
from lockstep.simulator import max_min
from lockstep.simulator.errors import SimulationError
from lockstep.studies.verification import (
    cases,
    chosen,
    simgrid,
    table,
    theory,
    theory_queues,
    theory_rounds,
    verify,
)
from lockstep.studies.verification.case import Case, Outcome, estimate, within
from tests.support.command_line import Lockstep
from tests.support.nightly import drawn

CASES = {case.name: case for case in cases()}


def form(name: str) -> str:
    """The closed form that a case is of: its name without the numbers."""
    return re.sub(r"[\d.]+", "", name)


@pytest.mark.slow
@pytest.mark.parametrize("name", drawn(CASES, one_in=8, family=form))
def test_the_simulator_agrees_with_theory(name: str) -> None:
    outcome = CASES[name].check()
    assert outcome.verdict == "pass", outcome
    assert outcome.tolerance < 0.1, "a tolerance as wide as this proves nothing: let the case run longer"


def test_every_case_has_a_name_of_its_own() -> None:
    assert len(CASES) == len(cases())


# The command


@pytest.fixture
def command(command: Lockstep) -> Lockstep:
    return partial(command, "verify")


def test_the_command_prints_a_line_a_case(command) -> None:
    status, out, err = command("--case", "co-located", "--case", "queue alone")
    head, *lines, last = out.splitlines()
    assert status == 0
    assert head.split() == ["case", "theory", "simulated", "error", "tolerance", "verdict"]
    assert [line.split()[-1] for line in lines if "skipped" not in line] == ["pass"] * 4
    assert "parameter-server co-located n=7" in out
    assert "verifying" in err
    assert last == "4 cases, none failed."


def test_json(command) -> None:
    status, out, err = command("--json", "--case", "PUSH then * n=7")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert (found["schema"], found["failed"], len(found["cases"])) == (1, 0, 2)
    assert found["cases"][0] == {
        "case": "parameter-server push then pull n=7 S=1",
        "theory": pytest.approx(47.04),
        "simulated": pytest.approx(47.04),
        "error": pytest.approx(0, abs=1e-9),
        "tolerance": 1e-9,
        "verdict": "pass",
    }


def test_a_pattern_that_is_in_no_name(command) -> None:
    status, out, err = command("--case", "queue", "--case", "nonsense")
    assert (status, out) == (2, "")
    assert err.startswith("error: --case: no case has 'nonsense' in its name; names begin with ")


def test_without_simgrid_a_line_says_so(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simgrid, "available", lambda: "not here")
    status, out, _ = command("--case", "queue alone")
    assert status == 0
    assert "SimGrid: skipped (not here)" in out.splitlines()
    assert not any(case.name.startswith("SimGrid") for case in cases())


def test_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    table.show(verify(chosen(["queue alone"])))
    assert "The simulator against theory" in capsys.readouterr().out


# A wrong simulator is caught


def altered(patch: pytest.MonkeyPatch, key: str, value: Callable[[Cluster], str]) -> None:
    """Simulate something else than what the case says, as a simulator would that reads its input wrongly."""
    right = lockstep.simulate
    patch.setattr(lockstep, "simulate", lambda case: right(override(case, key, value(case.cluster))))


def wrong_latency(patch: pytest.MonkeyPatch) -> str:
    altered(patch, "cluster.network.latency", lambda cluster: f"{1.001 * cluster.network.latency} s")
    return "all-reduce ring"


def wrong_bandwidth(patch: pytest.MonkeyPatch) -> str:
    altered(patch, "cluster.network.bandwidth", lambda cluster: f"{0.999 * cluster.network.bandwidth} B/s")
    return "push then pull"


def slow_workers(patch: pytest.MonkeyPatch) -> str:
    altered(patch, "cluster.compute.time.mean", lambda cluster: f"{1.1 * cluster.compute.time.mean} s")
    return "rounds synchronous exponential n=8 shift=0"


def unfair_rates(patch: pytest.MonkeyPatch) -> str:
    patch.setattr("lockstep.studies.verification.links.max_min", _one_flow_slower)
    return "max-min"


def _one_flow_slower(paths, capacity):
    found = max_min.max_min(paths, capacity)
    rate, link = found[0]
    return {**found, 0: (rate * (1 - 1e-6), link)}


def lost_staleness(patch: pytest.MonkeyPatch) -> str:
    from lockstep.analysis.records import Recorder

    original = Recorder.update

    def update(self, owner, worker, time, version, staleness, batches) -> None:
        original(self, owner, worker, time, version, max(0, staleness - (version % 100 == 0)), batches)

    patch.setattr(Recorder, "update", update)
    return "staleness asynchronous constant"


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong", [wrong_latency, wrong_bandwidth, unfair_rates, slow_workers, lost_staleness]
)
def test_a_wrong_simulator_fails(wrong, monkeypatch: pytest.MonkeyPatch, command) -> None:
    pattern = wrong(monkeypatch)
    status, out, _ = command("--json", "--case", pattern)
    assert status == 3
    assert json.loads(out)["failed"] >= 1


def test_a_simulation_that_breaks_down_is_a_case_that_fails(monkeypatch: pytest.MonkeyPatch, command) -> None:
    def breaks() -> Outcome:
        raise SimulationError("the nodes wait for each other for ever")

    monkeypatch.setattr("lockstep.studies.verification.cases", lambda: [Case("one", breaks)])
    status, out, _ = command("--json")
    row = json.loads(out)["cases"][0]
    assert status == 3
    assert row["case"] == "one: the nodes wait for each other for ever"
    assert (row["theory"], row["error"], row["verdict"]) == (None, None, "fail")
    assert command()[:1] == (3,)


def test_errors_are_relative_and_a_bound_has_one_side() -> None:
    assert Outcome(2.0, 2.2, 0.11).verdict == "pass"
    assert Outcome(2.0, 2.2, 0.09).verdict == "fail"
    assert Outcome(0.0, 0.2, 0.1).error == pytest.approx(0.2)
    assert Outcome(2.0, 1.0, 0.0, at_most=True).verdict == "pass"
    assert Outcome(2.0, float("nan"), 1.0).verdict == "fail"
    assert within(0.5, 2.0, 2.4).tolerance == 0.25


def test_the_tolerance_of_an_estimate_is_5_standard_errors() -> None:
    """Of independent draws: 5/√n relative, give or take what 50 batches leave uncertain (10% a σ)."""
    draws = np.random.default_rng(1).exponential(1.0, 100_000)
    outcome = estimate(1.0, draws)
    assert outcome.verdict == "pass"
    assert outcome.tolerance == pytest.approx(5 / len(draws) ** 0.5, rel=0.4)
    assert estimate(1.03, draws).verdict == "fail"


# The theory itself, without a simulation


def test_order_statistics() -> None:
    """The mean of all n order statistics is the mean of the distribution."""
    n = 7
    for statistic, mean in (
        (lambda k: theory_rounds.exponential_order_statistic(k, n, 2.0, 0.5), 2.5),
        (lambda k: theory_rounds.pareto_order_statistic(k, n, 2.0, 1.5), 2.0),
        (lambda k: theory_rounds.uniform_order_statistic(k, n, 1.0, 3.0), 2.0),
    ):
        values = [statistic(k) for k in range(1, n + 1)]
        assert all(a < b for a, b in pairwise(values))
        assert np.mean(values) == pytest.approx(mean)


def test_what_the_reference_says() -> None:
    """n=8, k=4, shift 0.5, μ=1. The reference's 0.917 is by Monte Carlo: 0.918 is within its last digit."""
    assert theory_rounds.k_batch_sync(4, 8, 1.0, 0.5) == pytest.approx(1.108, abs=1e-3)
    assert theory_rounds.exponential_order_statistic(4, 8, 1.0, 0.5) == pytest.approx(1.135, abs=1e-3)
    assert theory_rounds.k_async(4, 8, 1.0, 0.5) == pytest.approx(0.917, abs=1.5e-3)


def test_limits_of_the_run_times() -> None:
    n, shift = 6, 0.5
    slowest = theory_rounds.exponential_order_statistic(n, n, 1.0, shift)
    assert theory_rounds.k_async(n, n, 1.0, shift) == pytest.approx(slowest, rel=1e-9)  # all wait for all
    for k in (1, 3, 6):
        assert theory_rounds.k_batch_sync(k, n, 2.0) == pytest.approx(2.0 * k / n, rel=1e-9)
        assert theory_rounds.k_async(k, n, 2.0) == theory_rounds.exponential_order_statistic(k, n, 2.0)
    # k = 1 of n = 2: asynchronous, two workers that never wait (where the grid is at its coarsest)
    assert theory_rounds.k_async(1, 2, 1.0, shift) == pytest.approx((1 + shift) / 2, rel=1e-4)
    assert theory_rounds.k_batch_sync(1, 1, 1.0, shift) == pytest.approx(1 + shift, rel=1e-9)
    with pytest.raises(ValueError, match="2k ≥ n"):
        theory_rounds.k_async(1, 4, 1.0, shift)


def test_backup_workers() -> None:
    """None is a barrier; without cancellation a round takes longer than with, and less with every backup."""
    n = 5
    barrier = theory_rounds.exponential_order_statistic(n, n, 1.0)
    times = [theory_rounds.backup_workers(n, b, 1.0) for b in range(20)]
    cancelled = [theory_rounds.exponential_order_statistic(n, n + b, 1.0) for b in range(20)]
    assert times[0] == pytest.approx(barrier) == pytest.approx(cancelled[0])
    assert all(a > b for a, b in pairwise(times))
    assert all(a > b for a, b in zip(times[1:], cancelled[1:], strict=True))
    # one of one, one late: it is fresh with chance 1/2, else dropped, and then both are fresh
    assert theory_rounds.backup_workers(1, 1, 1.0) == pytest.approx(1 / 2 + 1 / 2 * 1 / 2)


def test_model_averaging() -> None:
    """Period 1 is synchronous; in a long one sums are nearly normal (1.0294σ: the largest of four)."""
    synchronous = theory_rounds.exponential_order_statistic(4, 4, 1.0)
    assert theory_rounds.model_averaging_step(1, 4, 1.0, 0.3) == pytest.approx(synchronous + 0.3, rel=1e-9)
    long = theory_rounds.model_averaging_step(300, 4, 1.0, 0.0)
    assert long == pytest.approx(1 + 1.0294 / 300**0.5, abs=1e-3)
    assert theory_rounds.model_averaging_speedup(1, 0.5) == 1
    assert theory_rounds.model_averaging_speedup(10**9, 0.5) == pytest.approx(1.5)


def test_staleness() -> None:
    chances = theory_rounds.geometric(5, np.arange(1000))
    assert chances.sum() == pytest.approx(1)
    assert chances @ np.arange(1000) == pytest.approx(theory_rounds.mean_staleness(5))
    assert theory_rounds.mean_staleness_k_async(8, 8) == 0


@pytest.mark.parametrize("workers", [1, 5, 40])
def test_one_station_of_the_mean_value_analysis_is_the_machine_repairman(workers: int) -> None:
    rate = theory_queues.machine_repairman(workers, 2.0, 0.1)
    assert theory_queues.mean_value_analysis(workers, 2.0, [0.1]) == pytest.approx(rate)


def test_limits_of_the_queues() -> None:
    stations, think = [0.1, 0.05], 1.0
    alone = theory_queues.mean_value_analysis(1, think, stations)
    assert alone == pytest.approx(theory_queues.asymptotes(1, think, stations)) == pytest.approx(1 / 1.15)
    assert theory_queues.mean_value_analysis(1000, think, stations) == pytest.approx(1 / 0.1)
    knee = theory_queues.knee(think, stations)
    assert knee / (think + sum(stations)) == pytest.approx(1 / max(stations))
    for workers in (2, round(knee), 50):
        rate = theory_queues.mean_value_analysis(workers, think, stations)
        assert rate < theory_queues.asymptotes(workers, think, stations)


def test_limits_of_the_collectives() -> None:
    """Nobody is faster than the bound, which a ring without latency reaches."""
    nbytes, beta = 1e6, 1e-9
    for p in (2, 8, 64):
        least = theory.least_all_reduce(p, nbytes, beta)
        assert theory.ring(p, nbytes, 0.0, beta) == pytest.approx(least)
        assert theory.halving_doubling(p, nbytes, 0.0, beta) == pytest.approx(least)
        assert theory.owners(p, nbytes, 0.0, beta) == pytest.approx(least)
        assert theory.recursive_doubling(p, nbytes, 0.0, beta) >= least
        assert theory.binomial(p, nbytes, 0.0, beta) >= least
        assert theory.two_level(p, 1, nbytes, 1e-6, beta, 1e-9) == theory.ring(p, nbytes, 1e-6, beta, 1e-9)


def test_limits_of_the_parameter_server() -> None:
    together = theory.push_then_pull(1e6, 8, 2, 1e9)
    half = together / 2
    for chunks in (1, 3, 100):  # nothing computed: push and pull are two stages of a pipeline
        pipelined = theory.pipelined_push_pull(1e6, 8, 2, 1e9, chunks)
        assert theory.pipeline([half, half], chunks) == pytest.approx(pipelined)
    assert theory.pipelined_push_pull(1e6, 8, 2, 1e9, 1) == together
    assert theory.pipelined_push_pull(1e6, 8, 2, 1e9, 10**9) == pytest.approx(together / 2)
    assert theory.push_then_pull(1e6, 8, 8, 1e9) == theory.push_then_pull(1e6, 8, 80, 1e9)
    assert theory.largest_share_push_pull(1e6, 8, 1 / 2, 1e9) == pytest.approx(together)
    assert theory.hierarchical_push_pull(1e6, 1, 8, 1e9) > theory.push_then_pull(1e6, 8, 1, 1e9)
    assert theory.colocated_push_pull(1e6, 1, 1e9) == 0
