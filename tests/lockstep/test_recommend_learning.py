"""`lockstep recommend` until a target, what its folder is good for, and `--validate-top`."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep import Scenario, recommendation, validation
from lockstep.recommendation import Recommendation, space
from lockstep.recommendation.ranking import Goal, best
from lockstep.recommendation.show import as_json
from lockstep.recommendation.what_if import CHANGES
from lockstep.recommendation.words import answer
from lockstep.scenarios import dump
from tests.support.command_line import Lockstep, fine
from tests.support.scenarios import scenario

TWO = ("synchronous", "asynchronous")


def digits(**changes: Any) -> Scenario:
    """Three workers, the last of them 20 times slower, learn digits."""
    return scenario(
        cluster__workers=3, cluster__stragglers=[{"worker": 2, "slowdown": 20}],
        workload={"dataset": "digits", "model": "mlp", "batch_size": 16},
        strategy={"name": "synchronous", "learning_rate": 0.1},
        **{"stop": {"steps": 60, "target_accuracy": 0.75}, **changes},
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers, two seeds, and only what is asked of the bandwidth: to be fast."""
    monkeypatch.setattr(space, "_WORKERS", (1,))
    monkeypatch.setattr(space, "_placements", lambda scenario: [space._placement(scenario)])
    monkeypatch.setattr(recommendation, "SEEDS", 2)
    monkeypatch.setattr(recommendation, "CHANGES", {key: CHANGES[key] for key in ["no stragglers"]})


@pytest.fixture(scope="module")
def searched() -> Recommendation:
    """A search that learns, with its ranking, by hours of machines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "_WORKERS", (1,))
        patch.setattr(space, "_placements", lambda scenario: [space._placement(scenario)])
        patch.setattr(space, "KNOBS", {})
        patch.setattr(recommendation, "SEEDS", 2)
        patch.setattr(recommendation, "CHANGES", {key: CHANGES[key] for key in ["no stragglers"]})
        return Recommendation(digits(), "machine-hours", TWO, 1).run(10)


@pytest.mark.slow
def test_who_waits_for_a_slow_worker_comes_later(searched: Recommendation) -> None:
    first = searched.ranking[0]
    assert first.candidate.strategy == "asynchronous"
    row = first.rows[0]
    assert first.values[0] == pytest.approx(row["time_to_target_s"] * 4 / 3600)
    assert lockstep.simulate(searched.best).metrics["time_to_target_s"] is not None


@pytest.mark.slow
def test_every_strategy_has_three_learning_rates(searched: Recommendation) -> None:
    for name in TWO:
        rates = {
            dict(each.settings).get("strategy.learning_rate")
            for each in searched.search_.rows
            if each.strategy == name
        }
        assert len(rates) >= 3
    assert searched.search_.simulated <= 10


@pytest.mark.slow
def test_who_exchanged_nothing_yet_is_not_judged_by_that() -> None:
    """All begin with three learning rates, and these with exchanges often enough to tell."""
    what = digits().model_copy(update={"stop": digits().stop.model_copy(update={"steps": 4})})
    search = Recommendation(what, None, ["aeasgd", "eamsgd"], 1).search_
    search.run(10, 1, lambda: None)
    rarely = [row for each, row in search.rows.items() if "communication_window=32" in each.words]
    assert not rarely[0]["updates"]
    often = [each.strategy for each in search.rows if "communication_window=2" in each.words]
    assert min(often.count("aeasgd"), often.count("eamsgd")) >= 3


def test_no_bound_in_mini_batches_holds_the_fast_workers_up(searched: Recommendation) -> None:
    assert "stop.steps" not in searched.table
    assert searched.search_.longest == pytest.approx(60 * 20 * 0.01, rel=0.05)  # in step with the slowest


def test_a_run_that_cannot_win_is_stopped(searched: Recommendation) -> None:
    search = searched.search_
    best = min(filter(None, (row["time_to_target_s"] for row in search.rows.values())))
    last = list(search.rows.values())[-1]
    assert last["stop.time"] <= 2.01 * best or last["stop.time"] <= search.longest / 8
    assert all(row["stop.time"] <= search.longest for row in search.rows.values())


@pytest.mark.slow
def test_an_error_is_not_called_an_interruption(
    command: Lockstep, sizes_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Recommendation) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Recommendation, "rank", failing)
    names = [word for name in TWO for word in ("--strategy", name)]
    ended = command("recommend", sizes_only, *names, "--budget", 4, "--jobs", 1, "--out", tmp_path / "out")
    assert ended.status == 3
    assert "Interrupted" not in ended.out
    assert "Ended early by an error" in ended.out
    assert (tmp_path / "out" / "results.parquet").exists()


@pytest.mark.slow
def test_the_folder_can_be_plotted_reported_and_run(
    command: Lockstep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By machine-hours where nothing is learned; the real engine is the simulator here."""
    monkeypatch.setattr("lockstep.loopback.measure_loopback", lambda _: "none")
    monkeypatch.setattr(validation, "on_loopback", lambda each, loopback: each)
    monkeypatch.setattr(
        lockstep, "run", lambda each, progress, testbed, overruns_expected: lockstep.simulate(each, progress)
    )
    file, out = tmp_path / "small.yaml", tmp_path / "out"
    file.write_text(dump(scenario(cluster__workers=2)))
    names = [word for name in TWO for word in ("--strategy", name)]
    arguments = ["--target", "machine-hours", "--budget", 4, "--jobs", 1, "--validate-top", 2, "--out", out]
    shown = fine(command("recommend", file, *names, *arguments))
    document = json.loads((out / "recommendation.json").read_text())
    (first,) = [each for each in document["ranking"] if each["label"] == document["recommended"]]
    assert document["answer"].split(". ")[0] in shown
    assert first["mean"] == pytest.approx(first["machines"] * 1e6 / first["throughput"] / 3600)
    assert [each["error"]["throughput"] for each in document["validated"]] == [0, 0]
    assert document["validated"][0]["predicted"]["strategy"] == first["strategy"]
    assert len(list((out / "validated").iterdir())) == 2
    assert pd.read_parquet(out / "results.parquet")["throughput"].notna().all()
    fine(command("plot", out, "--kind", "throughput", "--format", "svg", "--out", tmp_path / "pictures"))
    assert list((tmp_path / "pictures").glob("*.svg"))
    fine(command("report", out))


@pytest.mark.slow
def test_a_target_may_be_of_any_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "KNOBS", {})
    stop = {"steps": 60, "target": {"metric": "loss", "at_most": 1.2}}
    by_loss = Recommendation(digits(stop=stop), None, ["synchronous"], 1).run(3)
    first = best(by_loss.ranking)
    assert first.goal.value(first.rows[0]) == first.rows[0]["time_to_target_s"]
    assert "Soonest at loss 1.2: synchronous" in answer(by_loss)[0]
    assert as_json(by_loss)["until"] == "loss 1.2"
    assert lockstep.simulate(by_loss.best).metrics["loss"] <= 1.2


def test_of_those_who_miss_a_target_the_nearest_comes_first() -> None:
    goal = Goal(
        "time", True, until=digits(stop={"steps": 1, "target": {"metric": "f1", "at_least": 3}}).stop.goal
    )
    row = {"status": "ok", "time_to_target_s": None, "accuracy": None, "loss": 1.0}
    near, far = ({**row, "metrics.f1": found} for found in (2.5, -40.0))
    assert goal.score({**row, "time_to_target_s": 9e9}) < goal.score(near) < goal.score(far) < goal.score(row)
