"""What is disturbed is measured again, and marked if it stays so."""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep import attempts
from lockstep.analysis import differences, plots, saved
from lockstep.analysis import table as table_of
from lockstep.analysis.plots import series
from lockstep.analysis.report.answer import Answer, answer
from lockstep.analysis.report.points import points
from lockstep.attempts import undisturbed, unstolen
from lockstep.calibration import calibrate, codecs, network, save
from lockstep.calibration.estimates import Estimates
from lockstep.executor import collect, fork_server, launch, steal_time
from tests.support.command_line import Lockstep, fine
from tests.support.scenarios import scenario

pytestmark = pytest.mark.usefixtures("three")
TAKEN = "2% of the processors' time went to other guests of this machine's host"


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for everybody but other tests."""
    monkeypatch.setattr(attempts, "ATTEMPTS", 3)


@pytest.mark.parametrize(
    ("disturbed", "most", "expected"),
    [([False], 3, 1), ([True, False], 3, 2), ([True] * 3, 3, 3), ([True], 1, 1), ([True, True, False], 2, 2)],
)
def test_a_disturbed_run_is_measured_again(
    disturbed: list[bool], most: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = lockstep.simulate(scenario())
    found = iter([replace(result, disturbances=[TAKEN] * each) for each in disturbed])
    monkeypatch.setattr(fork_server, "start_for", lambda *_: None)
    monkeypatch.setattr(launch, "execute", lambda *_, **__: next(found))
    metrics = lockstep.run(scenario(), attempts=most).metrics
    assert (metrics["attempts"], metrics["disturbed"]) == (expected, disturbed[expected - 1])
    assert (TAKEN in metrics["warnings"]) == disturbed[expected - 1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 3),
        ({"attempts": 1}, 1),
        ({"compute": "measured"}, 1),
        ({"compute": "measured", "attempts": 2}, 2),
        ({"compute": "measured", "testbed": True}, 3),
        ({"testbed": True, "attempts": 2}, 2),
        ({"testbed": True, "resume": True}, 1),
    ],
)
def test_who_says_nothing_has_all_but_training_measured_again(
    options: dict[str, Any], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(lockstep.simulate(scenario()), disturbances=[TAKEN])
    given = scenario()
    if compute := options.pop("compute", None):
        given = given.model_copy(update={"cluster": given.cluster.model_copy(update={"compute": compute})})
    plan = lockstep.check(scenario())
    monkeypatch.setattr(lockstep, "check", lambda *_: plan)
    monkeypatch.setattr(fork_server, "start_for", lambda *_: None)
    monkeypatch.setattr(launch, "execute", lambda *_, **__: found)
    said: list[str] = []
    assert lockstep.run(given, waiting=said.append, **options).attempts == expected
    again = f"disturbed ({TAKEN}): measured again, attempt {{}} of at most {expected}"
    assert said == [again.format(number) for number in range(2, expected + 1)]


@pytest.mark.parametrize(("expected", "made"), [(False, 3), (True, 1)])
def test_overruns_that_are_expected_are_no_disturbance(
    expected: bool, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "3 of 9 gradients took longer than their emulated time"
    found = replace(lockstep.simulate(scenario()), overruns=[line])
    monkeypatch.setattr(fork_server, "start_for", lambda *_: None)
    monkeypatch.setattr(launch, "execute", lambda *_, **__: found)
    metrics = lockstep.run(scenario(), attempts=3, overruns_expected=expected).metrics
    assert (metrics["attempts"], metrics["disturbed"]) == (made, not expected)
    assert line in metrics["warnings"]


def test_processors_that_others_had_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 9.0, 9.0, 9.0])  # stolen so far: at the begin and the end of each measurement
    monkeypatch.setattr(steal_time, "_seconds", lambda: next(seconds))
    values = iter("ab")
    assert unstolen(lambda: next(values)) == "b"


@pytest.mark.real
def test_what_stays_disturbed_is_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a profile, and no longer once it is measured again."""
    monkeypatch.setattr(codecs, "measure", lambda: Estimates({}, {}, {"codecs": {}}))
    stolen = count(0.0, 9.0)
    monkeypatch.setattr(steal_time, "_seconds", lambda: next(stolen))
    found = calibrate([scenario()], ["codecs"])
    assert found.profile["evidence"]["disturbed"] == ["codecs"]
    out = tmp_path / "profile.yaml"
    save.save(found, found.profile, out)
    monkeypatch.setattr(steal_time, "_seconds", lambda: 0.0)
    assert "disturbed" not in save.over(out, calibrate([scenario()], ["codecs"]))["evidence"]


