"""What `validate` says of several strategies: rates, which was first, whether the machine was busy."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import lockstep
from lockstep import compared, loopback, terminal
from lockstep.others import Others
from tests.support.command_line import Lockstep, fine


def comparison(name: str, predicted: float | None, measured: float | None, **figures: Any) -> dict[str, Any]:
    """Of one strategy, with these times to 90%."""
    both = {"strategy": name, "throughput": 100.0, "target": 0.9, **figures}
    return {
        "predicted": {**both, "time_to_target_s": predicted},
        "measured": {**both, "time_to_target_s": measured},
        "error": {"throughput": 0.0},
    }


def test_the_first_at_the_target_is_the_answer() -> None:
    found = [comparison("a", 5.0, 5.5), comparison("b", 3.0, 3.25), comparison("c", 9.0, None)]
    assert compared.answer(found) == (
        "Answer: b reaches 90% accuracy soonest (predicted 3 s, measured 3.25 s), "
        "before a (predicted 5 s, measured 5.5 s)."
    )


def test_two_winners_are_no_answer() -> None:
    found = [comparison("a", 5.0, 3.0), comparison("b", 4.0, 4.5)]
    assert compared.answer(found) == (
        "Answer: not clear. What reaches 90% accuracy soonest is "
        "b as predicted (4 s) and a as measured (3 s)."
    )


def test_one_that_was_predicted_to_fail_is_said_to() -> None:
    found = [comparison("a", None, 3.0), comparison("b", None, None)]
    assert compared.answer(found) == (
        "Answer: not clear. What reaches 90% accuracy soonest is – as predicted (–) and a as measured (3 s)."
    )


def test_where_nobody_reaches_a_target_throughput_counts() -> None:
    found = [comparison("a", None, None, throughput=1200.0), comparison("b", None, None, throughput=90.0)]
    assert compared.answer(found) == (
        "Answer: a processes the most samples (predicted 1,200 samples/s, measured 1,200 samples/s), "
        "before b (predicted 90 samples/s, measured 90 samples/s)."
    )
    assert compared.answer(found[:1]) == ""


def test_the_table_names_what_stayed_disturbed(capsys: pytest.CaptureFixture[str]) -> None:
    staleness = {"staleness": {"mean": None}, "loss": None, "warnings": []}
    found = [comparison("a", 5.0, 5.5, **staleness), comparison("b", 3.0, 3.25, **staleness)]
    found[1]["measured"]["disturbed"] = True
    for each in found:
        each["error"] = dict.fromkeys(("throughput", "staleness_mean", "loss", "time_to_target_s"), 0.0)
    terminal.show_comparison(found)
    assert [line.count("(disturbed)") for line in capsys.readouterr().out.splitlines()].count(1) == 2


def test_what_stayed_disturbed_has_no_part_in_the_answer() -> None:
    found = [
        comparison("a", 5.0, 5.5),
        comparison("b", 3.0, 3.25, disturbed=True),
        comparison("c", 9.0, None),
    ]
    found[1]["error"] = {"throughput": 0.5}
    assert compared.answer(found) == (
        "Answer: a reaches 90% accuracy soonest (predicted 5 s, measured 5.5 s), and no other does. "
        "Not counted, as disturbed each time: b."
    )
    assert not compared.far_off(found)
    assert compared.answer(found[1:2]) == "Not counted, as disturbed each time: b."


def test_rates_are_said_where_they_differ() -> None:
    def point(name: str, *rate: str) -> lockstep.Scenario:
        return lockstep.load("strategies/synchronous", [f"strategy={{name: {name}{', '.join(('', *rate))}}}"])

    assert compared.rates([point("ssp"), point("asynchronous")]) == ""
    points = [point("synchronous", "learning_rate: 0.2"), point("ssp", "learning_rate: 0.05"), point("agn")]
    assert compared.rates(points) == "synchronous 0.2, ssp 0.05, agn its default"


def test_the_quickstart_gives_the_mean_of_four_gradients_four_times_the_rate() -> None:
    """The linear scaling rule (Goyal et al. 2017)."""
    from lockstep.sweeping.points import plan

    planned = plan("quickstart")
    workers = planned.scenario.cluster.workers
    averaging = {"synchronous", "all-reduce"}
    for run in planned.runs:
        strategy = run.scenario.strategy
        step = strategy.parameters["learning_rate"] / (workers if strategy.name in averaging else 1)
        assert step == pytest.approx(planned.scenario.strategy.parameters["learning_rate"])


@pytest.mark.slow
def test_at_its_rate_of_the_quickstart_synchronous_training_learns() -> None:
    """One rate for all left it at 29% where asynchronous training reached 91%."""
    rate = "sweep={zip: {strategy.name: [synchronous], strategy.learning_rate: [0.2]}}"
    table = lockstep.sweep(lockstep.load("quickstart", [rate]), jobs=1)
    assert table["accuracy"].item() > 0.9


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations instead of real runs, and no time to measure the loopback."""
    monkeypatch.setattr("lockstep.run", lambda point, *_, **__: lockstep.simulate(point))
    there = loopback.Loopback(1e-4, 1e9)
    monkeypatch.setattr(loopback, "measure_loopback", lambda _: there)


