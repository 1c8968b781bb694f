"""`lockstep validate --suite`: it goes on where it stopped, loses nothing, and says what is wrong.

Measuring is played by the simulator, but for the one test on a real testbed.
"""

import json
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep.commands import studies
from lockstep.executor.launch import RunFailed
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, load
from lockstep.scenarios.profile import Profile
from lockstep.studies.accuracy_suite import campaign, measuring, profiles, suite
from lockstep.studies.accuracy_suite.campaign import Campaign
from lockstep.studies.accuracy_suite.grid import crowded
from lockstep.studies.accuracy_suite.measuring import measure
from lockstep.studies.accuracy_suite.order import suite as ordered
from lockstep.studies.accuracy_suite.point import Point
from lockstep.studies.accuracy_suite.predicting import predict
from lockstep.studies.accuracy_suite.profiles import kept, read_profiles, with_profile
from lockstep.studies.accuracy_suite.splits import pipelines
from tests.support.command_line import Lockstep
from tests.support.pace import slowness
from tests.support.testbed import needs_testbed


def short(point: Point, **stop: Any) -> Point:
    return replace(point, document={**point.document, "stop": stop or {"updates": 6}})


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[Point]:
    """The first points of the suite, with short runs."""
    points = [short(point) for point in islice(ordered(), 8)]
    monkeypatch.setattr(suite, "suite", lambda drawn=None: iter(points))
    return points