@pytest.mark.parametrize(
    ("learns", "options", "expected"),
    [(True, {}, 1), (True, {"attempts": 2}, 2), (True, {"testbed": True}, 3), (False, {}, 3)],
)
def test_gradients_that_are_computed_may_overrun_where_nothing_is_predicted(
    learns: bool, options: dict[str, Any], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = {"problem": "quadratic"} if learns else {"parameters": 100}
    given = scenario(workload={**what, "batch_size": 4})
    plan, found = lockstep.check(given), replace(lockstep.simulate(given), overruns=["3 of 9 overran"])
    monkeypatch.setattr(lockstep, "check", lambda *_: plan)
    monkeypatch.setattr(fork_server, "start_for", lambda *_: None)
    monkeypatch.setattr(launch, "execute", lambda *_, **__: found)
    result = lockstep.run(given, **options)
    assert (result.attempts, result.disturbed) == (expected, True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], None), (["--timeout", "100"], 1), (["--timeout", "100", "--attempts", "2"], 2)],
)
def test_who_bounds_the_time_has_one_attempt(
    options: list[str],
    expected: int | None,
    command: Lockstep,
    sizes_only: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int | None] = []

    def run(given: lockstep.Scenario, *_: Any, attempts: int | None, **__: Any) -> lockstep.Result:
        seen.append(attempts)
        return lockstep.simulate(given)

    monkeypatch.setattr(lockstep, "run", run)
    fine(command("run", sizes_only, *options))
    assert seen == [expected]


def test_an_attempt_is_kept_while_the_next_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = replace(lockstep.simulate(scenario()), disturbances=[TAKEN])
    done: list[bool] = []

    def execute(*_: Any, **__: Any) -> lockstep.Result:
        if done:
            raise KeyboardInterrupt
        done.append(True)
        return noisy

    monkeypatch.setattr(fork_server, "start_for", lambda *_: None)
    monkeypatch.setattr(launch, "execute", execute)
    with pytest.raises(KeyboardInterrupt):
        lockstep.run(scenario(), out=tmp_path)
    kept = saved.load(tmp_path).metrics
    assert (kept["throughput"], kept["attempts"]) == (noisy.metrics["throughput"], 1)


def test_who_stands_still_because_the_scenario_says_so_is_no_disturbance() -> None:
    hub: Any = SimpleNamespace(stood_s=0.0, watchdog=SimpleNamespace(stood=lambda: {0: 1.5, 2: 1.25}))
    names = ["worker 0", "worker 1", "server 0"]
    assert collect.disturbances(hub, names, {0, 2}) == []
    assert collect.disturbances(hub, names, {0}) == [
        "disturbed: server 0 stood still for 1.2 s, so the run's times are not its own"
    ]


def test_what_stayed_disturbed_is_in_no_plot_comparison_or_report_that_has_other_runs() -> None:
    settings = dict.fromkeys(range(2), scenario(workload={"parameters": 100, "batch_size": 4}))
    rows = [lockstep.simulate(each).row | {"status": "ok", "error": None} for each in settings.values()]
    table = pd.DataFrame([rows[0], rows[1] | {"disturbed": True, "throughput": 9e9}])
    shown, note = series.ready(table)
    assert [*shown["throughput"]] == [rows[0]["throughput"]]
    assert note == "1 of 2 runs stayed disturbed, not shown."
    (point,) = points(table, ["strategy.name", "cluster.workers"])
    assert (len(point.runs), point.noisy, point.failed) == (1, 1, 0)
    assert point.metrics["throughput"].mean == rows[0]["throughput"]
    side = differences.Side("a", table)
    assert len(differences._ended(side).runs) == 1
    alone = table.iloc[1:]
    shown, note = series.ready(alone)
    assert (len(shown), note) == (1, "1 of 1 run stayed disturbed.")
    assert len(points(alone, ["strategy.name", "cluster.workers"])[0].runs) == 1


def of(strategy: str, status: str = "ok", disturbed: bool = False, **more: Any) -> dict[str, Any]:
    """A row of a sweep's table."""
    given = scenario(strategy=strategy, workload={"parameters": 100, "batch_size": 4})
    row = lockstep.simulate(given).row | {"disturbed": disturbed, "status": status, "error": None, **more}
    return row if status == "ok" else row | {"throughput": None}


