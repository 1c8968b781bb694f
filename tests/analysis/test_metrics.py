"""The figures of a run, from small tables of records whose answers are computed by hand."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep.analysis.metrics import staleness
from lockstep.analysis.records import Recorder
from lockstep.analysis.result import Result
from tests.support.results import result_of
from tests.support.scenarios import scenario

# --- duration, throughput, speedup --------------------------------------------------------------------------


def test_duration_runs_from_the_first_batch_to_the_last_update() -> None:
    def write(r: Recorder) -> None:
        r.message(0, 2, 0.0, nan, 0.5, "pull", 0)  # before the first mini-batch: off the clock
        r.gradient(0, 0.5, 1.5, 0)
        r.gradient(1, 0.75, 2.0, 0)
        r.update(2, 0, 2.0, 0, 0, 1)
        r.update(2, 1, 2.5, 1, 1, 1)
        r.gradient(0, 2.0, 9.0, 1)  # never applied
        r.evaluation(2.5, 2, 0.1, 0.9)

    m = result_of(write).metrics
    assert m["duration_s"] == 2.0
    assert m["updates"] == 2
    assert m["updates_per_s"] == 1.0
    assert m["samples"] == 20
    assert m["throughput"] == 10.0
    assert m["dropped"] == 0  # the gradient on its way when the run ended was not dropped by the strategy


def test_speedup_is_against_one_worker_with_no_network() -> None:
    def write(r: Recorder) -> None:
        for worker in range(2):
            r.gradient(worker, 0.0, 2.0, 0)
            r.update(2, worker, 4.0, worker, 0, 1)

    m = result_of(write, gradient_s=2.0).metrics  # 20 samples in 4 s; alone 10 in 2 s
    assert m["throughput"] == 5.0
    assert m["speedup"] == 1.0
    assert m["efficiency"] == 0.5


def test_an_update_of_several_batches_counts_them_all() -> None:
    def write(r: Recorder) -> None:
        for step in range(5):
            r.gradient(0, step, step + 1.0, step)
        r.update(1, 0, 5.0, 0, 0, 5)

    m = result_of(write, workers=1).metrics
    assert (m["updates"], m["samples"], m["throughput"]) == (1, 50, 10.0)


def test_one_synchronous_update_of_all_workers_is_one_update() -> None:
    def write(r: Recorder) -> None:
        for worker in range(3):
            r.gradient(worker, 0.0, 1.0, 0)
        for worker in range(3):
            r.update(3, worker, 1.0, 0, 0, 1)

    m = result_of(write, workers=3).metrics
    assert (m["updates"], m["samples"]) == (1, 30)
    assert m["staleness"]["histogram"] == {"0": 3}


def test_a_gradient_is_applied_when_the_last_shard_has_it() -> None:
    def write(r: Recorder) -> None:
        for worker in range(2):
            r.gradient(worker, 0.0, 1.0, 0)
        r.update(2, 0, 1.0, 0, 0, 1)
        r.update(3, 1, 1.0, 0, 0, 1)
        r.update(3, 0, 2.0, 1, 1, 1)  # shard 2 has none of worker 1's

    m = result_of(write, owners=[2, 3]).metrics
    assert m["updates"] == 1  # of the shard that is behind
    assert m["samples"] == 10
    assert m["duration_s"] == 2.0
    assert m["throughput"] == 5.0


def test_a_shard_without_any_update_leaves_nothing_applied() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.update(2, 0, 2.0, 0, 0, 1)

    m = result_of(write, owners=[2, 3]).metrics
    assert (m["updates"], m["samples"], m["throughput"]) == (0, 0, 0.0)


def test_decentralised_each_holder_applies_its_own_gradients() -> None:
    def write(r: Recorder) -> None:
        for step in range(2):
            for worker in range(3):
                r.gradient(worker, step, step + 0.5, step)
                if (step, worker) != (1, 2):  # the last worker has not finished its second step
                    r.update(worker, worker, step + 1.0, step, 0, 1)

    m = result_of(write, workers=3, owners=range(3)).metrics
    assert m["updates"] == 1  # that every owner has made
    assert m["samples"] == 50  # gradients that are in the parameters of their owner
    assert m["duration_s"] == 2.0


def test_bytes_are_those_of_messages_and_of_collectives() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.message(0, 1, 1.0, nan, 2.0, "push", 4000)
        r.collective(0, 1.0, 2.0, 0, 300)
        r.update(1, 0, 2.0, 0, 0, 1)

    assert result_of(write, workers=1).metrics["bytes_sent"] == 4300


# --- staleness ----------------------------------------------------------------------------------------------


def test_staleness_quantiles_are_values_that_occurred() -> None:
    values = np.array([0] * 50 + [1] * 49 + [7])
    assert staleness(values) == {
        "mean": 0.56,
        "p50": 0,  # the 50th of 100
        "p99": 1,  # the 99th of 100
        "max": 7,
        "histogram": {"0": 50, "1": 49, "7": 1},
    }


def test_staleness_of_nothing_is_null() -> None:
    empty = {"mean": None, "p50": None, "p99": None, "max": None, "histogram": {}}
    assert staleness(np.array([], dtype=np.int64)) == empty


def test_a_huge_staleness_costs_no_memory() -> None:
    assert staleness(np.array([0, 10**12]))["histogram"] == {"0": 1, str(10**12): 1}
    assert staleness(np.array([-1, 2**31 - 1], np.int32))["max"] == 2**31 - 1


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=200))
def test_staleness_agrees_with_counting(values: list[int]) -> None:
    found, ordered = staleness(np.array(values)), sorted(values)
    assert found["mean"] == pytest.approx(sum(values) / len(values))
    assert found["max"] == ordered[-1]
    assert found["p50"] == ordered[math.ceil(len(values) / 2) - 1]
    assert found["p99"] == ordered[math.ceil(99 * len(values) / 100) - 1]
    assert found["histogram"] == {str(v): values.count(v) for v in sorted(set(values))}


# --- learning -----------------------------------------------------------------------------------------------


def learned(*points: tuple[float, float, float | None]) -> Callable[[Recorder], None]:
    """A run whose first batch starts at 1 s, with evaluations (time, loss, accuracy)."""

    def write(r: Recorder) -> None:
        r.gradient(0, 1.0, 2.0, 0)
        r.update(1, 0, 9.0, 0, 0, 1)
        for version, (time, loss, accuracy) in enumerate(points, 1):
            r.evaluation(time, version, loss, accuracy)

    return write


POINTS = (2.0, 2.3, 0.1), (4.0, 0.5, 0.8), (6.0, 0.4, 0.9), (8.0, 0.3, 0.85)


def test_time_to_target_is_the_first_time_it_is_reached_since_the_first_batch() -> None:
    assert result_of(learned(*POINTS), workers=1, target=0.8).metrics["time_to_target_s"] == 3.0
    m = result_of(learned(*POINTS), workers=1, target=0.9).metrics
    assert m["time_to_target_s"] == 5.0
    assert m["target"] == 0.9
    assert m["loss"] == 0.3  # the last ones, not the best
    assert m["accuracy"] == 0.85


def test_a_target_never_reached_has_no_time() -> None:
    m = result_of(learned(*POINTS), workers=1, target=0.95).metrics
    assert m["target"] == 0.95
    assert m["time_to_target_s"] is None


def test_a_problem_has_a_loss_and_no_accuracy() -> None:
    m = result_of(learned((2.0, 0.5, None)), workers=1).metrics
    assert (m["loss"], m["accuracy"], m["target"], m["time_to_target_s"]) == (0.5, None, None, None)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_run_that_diverged_says_so(loss: float) -> None:
    result = result_of(learned((2.0, loss, 0.1)), workers=1)
    assert result.metrics["loss"] is None
    assert "diverged" in result.metrics["warnings"][0]
    json.loads(result.to_json())


def test_a_loss_that_never_was_finite_is_not_blamed_on_the_learning_rate() -> None:
    def write(r: Recorder) -> None:
        r.evaluation(1.0, 0, float("nan"), 0.1)
        learned((2.0, float("nan"), 0.1))(r)

    (said,) = result_of(write, workers=1).metrics["warnings"][:1]
    assert "before any update: look for nan in the held-out data" in said


def test_the_curve_is_on_the_clock_of_the_duration() -> None:
    curve = result_of(learned(*POINTS), workers=1, target=0.9).curve
    assert list(curve.columns) == ["time", "version", "loss", "accuracy"]
    assert list(curve["time"]) == [1.0, 3.0, 5.0, 7.0]
    assert list(curve["version"]) == [1, 2, 3, 4]
    assert list(curve.index) == [0, 1, 2, 3]


def test_parameters_are_known_by_their_hash() -> None:
    vector = np.arange(3, dtype=np.float32)
    m = result_of(learned(*POINTS), workers=1, parameters=vector).metrics
    assert m["parameters_sha256"] == hashlib.sha256(vector.tobytes()).hexdigest()
    assert result_of(learned(*POINTS), workers=1).metrics["parameters_sha256"] is None


# --- nothing ------------------------------------------------------------------------------------------------


def gradient_only(r: Recorder) -> None:
    r.gradient(0, 0.0, 1.0, 0)


@pytest.mark.parametrize("write", [lambda r: None, gradient_only])
@pytest.mark.parametrize("owners", [[2], [2, 3], [0, 1]])
def test_a_run_that_did_nothing(write: Callable[[Recorder], None], owners: list[int]) -> None:
    result = result_of(write, owners=owners)
    m = result.metrics
    assert (m["duration_s"], m["updates"], m["samples"], m["bytes_sent"]) == (0.0, 0, 0, 0)
    none = ("throughput", "updates_per_s", "speedup", "efficiency", "loss", "accuracy", "time_to_target_s")
    assert {key: m[key] for key in none} == dict.fromkeys(none)
    assert m["staleness"]["histogram"] == {}
    assert m["breakdown"] == {"compute": 0.0, "update": 0.0, "network": 0.0, "wait": 0.0}
    assert len(result.curve) == 0
    json.loads(result.to_json())


def test_gradients_that_take_no_time_have_no_speedup() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 0.0, 0)
        r.update(1, 0, 1.0, 0, 0, 1)

    m = result_of(write, workers=1, gradient_s=0.0).metrics
    assert m["throughput"] == 10.0
    assert (m["speedup"], m["efficiency"]) == (None, None)


# --- dropped gradients, and runs too short ------------------------------------------------------------------


def test_a_dropped_gradient_counts_once_for_all_shards() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.gradient(1, 0.0, 1.0, 0)
        r.update(2, 0, 1.0, 0, 0, 1)
        r.update(3, 0, 1.0, 0, 0, 1)
        r.drop(2, 1, 2.0, 1, 3)  # one push of three mini-batches,
        r.drop(3, 1, 2.5, 1, 3)  # thrown away by both shards
        r.drop(2, 0, 3.0, 1, 1)  # one that only one shard has thrown away yet

    result = result_of(write, owners=[2, 3])
    assert result.metrics["dropped"] == 3 + 1
    drops = result.records[result.records["event"] == "drop"]
    assert list(drops["start"]) == list(drops["end"]) == [2.0, 2.5, 3.0]
    assert list(drops["batches"]) == [3, 3, 1]
    assert result.metrics["samples"] == 10


def pushes(each: int, staleness: int, owners: Sequence[int] = (2,)) -> Result:
    """Two workers whose pushes are applied by each shard, all but the first with this staleness."""

    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        for shard in owners:
            for version in range(2 * each):
                r.update(shard, version % 2, 1.0 + version, version, staleness if version else 0, 5)

    return result_of(write, owners=owners)


@pytest.mark.parametrize("owners", [(2,), (2, 3)])
def test_a_run_too_short_for_its_staleness_says_so(owners: tuple[int, ...]) -> None:
    (warning,) = pushes(2, staleness=1, owners=owners).metrics["warnings"]
    assert warning.startswith("a short run: 2.0 pushes a worker were applied on average; with fewer than 3 ")
    assert pushes(3, staleness=1, owners=owners).metrics["warnings"] == []


def test_synchronous_runs_are_never_too_short() -> None:
    assert pushes(1, staleness=0).metrics["warnings"] == []


@pytest.mark.parametrize(("steps", "warned"), [(1, True), (2, True), (3, False)])
def test_the_mean_staleness_of_a_short_run_is_a_sixth_too_low_or_more(steps: int, warned: bool) -> None:
    run = lockstep.simulate(scenario(cluster__workers=10, stop={"steps": steps}))
    assert run.metrics["staleness"]["mean"] == pytest.approx(9 * (1 - 1 / (2 * steps)))
    assert [w[:11] for w in run.metrics["warnings"] if "short" in w] == ["a short run"] * warned


def test_staleness_is_that_of_merged_models_where_there_are_any() -> None:
    def write(r: Recorder) -> None:
        for version in range(3):
            for worker in (0, 1):
                r.update(worker, 1 - worker, 1.0 + version, version, (2, -3, 2)[version], 0)
                r.update(worker, worker, 1.0 + version, version, 0, 1)

    metrics = result_of(write, owners=[0, 1]).metrics
    found = {"mean": 1 / 3, "p50": 2, "p99": 2, "max": 2, "histogram": {"-3": 2, "2": 4}}
    assert metrics["staleness"] == found
    assert (metrics["updates"], metrics["samples"], metrics["warnings"]) == (3, 60, [])


# --- files --------------------------------------------------------------------------------------------------


def test_utilisation_is_saved_and_a_stale_one_removed(tmp_path: Path) -> None:
    busy = pd.DataFrame(
        {"resource": ["server 0"], "start": [0.0], "end": [1.0], "busy": [0.5], "bytes": [nan]},
    )
    result = replace(result_of(gradient_only), utilisation=busy)
    result.save(tmp_path)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "utilisation.parquet"), busy)
    replace(result, utilisation=None).save(tmp_path)
    assert not (tmp_path / "utilisation.parquet").exists()


@pytest.mark.parametrize(
    ("stop", "told"), [({"steps": 20}, True), ({"time": "1 s"}, False), ({"updates": 80}, False)]
)
def test_a_long_tail_is_told(stop: dict[str, Any], told: bool) -> None:
    """One worker is three times slower: bounded by steps, the others idle for two thirds of the run."""
    run = lockstep.simulate(scenario(stop=stop, cluster__stragglers=[{"worker": 3, "slowdown": 3}]))
    assert ["in 33% of the time" in w for w in run.metrics["warnings"] if "idled" in w] == [True] * told


def test_a_long_message_is_no_tail() -> None:
    """One mini-batch of 10 ms, and a second until its last byte has arrived: nobody idles."""
    run = lockstep.simulate(
        scenario(strategy="synchronous", stop={"steps": 1}, cluster__network={"bandwidth": "64 kbit/s"})
    )
    assert run.metrics["duration_s"] > 1
    assert run.metrics["warnings"] == []
