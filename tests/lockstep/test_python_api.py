"""The same verbs in Python: load, simulate, run, validate, and what a Result offers."""

import doctest
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lockstep
from lockstep import Result, Scenario, ScenarioError, validation
from lockstep.analysis.columns import EVENTS
from lockstep.job.plan import Plan
from lockstep.loopback import Loopback

TINY = [
    "name=tiny",
    "cluster={workers: 2, compute: {time: {distribution: constant, value: 20 ms}}}",
    "workload={problem: quadratic, batch_size: 4}",
    "strategy={name: downpour, communication_window: 2}",
    "stop={steps: 6}",
]


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return lockstep.load("quickstart", TINY)


@pytest.fixture(scope="module")
def predicted(scenario: Scenario) -> Result:
    return lockstep.simulate(scenario)


@pytest.fixture(scope="module")
def measured(scenario: Scenario) -> Result:
    return lockstep.run(scenario)


def test_everything_promised_is_there() -> None:
    for name in lockstep.__all__:
        assert getattr(lockstep, name).__doc__, name


@pytest.mark.slow
def test_the_examples_of_the_docstring_work() -> None:
    found = doctest.testmod(lockstep, extraglobs={"lockstep": lockstep})
    assert found.attempted > 0
    assert found.failed == 0


def test_load_takes_a_name_a_path_and_overrides(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    lockstep.simulate(lockstep.load("sizes-only", ["stop.steps=1"])).save(tmp_path / "out")
    path.write_text((tmp_path / "out" / "scenario.yaml").read_text())
    assert lockstep.load(path) == lockstep.load(str(path)) == lockstep.load("sizes-only", ["stop.steps=1"])
    assert lockstep.load(path, ["seed=1", "seed=2"]).seed == 2


@pytest.mark.parametrize(
    ("source", "override", "key"),
    [
        ("quickstart", "strategy.name=dwnpour", "strategy.name"),
        ("quickstart", "strategy.communication_window=0", "strategy.communication_window"),
        ("quickstart", "workload.model=resnt18", "workload.model"),
        ("quickstart", "cluster.wrokers=1", "cluster.wrokers"),
    ],
)
def test_what_is_wrong_is_a_scenario_error(source: str, override: str, key: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        lockstep.load(source, [override])
    assert caught.value.key == key
    assert "\n" not in str(caught.value)


def test_a_scenario_made_in_python_is_checked_before_it_runs(scenario: Scenario) -> None:
    strategy = scenario.strategy.model_copy(update={"name": "dwnpour"})
    wrong = scenario.model_copy(update={"strategy": strategy})
    for verb in (lockstep.simulate, lockstep.run, lockstep.validate):
        with pytest.raises(ScenarioError, match="did you mean 'downpour'"):
            verb(wrong)


@pytest.mark.real
@pytest.mark.parametrize("engine", ["predicted", "measured"])
def test_a_result(engine: str, scenario: Scenario, request: pytest.FixtureRequest) -> None:
    result: Result = request.getfixturevalue(engine)
    assert isinstance(result, Result)
    assert result.scenario == scenario
    assert result.engine == {"predicted": "simulator", "measured": "executor"}[engine]
    assert result.metrics["samples"] == 2 * 6 * 4
    assert result.metrics is result.metrics  # computed once
    assert json.loads(result.to_json()) == result.metrics
    assert result.parameters is not None
    assert (result.parameters.shape, result.parameters.dtype) == ((20,), np.float32)


@pytest.mark.real
@pytest.mark.parametrize("engine", ["predicted", "measured"])
def test_records_are_a_tidy_table(engine: str, request: pytest.FixtureRequest) -> None:
    records: pd.DataFrame = request.getfixturevalue(engine).records
    assert isinstance(records, pd.DataFrame)
    assert list(records.columns) == [
        "event", "node", "peer", "start", "left", "end", "kind", "version", "staleness", "batches",
        "nbytes", "loss", "accuracy",
    ]  # fmt: skip
    assert list(records["event"].cat.categories) == list(EVENTS)
    assert list(records.index) == list(range(len(records)))
    assert (records["end"] >= records["start"]).all()
    assert (records["start"] >= 0).all()
    counts = records["event"].value_counts()
    assert counts["gradient"] == 12  # 2 workers × 6 steps
    assert counts["update"] == 6  # a window of 2
    assert set(records.loc[records["event"] == "message", "kind"]) == {
        "pull",
        "commit",
        "parameters",
        "leave",
    }
    gradients = records[records["event"] == "gradient"]
    assert sorted(gradients.groupby("node")["version"].agg(list)) == [list(range(6))] * 2


@pytest.mark.real
@pytest.mark.parametrize("engine", ["predicted", "measured"])
def test_the_curve(engine: str, request: pytest.FixtureRequest) -> None:
    result: Result = request.getfixturevalue(engine)
    curve = result.curve
    assert list(curve.columns) == ["time", "version", "loss", "accuracy"]
    assert curve["time"].is_monotonic_increasing
    assert list(curve["version"]) == [1, 2, 3, 4, 5, 6]
    assert curve["time"].iloc[-1] == pytest.approx(result.metrics["duration_s"], abs=0.01)
    assert curve["loss"].iloc[-1] == result.metrics["loss"]
    assert curve["accuracy"].isna().all()  # a problem has none


def test_a_run_of_sizes_only_has_an_empty_curve() -> None:
    result = lockstep.simulate(lockstep.load("sizes-only", ["stop.steps=1"]))
    assert len(result.curve) == 0
    assert result.parameters is None


@pytest.mark.real
@pytest.mark.parametrize("engine", ["predicted", "measured"])
def test_save_and_read_back(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    result: Result = request.getfixturevalue(engine)
    out = tmp_path / "a" / "b"
    result.save(str(out))
    result.save(out)  # again, over it
    assert json.loads((out / "result.json").read_text()) == result.metrics
    pd.testing.assert_frame_equal(pd.read_parquet(out / "records.parquet"), result.records)
    np.testing.assert_array_equal(np.load(out / "parameters.npy"), result.parameters)
    again = Result(
        engine=result.engine,
        plan=Plan.of(lockstep.load(out / "scenario.yaml")),
        records=pd.read_parquet(out / "records.parquet"),
        gradient_s=result.gradient_s,
        parameters=np.load(out / "parameters.npy"),
        warnings=result.warnings,
        disturbances=result.disturbances,
        utilisation=None if engine == "measured" else pd.read_parquet(out / "utilisation.parquet"),
    )
    assert again.metrics == result.metrics


@pytest.mark.slow
def test_a_notebook_shows_a_table(predicted: Result) -> None:
    html = predicted._repr_html_()
    assert html.count("<table") == 1
    assert "predicted" in html
    assert "throughput" in html
    named = Result(
        "simulator", Plan.of(predicted.scenario.model_copy(update={"name": "<b>"})), predicted.records, 1
    )
    assert "<b>" not in named._repr_html_()
    assert "&lt;b&gt;" in named._repr_html_()


def test_progress_is_told_fractions() -> None:
    told: list[float] = []
    lockstep.simulate(lockstep.load("sizes-only", ["stop.steps=40"]), told.append)
    assert told == sorted(told)
    assert len(told) > 2
    assert all(0 <= fraction <= 1 for fraction in told)


def test_a_simulation_is_a_function_of_scenario_and_seed(scenario: Scenario, predicted: Result) -> None:
    again = lockstep.simulate(scenario)
    pd.testing.assert_frame_equal(again.records, predicted.records)
    assert again.metrics == predicted.metrics
    other = lockstep.simulate(lockstep.load("quickstart", [*TINY, "seed=8"]))
    assert other.metrics["parameters_sha256"] != predicted.metrics["parameters_sha256"]


@pytest.mark.real
def test_validate_gives_both(scenario: Scenario) -> None:
    predicted, measured = lockstep.validate(scenario)
    assert (predicted.engine, measured.engine) == ("simulator", "executor")
    assert predicted.metrics["samples"] == measured.metrics["samples"]
    network = predicted.scenario.cluster.network
    assert network.bandwidth is not None  # the loopback's, not the scenario's: that has none
    assert 0 < network.latency < 0.1
    assert measured.scenario == scenario


@pytest.mark.real
def test_validate_predicts_with_times_measured_here_if_it_must() -> None:
    measured = lockstep.load("quickstart", [*TINY, "cluster={workers: 2, compute: measured}"])
    point = validation.on_loopback(measured, Loopback(1e-4, 1e9))
    assert lockstep.simulate(point).metrics["duration_s"] > 0


@pytest.mark.parametrize(
    ("predicted", "measured", "error"),
    [
        (3.0, 2.0, 0.5),
        (1.0, 2.0, -0.5),
        (-1.0, -2.0, 0.5),  # too high
        (0.0, 0.0, 0.0),
        (1.0, 0.0, None),
        (None, 1.0, None),
        (1.0, None, None),
    ],
)
def test_relative_error(predicted: float | None, measured: float | None, error: float | None) -> None:
    assert validation.relative_error(predicted, measured) == error


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ({"0": 5}, {"0": 50}, 0.0),
        ({"0": 1}, {"1": 1}, 1.0),
        ({"0": 1, "1": 1}, {"0": 3, "1": 1}, 0.25),
        ({"2": 1, "10": 1}, {"2": 1, "3": 1}, 0.5),  # in the order of numbers, not of text
        ({}, {"0": 1}, None),
    ],
)
def test_ks_distance(a: dict[str, int], b: dict[str, int], distance: float | None) -> None:
    assert validation.ks_distance(a, b) == (None if distance is None else pytest.approx(distance))
