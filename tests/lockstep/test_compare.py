"""`lockstep compare`: runs, sweeps and scenarios beside each other."""

import json
from pathlib import Path

import pytest

import lockstep
from lockstep.scenarios import ScenarioError
from tests.support.command_line import Lockstep, fine

SMALL = ["cluster.workers=2", "stop.steps=3"]
SET = [word for each in SMALL for word in ("--set", each)]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    names = tmp_path / "slow", tmp_path / "fast"
    for name, bandwidth in zip(names, ("1 Gbit/s", "10 Gbit/s"), strict=True):
        scenario = lockstep.load("sizes-only", [*SMALL, f"cluster.network.bandwidth={bandwidth}"])
        lockstep.simulate(scenario).save(name)
    return names


def test_a_run_and_itself_are_the_same(command: Lockstep, folders: tuple[Path, Path]) -> None:
    said = fine(command("compare", folders[0], folders[0], "--quiet"))
    assert said == f"The same: {folders[0]} and {folders[0]} differ in no key and in no metric.\n"
    assert json.loads(fine(command("compare", folders[0], folders[0], "--json")))["same"]


def test_a_faster_network(command: Lockstep, folders: tuple[Path, Path], tmp_path: Path) -> None:
    found = json.loads(fine(command("compare", *folders, "--json", "--out", tmp_path / "out")))
    (pair,) = found["pairs"]
    assert pair["keys"] == {"cluster.network.bandwidth": [1.25e8, 1.25e9]}
    rates = [json.loads((folder / "result.json").read_text())["throughput"] for folder in folders]
    assert pair["metrics"]["throughput"]["change"] == rates[1] - rates[0]
    before, after = (sum(values[side] for values in pair["step_s"].values()) for side in (0, 1))
    assert after / before == pytest.approx(rates[0] / rates[1])
    assert json.loads((tmp_path / "out" / "comparison.json").read_text()) == found
    assert (tmp_path / "out" / "step.png").is_file()
    said = fine(command("compare", *folders, "--quiet"))
    assert "cluster.network.bandwidth  1 Gbit/s  10 Gbit/s" in said
    assert "waiting for others" in said or "network" in said


def test_conditions_fail_a_build(command: Lockstep, folders: tuple[Path, Path]) -> None:
    slow, fast = folders
    assert command("compare", slow, fast, "--fail-if", "throughput<-5%", "--quiet").status == 0
    ended = command("compare", fast, slow, "--fail-if", "throughput<-5%", "--quiet")
    assert ended.status == 1
    assert ended.err.startswith("failed: throughput<-5%: ")
    assert command("compare", fast, slow, "--fail-if", "duration_s>0", "--quiet").status == 1


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("throughput=3", "'throughput=3' is no condition; give a metric, < or >, and a change"),
        ("speed<-5%", "no metric 'speed' on both sides (there are: breakdown.compute"),
    ],
)
def test_a_condition_that_is_none(
    command: Lockstep, folders: tuple[Path, Path], condition: str, problem: str
) -> None:
    ended = command("compare", *folders, "--fail-if", condition, "--quiet")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"error: --fail-if: {problem}")


def test_one_thing_has_nothing_to_be_compared_with(command: Lockstep, folders: tuple[Path, Path]) -> None:
    ended = command("compare", folders[0], "--quiet")
    assert (ended.status, ended.out) == (2, "")
    assert "give two runs, sweeps or scenarios, or more" in ended.err


def test_sweeps_have_a_line_for_each_point(command: Lockstep, tmp_path: Path) -> None:
    """A spread of seeds hides what is smaller than it."""
    chance = "cluster.compute={time: {distribution: gamma, mean: 250 ms, cv: 0.2}}"
    common = ["sweep", "sizes-only", *SET, "--set", chance, "--set", "sweep={cluster.workers: [2, 4]}"]
    common += ["--seeds", "3", "--jobs", "1", "--quiet"]
    for name, mean in (("a", "50 us"), ("b", "20 ms")):
        latency = f"cluster.network.latency={mean}"
        fine(command(*common, "--set", latency, "--out", tmp_path / name))
    said = fine(command("compare", tmp_path / "a", tmp_path / "b", "--quiet")).splitlines()
    assert sum(line.startswith(("2 ", "4 ")) for line in said) == 2
    found = json.loads(fine(command("compare", tmp_path / "a", tmp_path / "b", "--json")))
    for pair in found["pairs"]:
        rate = pair["metrics"]["throughput"]
        assert rate["low"] < rate["change"] < rate["high"] < 0
        assert pair["runs"] == [3, 3]


def test_from_python_scenarios_are_simulated() -> None:
    first = lockstep.load("sizes-only", SMALL)
    second = lockstep.load("sizes-only", [*SMALL, "strategy=synchronous"])
    found = lockstep.compare(first, second)
    (pair,) = found.pairs
    assert pair.keys["strategy.name"] == ("asynchronous", "synchronous")
    assert set(found.table["metric"]) == set(pair.metrics)
    assert lockstep.compare(first, lockstep.simulate(first)).same
    with pytest.raises(ScenarioError, match="nothing to compare it with"):
        lockstep.compare(first)


def test_predicted_with_measured(command: Lockstep, folders: tuple[Path, Path], tmp_path: Path) -> None:
    """A folder as `validate` leaves it is enough; which side was measured is the only key that differs."""
    for side, engine in (("predicted", "simulator"), ("measured", "executor")):
        result = lockstep.simulate(lockstep.load("sizes-only", SMALL))
        result.save(tmp_path / "both" / "asynchronous" / side)
        file = tmp_path / "both" / "asynchronous" / side / "result.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"engine": engine}))
    (pair,) = json.loads(fine(command("compare", tmp_path / "both", "--json")))["pairs"]
    assert pair["sides"] == ["predicted", "measured"]
    assert pair["keys"] == {"engine": ["simulator", "executor"]}


@pytest.mark.nightly
@pytest.mark.slow
def test_recommendations(command: Lockstep, tmp_path: Path) -> None:
    for name, bandwidth in (("now", "1 Gbit/s"), ("then", "10 Gbit/s")):
        words = [
            "sizes-only",
            *SET,
            "--set",
            f"cluster.network.bandwidth={bandwidth}",
            "--strategy",
            "all-reduce",
        ]
        fine(
            command("recommend", *words, "--budget", "1", "--jobs", "1", "--out", tmp_path / name, "--quiet")
        )
    both = tmp_path / "now", tmp_path / "then"
    found = json.loads(fine(command("compare", *both, "--json")))
    assert all(pair["keys"]["cluster.network.bandwidth"] == [1.25e8, 1.25e9] for pair in found["pairs"])
    assert all(pair["metrics"]["throughput"]["change"] > 0 for pair in found["pairs"])
    assert json.loads(fine(command("compare", both[0], both[0], "--json")))["same"]