SWEEP = "sweep={zip: {strategy.name: [synchronous, ssp], strategy.learning_rate: [0.2, 0.1]}}"


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_validate_compares_the_points_of_a_sweep(
    command: Lockstep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Others, "share", lambda _: 0.5)
    short = ["--set", "stop.epochs=1", "--set", SWEEP]
    text = fine(command("validate", "quickstart", "--sweep", *short, "--out", tmp_path / "out", "--quiet"))
    assert "Learning rates: synchronous 0.2, ssp 0.1." in text
    *_, busy, answer = text.splitlines()
    assert answer.startswith("Answer: ssp processes the most samples (predicted ")
    # what stands for the measured run has the scenario's network, which is slower
    assert busy == (
        "Some errors are over 10%. Other programs took 50.0% of this machine's processors meanwhile: it was "
        "busy. Measure again when it does nothing else."
    )
    assert {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()} == {"synchronous", "ssp"}


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["--strategy", "ssp"], "--strategy: the sweep says which"),
        (["--set", "sweep={strategy.learning_rate: [0.1, 0.2]}"], "--sweep: has several points of one"),
    ],
)
def test_a_sweep_that_cannot_be_compared_is_refused(
    command: Lockstep, arguments: list[str], key: str
) -> None:
    ended = command("validate", "quickstart", "--sweep", *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {key}")


# --- other programs -----------------------------------------------------------------------------------------


def program(pid: int, seconds: float) -> Any:
    """As psutil tells of a program: half of its time is that of children that have ended."""
    return SimpleNamespace(
        pid=pid, info={"cpu_times": (seconds / 4, seconds / 4, seconds / 4, seconds / 4, 9.0)}
    )


def test_others_are_all_but_this_one_and_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    me, clock = os.getpid(), iter((10.0, 12.0, 20.0))
    before = [program(pid, 10.0) for pid in (me, 10, 11, 20)]
    ours = [program(pid, 14.0) for pid in (me, 10, 11)]  # what the run itself takes
    unknown = SimpleNamespace(pid=30, info={"cpu_times": None})
    programs = iter(
        [before, [*ours, program(20, 10.8), program(21, 0.2), unknown], [*ours, program(20, 10.8)]]
    )
    monkeypatch.setattr("psutil.process_iter", lambda _: next(programs))
    monkeypatch.setattr("psutil.Process.children", lambda *_, recursive: [program(10, 0), program(11, 0)])
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    found = Others()
    assert found.share() == pytest.approx(1.0 / 4)  # one second of two processors' two
    assert "it was not busy" in found.said()


def test_a_system_without_processes_to_look_at_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise FileNotFoundError("/proc")

    monkeypatch.setattr("psutil.process_iter", refuse)
    assert Others().share() is None
    assert "is not known" in Others().said()
