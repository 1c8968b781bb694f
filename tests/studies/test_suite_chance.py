"""A point is measured as often as chance asks for, by the runs alone, and nothing is lost in between."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.scenarios import Scenario
from lockstep.studies.accuracy_suite import campaign, suite
from lockstep.studies.accuracy_suite.chance import pooled, standard_error, wanting
from lockstep.studies.accuracy_suite.measuring import MOST, measure
from lockstep.studies.accuracy_suite.point import Point

ASYNCHRONOUS = suite.named("asynchronous-w4-s1-compute-random")
SYNCHRONOUS = suite.named("synchronous-w4-s1-balanced-none")


def run(throughput: float, ages: dict[int, int]) -> dict[str, Any]:
    number = sum(ages.values())
    mean = sum(age * count for age, count in ages.items()) / number if number else None
    counts = {"staleness": [*ages], "staleness_count": [*ages.values()], "staleness_mean": mean}
    same = dict.fromkeys(("duration_s", "step_time_s", "compute", "network", "wait", "utilisation"), 1.0)
    same |= dict.fromkeys(("samples", "updates", "dropped"), 2)
    return {"throughput": throughput, **counts, **same, "stretch": None, "bottleneck": "x", "warnings": []}


def test_what_chance_leaves_of_a_single_run_is_in_its_histogram() -> None:
    assert standard_error([run(90.0, {0: 50, 2: 50})]) == pytest.approx(1 / 10)  # σ 1, mean 1, 100 updates
    assert standard_error([run(90.0, {4: 50, 6: 50})]) == pytest.approx(
        1 / 10 / 5
    )  # relative, above one version
    assert standard_error([run(90.0, {0: 100})]) == 0
    assert standard_error([run(90.0, {})]) == 0


def test_what_chance_leaves_of_several_is_how_they_differ() -> None:
    same = [run(90.0, {0: 50, 2: 50})] * 2
    assert standard_error(same) == 0
    rates = [run(each, {0: 1}) for each in (98.0, 100.0, 102.0)]
    assert standard_error(rates) == pytest.approx(0.02 / 3**0.5)
    ages = [run(90.0, {0: 80, 1: 20}), run(90.0, {0: 60, 1: 40})]
    assert standard_error(ages) == pytest.approx(0.1)  # 0.2 and 0.4 versions: σ 0.141, ÷ √2


def test_there_are_never_fewer_than_the_least_or_more_than_the_most() -> None:
    rough = [run(90.0, {0: 1, 2: 1})]
    assert wanting([], 1, 1, 1.0)
    assert not wanting(rough, 1, 1, 0.0)
    assert not wanting(rough, 1, 5, 1.0)
    assert wanting(rough, 2, 5, 1.0)


def test_several_runs_are_one() -> None:
    one, other = run(90.0, {0: 1, 2: 1}), run(110.0, {2: 2}) | {"bottleneck": "y", "warnings": ["late"]}
    found = pooled([one, other])
    assert (found["throughput"], found["bottleneck"], found["stretch"]) == (100.0, "x", None)
    assert (found["staleness"], found["staleness_count"], found["staleness_mean"]) == ([0, 2], [1, 3], 1.5)
    assert found["warnings"] == ["late"]
    assert found["spread"] == pytest.approx(200**0.5 / 100)
    assert pooled([one])["spread"] is None


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was measured: simulations, each of which has another seed."""
    names: list[str] = []

    def simulated(scenario: Scenario, **options: Any) -> lockstep.Result:
        names.append(scenario.name)
        return lockstep.simulate(scenario.model_copy(update={"seed": len(names)}))

    monkeypatch.setattr(lockstep, "run", simulated)
    return names


def short(point: Point) -> Point:
    return replace(point, document={**point.document, "stop": {"updates": 40}})


def test_a_point_is_measured_again_while_chance_decides(ran: list[str], tmp_path: Path) -> None:
    rough, sure = short(ASYNCHRONOUS), short(SYNCHRONOUS)
    said: list[str] = []
    rows = measure([rough, sure], tmp_path, True, said.append)
    assert ran == [rough.name, sure.name, *[rough.name] * (MOST - 1)]  # they go round
    assert [row["runs"] for row in rows] == [MOST, 1]
    assert rows[0]["throughput"] == pytest.approx(
        sum(each["throughput"] for each in campaign.kept(tmp_path, rough)) / MOST
    )
    assert [line.partition(" points done")[0][-6:] for line in said] == ["0 of 2", *["1 of 2"] * 4, "2 of 2"]
    assert measure([rough, sure], tmp_path, True) == rows
    assert len(ran) == MOST + 1


def interrupted_after_two(
    points: list[Point], ran: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measure points until Ctrl-C, after two runs."""
    simulated = lockstep.run

    def interrupted(scenario: Scenario, **more: Any) -> lockstep.Result:
        if len(ran) == 2:
            raise KeyboardInterrupt
        return simulated(scenario, **more)

    with monkeypatch.context() as patch:
        patch.setattr(lockstep, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            measure(points, folder, True)


def test_runs_go_round_after_an_interruption_too(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [replace(short(SYNCHRONOUS), name=name, runs=3) for name in "abc"]
    points = [replace(point, document=point.document | {"name": point.name}) for point in points]
    interrupted_after_two(points, ran, tmp_path, monkeypatch)
    measure(points, tmp_path, True)
    assert "".join(ran) == "abc" + "abc" + "abc"


def test_another_run_is_made_for_one_that_stayed_disturbed(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = lockstep.run

    def disturbed(scenario: Scenario, **more: Any) -> lockstep.Result:
        found = simulated(scenario, **more)
        return replace(found, disturbances=("others",)) if len(ran) in late else found

    monkeypatch.setattr(lockstep, "run", disturbed)
    late = {2}
    (row,) = measure([replace(short(SYNCHRONOUS), runs=3)], tmp_path / "some", True)
    assert (len(ran), row["runs"], row["disturbed"]) == (4, 3, False)
    late = set(range(100))
    (row,) = measure([replace(short(SYNCHRONOUS), runs=3)], tmp_path / "all", True)
    assert (len(ran), row["runs"], row["disturbed"]) == (7, 3, True)


def test_a_disturbed_run_has_no_part_in_the_mean_of_others() -> None:
    sound = [run(rate, {0: 1}) | {"disturbed": False, "attempts": 1} for rate in (90.0, 110.0)]
    late = run(10.0, {9: 1}) | {"disturbed": True, "attempts": 3}
    row = campaign.row(SYNCHRONOUS, [sound[0], late, sound[1]])
    assert (row["throughput"], row["runs"], row["attempts"], row["disturbed"]) == (100.0, 2, 5, False)
    assert row["staleness"] == [0]
    row = campaign.row(SYNCHRONOUS, [late])
    assert (row["throughput"], row["runs"], row["attempts"], row["disturbed"]) == (10.0, 1, 3, True)


def test_runs_before_an_interruption_count(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = short(ASYNCHRONOUS)
    interrupted_after_two([point], ran, tmp_path, monkeypatch)
    assert len(campaign.kept(tmp_path, point)) == 2
    (row,) = measure([point], tmp_path, True)
    assert (row["runs"], len(ran)) == (MOST, MOST)