Runs = list[str]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """The names of what was measured; the simulator measures, with another network."""
    names: Runs = []
    monkeypatch.setattr(measuring, "MOST", 1)

    def run(scenario: Scenario, **options: Any) -> lockstep.Result:
        names.append(scenario.name)
        assert options["overruns_expected"] == (scenario.name in crowd and options["testbed"])
        return lockstep.simulate(scenario)

    crowd = {point.name for point in crowded()}

    monkeypatch.setattr(lockstep, "run", run)
    monkeypatch.setattr(lockstep, "check", lambda scenario, testbed=False: Plan.of(scenario))
    return names


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds."""
    monkeypatch.setattr("lockstep.analysis.accuracy.pictures", lambda table, out, knee: [])


@pytest.fixture
def command(command: Lockstep) -> Lockstep:
    return partial(command, "validate")


def interrupt_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = lockstep.run
    calls = iter(range(count))

    def interrupted(scenario: Scenario, **options: Any) -> lockstep.Result:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return run(scenario, **options)

    monkeypatch.setattr(lockstep, "run", interrupted)


@pytest.mark.slow
def test_it_goes_on_where_it_was_interrupted(
    few: list[Point], ran: Runs, tmp_path: Path, command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt_after(3, patch)
        status, out, err = command("--suite", "--testbed", "--limit", 5, "--out", tmp_path)
    assert (status, out) == (130, "")
    assert "3 of 5 points done, " in err
    assert " left\n" in err
    assert ran == [point.name for point in few[:3]]
    assert sorted(path.stem for path in (tmp_path / "points").iterdir()) == sorted(ran)
    status, out, err = command("--suite", "--testbed", "--limit", 5, "--out", tmp_path, "--json")
    assert (status, err) == (0, "")
    assert ran == [point.name for point in few[:5]]
    assert json.loads(out) == json.loads((tmp_path / "summary.json").read_text())
    assert json.loads(out)["points"] == 5
    written = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert written >= {
        "measured.parquet",
        "predicted.parquet",
        "results.parquet",
        "accuracy.md",
        "scatter.png",
    }
    assert "curves.svg" in written


def test_a_scenario_that_has_changed_is_measured_again(few: list[Point], ran: Runs, tmp_path: Path) -> None:
    measure(few[:2], tmp_path, False)
    measure([few[0], short(few[1], updates=7)], tmp_path, False)
    assert ran == [few[0].name, few[1].name, few[1].name]


def test_what_a_crash_left_half_written_is_measured_again(
    few: list[Point], ran: Runs, tmp_path: Path
) -> None:
    measure(few[:1], tmp_path, False)
    file = tmp_path / "points" / f"{few[0].name}.json"
    file.write_text(file.read_text()[:100])
    measure(few[:1], tmp_path, False)
    assert len(ran) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_a_point_that_fails_is_recorded_and_the_rest_goes_on(
    few: list[Point], ran: Runs, tmp_path: Path, command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = lockstep.run

    def fails(scenario: Scenario, **options: Any) -> lockstep.Result:
        if scenario.name == few[1].name:
            raise RunFailed("worker 1 (rank 1) died: killed by SIGKILL")
        return run(scenario, **options)

    with monkeypatch.context() as patch:
        patch.setattr(lockstep, "run", fails)
        status, out, _ = command("--suite", "--testbed", "--limit", 4, "--out", tmp_path, "--quiet")
    assert status == 0
    assert f"failed: {few[1].name}: RunFailed: worker 1 (rank 1) died: killed by SIGKILL" in out
    assert "4 points, 1 failed." in out
    table = pd.read_parquet(tmp_path / "results.parquet")
    assert table["throughput_error"].notna().tolist() == [True, False, True, True]
    command("--suite", "--testbed", "--limit", 4, "--out", tmp_path)  # it gets another chance
    assert ran.count(few[1].name) == 1
    assert len(ran) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_everything_can_be_computed_again_elsewhere(
    few: list[Point], ran: Runs, tmp_path: Path, command: Lockstep
) -> None:
    source, again = tmp_path / "source", tmp_path / "again"
    profile = tmp_path / "profile.yaml"
    profile.write_text("profile: 1\ncluster: {network: {message_overhead: 3 ms}}\n")
    first = command("--suite", "--testbed", "--limit", 4, "--profile", profile, "--out", source, "--json")
    for file in ("measured.parquet", "campaign.json", "profile.yaml"):
        (again / "from").mkdir(parents=True, exist_ok=True)
        (again / "from" / file).write_bytes((source / file).read_bytes())
    second = command("--suite", "--measured", again / "from", "--out", again, "--json")
    assert (first[0], second[0]) == (0, 0)
    assert len(ran) == 4
    assert json.loads(first[1]) == json.loads(second[1])
    for name in ("predicted.parquet", "results.parquet"):
        assert pd.read_parquet(source / name).equals(pd.read_parquet(again / name))
    assert (source / "accuracy.md").read_text() == (again / "accuracy.md").read_text()
    other = tmp_path / "other.yaml"
    other.write_text("profile: 1\ncluster: {network: {message_overhead: 0 s}}\n")
    third = command(
        "--suite", "--measured", source, "--profile", other, "--out", again, "--json", "--limit", 3
    )
    assert json.loads(third[1])["points"] == 3
    assert json.loads(third[1])["errors"] != json.loads(first[1])["errors"]
    other.write_text("profile: 1\nbandwidth: 20 Mbit/s\n")
    options = ("--measured", source, "--profile", other, "--out", again, "--limit", 3)
    rate, told = 50, command("--suite", *options)[2]
    assert f"{rate} Mbit/s: no profile is of this bandwidth" in told, told


def test_a_profile_stands_beneath_the_scenario(few: list[Point]) -> None:
    below = {"network": {"bandwidth": "1 Gbit/s", "latency": "1 ms"}, "apply_overhead": "2 us"}
    found = with_profile(few[0], [Profile.model_validate({"profile": 1, "cluster": below})])
    assert found.cluster.network.bandwidth == few[0].scenario.cluster.network.bandwidth
    assert found.cluster.network.latency == 1e-3
    assert found.cluster.apply_overhead == pytest.approx(2e-6)


def test_profiles_of_one_bandwidth_are_their_mean(few: list[Point]) -> None:
    def profile(rate: str, latency: str, **more: Any) -> Profile:
        network = {"latency": latency, **more}
        return Profile.model_validate({"profile": 1, "bandwidth": rate, "cluster": {"network": network}})

    cost = {"per_message": "10 us", "per_byte": "4 ns", "cores": 2}
    other = {"per_message": "14 us", "per_byte": "8 ns", "cores": 1.8}
    other |= {"per_large_message": "8 us", "large": "6 kB"}
    before = profile("50 Mbit/s", "1 ms", processing=cost)
    after = profile("50 Mbit/s", "3 ms", processing=other, jitter={"deviation": "2 us"})
    network = with_profile(few[0], [before, profile("20 Mbit/s", "9 ms"), after]).cluster.network
    assert network.latency == pytest.approx(2e-3)
    assert network.processing is not None
    costs_found = network.processing.per_message, network.processing.per_byte, network.processing.cores
    assert costs_found == (pytest.approx(12e-6), pytest.approx(6e-9), pytest.approx(1.9))
    assert network.processing.per_large_message == pytest.approx(4e-6)  # the first has none
    assert network.processing.large == 6000
    assert network.jitter is not None  # which only one has
    assert network.jitter.deviation == pytest.approx(2e-6)
    assert with_profile(few[0], [before]).cluster.network.latency == pytest.approx(1e-3)


def test_a_point_takes_the_profile_of_its_own_bandwidth(few: list[Point], tmp_path: Path) -> None:
    files = []
    for rate, latency in (("50 Mbit/s", "1 ms"), ("20 Mbit/s", "2 ms")):
        files.append(tmp_path / f"{rate[:2]}.yaml")
        files[-1].write_text(f"profile: 1\nbandwidth: {rate}\ncluster: {{network: {{latency: {latency}}}}}\n")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "profile-mine.yaml").write_text("profile: 1\n")
    profiles.keep(tmp_path / "x", files)
    profiles.keep(tmp_path / "x", files)
    assert len(list((tmp_path / "x").iterdir())) == 3  # somebody's own profile stays
    found = read_profiles(kept(tmp_path / "x"))
    slow = few[2]
    assert slow.part == "learning"
    assert [with_profile(point, found).cluster.network.latency for point in (few[0], slow)] == [1e-3, 2e-3]
    assert with_profile(slow, found[:1]).cluster.network.latency == 1e-3
    assert profiles.borrowed(few, found) == {}
    assert profiles.borrowed(few, found[:1]) == {2.5e6: sum(point.part == "learning" for point in few)}
    assert profiles.borrowed(few, read_profiles([tmp_path / "x" / "profile-mine.yaml"])) == {}  # says of none


@pytest.mark.slow
def test_a_point_that_learns_is_predicted_by_several_simulations_too() -> None:
    point = short(suite.chosen("learning-ssp-blocking-seed3"), time="0.5 s")
    profile = Profile.model_validate({"profile": 1})
    found = predict(point, [profile], Campaign(True, None, {}))
    assert found["spread"] > 0
    assert len(found["curve_loss"]) > 1


def test_a_point_is_a_scenario_file(command: Lockstep, tmp_path: Path) -> None:
    name = "agn-w8-s2-network-random"
    status, out, err = command("--suite", "--point", name)
    assert (status, err) == (0, "")
    (tmp_path / "point.yaml").write_text(out)
    assert load(tmp_path / "point.yaml") == suite.chosen(name).scenario


BAD: dict[str, tuple[list[str], str]] = {
    "no out": (["--suite"], "--out: missing"),
    "a file too": (["quickstart", "--suite"], "FILE: means nothing to --suite"),
    "a key too": (["--suite", "--set", "seed=2"], "--set: means nothing to --suite"),
    "no file": ([], "FILE: give a scenario file, --suite or --published"),
    "no suite": (["quickstart", "--limit", "3"], "--limit: is for the suite; say --suite too"),
    "no such point": (
        ["--suite", "--point", "agn-w8-s2-network-randon"],
        "did you mean 'agn-w8-s2-network-random'?",
    ),
    "nothing measured": (
        ["--suite", "--measured", "OUT/no", "--out", "OUT/x"],
        "give a folder that 'lockstep validate --suite' has written",
    ),
    "both": (
        ["--suite", "--measured", "benchmarks", "--testbed", "--out", "OUT/x"],
        "--testbed: nothing is measured",
    ),
    "no profile": (["--suite", "--profile", "OUT/no.yaml", "--out", "OUT/x"], "no such file; give a profile"),
    "an empty profile": (
        ["--suite", "--profile", "OUT/empty.yaml", "--out", "OUT/x"],
        "seed: unknown key",
    ),
    "a wrong profile": (["--suite", "--profile", "OUT/wrong.yaml", "--out", "OUT/x"], "unknown key"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_a_line(name: str, ran: Runs, tmp_path: Path, command: Lockstep) -> None:
    arguments, says = BAD[name]
    (tmp_path / "empty.yaml").write_text("seed: 3\n")
    (tmp_path / "wrong.yaml").write_text("profile: 1\ncluster: {network: {bandwith: 1 Gbit/s}}\n")
    status, out, err = command(*(argument.replace("OUT", str(tmp_path)) for argument in arguments))
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert says in err
    assert ran == []
    assert not (tmp_path / "x").exists()


def test_a_campaign_draws_its_cables_once(few: list[Point], ran: Runs, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        suite.measure_first(tmp_path / folder, True, 1)
    first, other = (Campaign.read(tmp_path / folder).drawn for folder in ("a", "b"))
    assert None not in (first, other)
    assert first != other
    suite.measure_first(tmp_path / "a", True, 2)
    assert Campaign.read(tmp_path / "a").drawn == first


@pytest.mark.slow
def test_campaigns_over_different_networks_are_not_mixed(
    tmp_path: Path, ran: Runs, command: Lockstep
) -> None:
    Campaign.begin(tmp_path, True, 1000)
    status, _, err = command("--suite", "--out", tmp_path)
    assert status == 2
    assert "has runs over the testbed; give another folder" in err
    (tmp_path / "campaign.json").write_text("{")
    status, _, err = command("--suite", "--testbed", "--out", tmp_path)
    assert status == 2
    assert "is damaged" in err


@pytest.mark.real
@pytest.mark.alone
@pytest.mark.usefixtures("no_pictures")
@needs_testbed
def test_a_real_suite_on_the_testbed(tmp_path: Path) -> None:
    points = [
        short(suite.chosen(name), updates=6, time=f"{3 * slowness()} s")
        for name in ("asynchronous-w2-s1-network-none", "all-reduce-native-w2-network-none")
    ]
    where = Campaign.begin(tmp_path, True, 100_000)
    assert where.machine["cores"]
    rows = measure(points, tmp_path, True)
    campaign.save(rows, tmp_path / "measured.parquet")
    summary = suite.recompute(suite.read(tmp_path), tmp_path)
    assert summary["failed"] == {}
    table = pd.read_parquet(tmp_path / "results.parquet").set_index("name")
    for point in points:
        row = table.loc[point.name]
        assert row["predicted_samples"] == row["measured_samples"]
        assert row["predicted_updates"] == row["measured_updates"]
        assert abs(row["throughput_error"]) < 0.5


# ------------------------------------------------------------------ split models


@pytest.mark.slow
def test_split_models_are_a_part_of_their_own(
    ran: Runs, tmp_path: Path, command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = pipelines()
    points = [short(point, steps=3) for point in (every[0], every[7], every[10])]
    monkeypatch.setattr(suite, "pipelines", lambda: points)
    status, out, err = command("--suite", "--pipelines", "--testbed", "--out", tmp_path, "--quiet")
    assert (status, err) == (0, "")
    assert ran == [point.name for point in points]
    assert "step time error of split models, median" in out
    assert "Kendall" not in out  # of which nothing is known
    assert {"scatter.png", "errors.png"} <= {path.name for path in tmp_path.iterdir()}
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (
        summary["errors"]["of these, split models"]["points"] == 2
    )  # four devices are held out, two are not
    found = suite.recompute(suite.read(tmp_path), tmp_path / "again")
    assert found["bars"] == summary["bars"]
    status, _, err = command("--suite", "--testbed", "--out", tmp_path)
    assert (status, "has runs of split models; give another folder" in err) == (2, True)
    status, _, err = command("--suite", "--pipelines", "--measured", tmp_path, "--out", tmp_path / "b")
    assert (status, "--pipelines: nothing is measured" in err) == (2, True)
    status, _, err = command("quickstart", "--pipelines")
    assert (status, "--pipelines: is for the suite" in err) == (2, True)


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_twelve_hosts_that_crowd_the_cores_are_a_part_of_their_own(
    ran: Runs, tmp_path: Path, command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [short(point) for point in crowded()[:2]]
    monkeypatch.setattr(suite, "crowded", lambda: points)
    monkeypatch.setattr(measuring, "MOST", 5)

    def calibrated(scenario: Scenario) -> str:
        ran.append("calibrated")
        return f"profile: 1\nbandwidth: 12.5 MB/s\ncluster: {{apply_overhead: {len(ran)} us}}\n"

    monkeypatch.setattr(studies, "_calibrated", calibrated)
    with monkeypatch.context() as patch:
        interrupt_after(3, patch)  # in the second round
        assert command("--suite", "--crowded", "--testbed", "--out", tmp_path)[0] == 130
    status, out, err = command("--suite", "--crowded", "--testbed", "--out", tmp_path, "--quiet")
    assert (status, err) == (0, "")
    a_round = ["calibrated", *(point.name for point in points)]
    assert ran == [*a_round * 3, "calibrated"]
    assert "throughput error, median" in out
    read = suite.read(tmp_path)
    assert len(read.profiles) == 4
    assert with_profile(points[0], read.profiles).cluster.apply_overhead == pytest.approx(5.5e-6)
    assert command("--suite", "--crowded", "--testbed", "--out", tmp_path)[0] == 0
    assert ran == [*a_round * 3, "calibrated"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["errors"]["held out"]["points"] == 2
    status, _, err = command("--suite", "--pipelines", "--testbed", "--out", tmp_path)
    assert (status, "has runs of crowded cores; give another folder" in err) == (2, True)
    status, _, err = command("--suite", "--pipelines", "--crowded", "--testbed", "--out", tmp_path)
    assert (status, "--crowded: is a set of points of its own; leave --pipelines out" in err) == (2, True)


def test_each_point_of_a_split_model_is_in_passes() -> None:
    for point in pipelines():
        plan = Plan.of(point.scenario)
        assert plan.stages
        assert plan.replicas * point.scenario.split.pipeline == point.factors["workers"]