def answered(*rows: dict[str, Any]) -> Answer:
    table = pd.DataFrame(rows)
    return answer(points(table, ["strategy.name", "cluster.workers"]), table)


def test_what_stayed_disturbed_is_compared_with_nothing_and_the_best_of_nothing() -> None:
    loud = of("ssp", disturbed=True, throughput=9e9)
    found = answered(of("synchronous"), loud, of("asynchronous", "failed"))
    assert found.sentence.startswith("synchronous")
    assert "ssp" not in found.sentence
    assert [point.strategy for point in found.ranking] == ["synchronous", "ssp", "asynchronous"]
    assert any("1 of 3 runs stayed disturbed" in note for note in found.notes)
    alone = answered(loud, of("asynchronous", "failed"))
    assert alone.sentence.startswith("Runs stayed disturbed, all of them: ssp")
    assert answered(of("asynchronous", "failed")).sentence == "No run has come to its end."


def test_settings_are_those_of_the_scenario_whatever_points_are_called() -> None:
    """As in a folder of runs, or two sweeps together: no columns or numbers of points to go by."""
    loud = of("ssp", disturbed=True)
    table = pd.DataFrame([of("synchronous", point=0), loud | {"point": 0}, loud | {"seed": 7}])
    assert len(table_of.undisturbed(table)) == 3
    split = pd.DataFrame([of("ssp") | {"parallelism.pipeline": 2.0}])
    assert len(table_of.undisturbed(pd.concat([table, split], ignore_index=True))) == 4
    again = pd.concat([table, pd.DataFrame([of("ssp")])], ignore_index=True)
    assert [*table_of.undisturbed(again)["strategy.name"]] == ["synchronous", "ssp"]
    assert len(table_of.undisturbed(table.assign(engine="executor").iloc[:0])) == 0


def test_two_pairs_of_one_strategy_are_drawn(tmp_path: Path) -> None:
    run = lockstep.simulate(scenario())
    noisy = replace(run, disturbances=[TAKEN])
    files = plots.predicted_and_measured([(run, run), (run, noisy)], tmp_path / "pairs")
    assert (tmp_path / "pairs.svg").read_text("utf-8").count("(disturbed)") >= 1
    assert len(files) == 2


def test_a_probe_between_hosts_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = lockstep.simulate(scenario())
    noisy = replace(quiet, disturbances=[TAKEN])
    found = iter([noisy, quiet, noisy, noisy, noisy])
    monkeypatch.setattr(network, "run_on", lambda *_: next(found))
    stayed: list[str] = []
    measured, _ = network.run({"a": scenario(), "b": scenario()}, False, ["one", "two"], stayed=stayed)
    assert stayed == ["network, probe b"]
    assert [len(runs) for runs in measured.values()] == [1, 1]
    assert next(found, None) is None


def test_gradients_may_overrun_where_a_probe_crowds_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    late = replace(lockstep.simulate(scenario()), overruns=["3 of 9 overran"])
    monkeypatch.setattr(network, "execute", lambda *_, **__: late)
    stayed: list[str] = []
    probes = {"alone": scenario(), "crowd": scenario()}
    measured, _ = network.run(probes, False, stayed=stayed, crowd=["crowd"])
    assert stayed == ["network, probe alone"]
    assert [len(runs) for runs in measured.values()] == [network._TURNS] * 2


def test_processors_that_were_taken_on_another_host_are_said(tmp_path: Path) -> None:
    for rank, (steal_s, whole_s) in enumerate(((0.09, 2.0), (0.9, 20.0), (0.0, 20.0))):
        left = {"cores": {"steal_s": steal_s, "whole_s": whole_s}}
        (tmp_path / f"outcome-{rank}.json").write_text(json.dumps(left))
    (taken,) = collect.stolen(tmp_path, range(4))
    assert taken.startswith("4% of the processors' time")
    assert collect.stolen(tmp_path, [2, 3]) == collect.stolen(tmp_path, []) == []


def test_a_run_that_was_disturbed_is_so_when_it_is_read_again(tmp_path: Path) -> None:
    result = replace(lockstep.simulate(scenario()), disturbances=[TAKEN])
    result.save(tmp_path)
    again = saved.load(tmp_path)
    assert again.disturbed
    assert again.metrics == result.metrics


def test_a_simulation_is_never_disturbed() -> None:
    metrics = lockstep.simulate(scenario()).metrics
    assert (metrics["attempts"], metrics["disturbed"]) == (1, False)
    assert undisturbed(lambda: lockstep.simulate(scenario())).attempts == 1
