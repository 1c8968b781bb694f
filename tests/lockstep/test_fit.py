"""`lockstep fit`: known values are found again, what cannot be told is not named, and predictions hold."""
# ruff: noqa: E501, PT018  (a case is a line)

import json
import math
from pathlib import Path

import pandas as pd
import pytest

import lockstep
from lockstep import ScenarioError
from lockstep.analysis.plots.fitted import picture
from lockstep.fitting import Fit
from lockstep.fitting.show import verdict
from lockstep.sweeping.points import plan
from tests.support.command_line import Lockstep, fine

RING = """\
name: ring
cluster:
  workers: 2
  network: {bandwidth: 1 Gbit/s, latency: 50 us}
  compute: {time: {distribution: constant, value: 10 ms}}
workload: {parameters: 1000000, batch_size: 32}
strategy: all-reduce
stop: {steps: 2}
"""
BANDWIDTH, GRADIENT, PARAMETERS = (
    "cluster.network.bandwidth",
    "cluster.compute.time.value",
    "workload.parameters",
)
GOODPUT = "cluster.network.goodput"
WORKERS = (1, 2, 8)


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A step takes a gradient's time, and what the ring takes: about 2 (n − 1)/n · bytes ÷ bandwidth."""
    file = tmp_path / "ring.yaml"
    file.write_text(RING)
    return file


def measured(file: Path, true: dict[str, str], workers: tuple[int, ...] = WORKERS) -> pd.DataFrame:
    """What the simulator says with the true values."""
    rows = []
    for count in workers:
        changes = [f"{key}={value}" for key, value in {"cluster.workers": count, **true}.items()]
        rate = lockstep.simulate(lockstep.load(file, changes)).metrics["throughput"]
        rows.append({"cluster.workers": count, "throughput": rate})
    return pd.DataFrame(rows)


TRUE = {BANDWIDTH: "3 Gbit/s", GRADIENT: "17 ms"}
VALUES = {BANDWIDTH: 3.75e8, GRADIENT: 0.017}


def fitted(file: Path, table: pd.DataFrame, *free: str) -> Fit:
    return lockstep.fit(file, table, dict.fromkeys(free or (BANDWIDTH, GRADIENT)), jobs=1)


def test_known_values_are_found_within_their_intervals(ring: Path) -> None:
    found = fitted(ring, measured(ring, TRUE, (1, 2, 4, 8)))
    for key, true in VALUES.items():
        its = found.free[key]
        assert its.low is not None and its.high is not None
        assert its.value == pytest.approx(true, rel=1e-4)
        assert its.low < true < its.high
        assert its.high / its.low < 1.02  # 0.1% of scatter is the least that is believed
    assert found.identifiable
    assert found.rows["error"].abs().max() < 1e-4
    assert found.rows["left_out"].abs().max() < 1e-3


def test_rows_that_are_not_fitted_are_predicted_and_two_rows_leave_no_interval(ring: Path) -> None:
    table = measured(ring, TRUE).assign(use=["fit", "fit", "predict"])
    found = fitted(ring, table)
    for key, true in VALUES.items():
        assert found.free[key].value == pytest.approx(true, rel=1e-4)
        assert (found.free[key].low, found.free[key].high) == (None, None)
    assert found.rows["error"].abs().max() < 1e-4
    assert found.rows["left_out"].isna().all()
    assert found.noise is None and found.identifiable


def test_with_sd_two_rows_are_enough_for_an_interval(ring: Path) -> None:
    table = measured(ring, TRUE)
    table = table.assign(use=["fit", "fit", "predict"], sd=0.01 * table["throughput"])
    found = fitted(ring, table)
    its = found.free[GRADIENT]  # one worker's step is the gradient alone: 1% ± 1.96
    assert its.low is not None and its.high is not None
    assert math.log(its.high / its.low) == pytest.approx(2 * 1.96 * 0.01, rel=0.15)


def test_seconds_of_a_step_are_fitted_like_throughput(ring: Path) -> None:
    table = measured(ring, TRUE)
    steps = 32 * table["cluster.workers"] / table["throughput"]
    table = table.drop(columns="throughput").assign(step_s=steps)
    found = fitted(ring, table)
    assert found.free[GRADIENT].value == pytest.approx(0.017, rel=1e-4)
    assert found.rows["predicted"].to_numpy() == pytest.approx(steps.to_numpy(), rel=1e-4)


def test_what_only_shows_as_a_ratio_is_not_told_apart(ring: Path) -> None:
    ring.write_text(RING.replace(", latency: 50 us", ""))
    found = fitted(ring, measured(ring, {BANDWIDTH: "3 Gbit/s"}), BANDWIDTH, PARAMETERS)
    assert not found.identifiable
    (flat,) = found.flat
    assert flat.factors == pytest.approx({BANDWIDTH: 2.0, PARAMETERS: 2.0}, rel=0.01)
    assert flat.change < 1e-3
    for key in (BANDWIDTH, PARAMETERS):
        assert (found.free[key].low, found.free[key].high) == (None, None)
    ratio = found.free[BANDWIDTH].value / found.free[PARAMETERS].value
    assert ratio == pytest.approx(3.75e8 / 1e6, rel=1e-3)


@pytest.mark.parametrize("ends", [None, ("1 Gbit/s", "1000 Gbit/s")])
def test_a_value_that_may_be_as_large_as_it_likes_has_no_upper_end(
    ring: Path, ends: tuple[str, str] | None
) -> None:
    """The end of where to look is none that the rows set."""
    table = measured(ring, {GRADIENT: "1 s", BANDWIDTH: "100 Gbit/s"})
    table["throughput"] *= [1.01, 0.99, 1.0]
    ring.write_text(RING.replace("10 ms", "1 s"))
    found = lockstep.fit(ring, table, {BANDWIDTH: ends}, jobs=1)
    its = found.free[BANDWIDTH]
    assert its.high is None and its.low is not None and its.low < 1.25e10
    assert not found.identifiable
    assert f"These rows set no upper limit to {BANDWIDTH}." in verdict(found)


@pytest.mark.parametrize("ends", [None, (0.5, 1)])
def test_the_end_of_what_is_valid_is_an_end(ring: Path, ends: tuple[float, float] | None) -> None:
    """A goodput is at most 1, whoever says so."""
    ring.write_text(RING.replace("1 Gbit/s,", "1 Gbit/s, goodput: 0.9,"))
    table = measured(ring, {GOODPUT: "0.99"}, (2, 4, 8))
    table["throughput"] *= [1.03, 0.97, 1.0]
    found = lockstep.fit(ring, table, {GOODPUT: ends}, jobs=1)
    its = found.free[GOODPUT]
    assert its.high == pytest.approx(1.0) and its.low is not None and its.low < 0.99
    assert found.identifiable


def test_what_people_see_and_a_profile_that_predicts_the_same(
    ring: Path, command: Lockstep, tmp_path: Path
) -> None:
    measured(ring, TRUE).to_csv(tmp_path / "table.csv", index=False)
    out = tmp_path / "fitted.yaml"
    asked = ["--measured", tmp_path / "table.csv", "--free", BANDWIDTH, "--free", GRADIENT, "--out", out]
    said = fine(command("fit", ring, *asked))
    for words in ("375 MB/s", "17 ms", "Left out in turn", "The rows tell all values apart.", "fitted.svg"):
        assert words in said
    assert out.with_suffix(".png").stat().st_size > 10_000
    for row in pd.read_csv(tmp_path / "table.csv").to_dict("records"):
        changes = [f"cluster.profile={out}", f"cluster.workers={row['cluster.workers']}"]
        again = lockstep.simulate(lockstep.load(ring, changes)).metrics["throughput"]
        assert again == pytest.approx(row["throughput"], rel=1e-4)


def test_recommend_searches_the_cluster_that_was_fitted(
    ring: Path, command: Lockstep, tmp_path: Path
) -> None:
    """Ten times the bandwidth is another answer, and the same file otherwise."""
    found = {}
    for name, bandwidth in (("slow", "30 MB/s"), ("fast", "300 MB/s")):
        out = tmp_path / f"{name}.yaml"
        out.write_text(f"profile: 1\nfitted: {{{BANDWIDTH}: {bandwidth}, {GRADIENT}: 17 ms}}\n")
        asked = ["--set", f"cluster.profile={out}", "--strategy", "all-reduce", "--budget", 2, "--jobs", 1]
        document = json.loads(fine(command("recommend", ring, *asked, "--json")))
        found[name] = max(each["throughput"] for each in document["ranking"])
        best = lockstep.load(ring, [f"cluster.profile={out}"])
        assert found[name] <= best.cluster.workers * best.workload.batch_size / 0.017
    assert found["slow"] < found["fast"]


def test_the_picture_says_what_its_lines_are_and_shows_a_point_that_is_alone(tmp_path: Path) -> None:
    rows = pd.DataFrame({
        "cluster.workers": [1, 4, 16], "cluster.servers.count": [1, 1, 4], "measured": [100.0, 380.0, 1900.0],
        "predicted": [101.0, 370.0, 1850.0], "low": [95.0, 350.0, 1700.0], "high": [106.0, 390.0, 2000.0],
        "use": "fit",
    })  # fmt: skip
    _, svg = picture(rows, "throughput", tmp_path / "fitted")
    drawn = svg.read_text("utf-8")
    assert "predicted, servers 1" in drawn and "predicted, servers 4" in drawn
    assert drawn.count("LineCollection") == 1  # its band


def test_json_and_a_profile_that_keeps_what_the_scenarios_own_had(
    ring: Path, command: Lockstep, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("profile: 1\ncluster: {apply_overhead: 3 ms}\nfitted: {workload.batch_size: 16}\n")
    table = measured(ring, {**TRUE, "cluster.profile": str(own)}, (1, 4)).assign(use=["fit", "predict"])
    table.to_csv(tmp_path / "table.csv", index=False)
    out = tmp_path / "fitted.yaml"
    asked = ["--measured", tmp_path / "table.csv", "--free", GRADIENT, "--out", out, "--json"]
    document = json.loads(fine(command("fit", ring, "--set", f"cluster.profile={own}", *asked)))
    assert {"free", "rows", "identifiable"} <= document.keys()
    its = document["free"][GRADIENT]
    assert its == {"value": pytest.approx(0.017, rel=1e-4), "low": None, "high": None, "unit": "s"}
    assert document["identifiable"] is True
    first, second = document["rows"]
    assert {"cluster.workers", "measured", "predicted", "error", "use"} <= first.keys()
    assert (first["use"], second["use"]) == ("fit", "predict")
    assert second["error"] == second["predicted"] / second["measured"] - 1
    there = lockstep.load(ring, [f"cluster.profile={out}"])
    assert there.cluster.apply_overhead == 3e-3
    assert there.workload.batch_size == 16
    assert there.cluster.compute.time.value == pytest.approx(0.017, rel=1e-4)


def test_what_was_fitted_wins_over_the_file_and_loses_to_set_and_sweep(ring: Path, tmp_path: Path) -> None:
    fitted, other = tmp_path / "fitted.yaml", tmp_path / "other.yaml"
    fitted.write_text(f"profile: 1\nfitted: {{{BANDWIDTH}: 375 MB/s}}\n")
    other.write_text(f"profile: 1\nfitted: {{{BANDWIDTH}: 500 MB/s}}\n")
    named = [f"cluster.profile={fitted}"]

    def bandwidth(*overrides: str) -> float | None:
        return lockstep.load(ring, [*named, *overrides]).cluster.network.bandwidth

    assert bandwidth() == 3.75e8
    assert bandwidth(f"{BANDWIDTH}=2 Gbit/s") == 2.5e8
    assert bandwidth("cluster.network={bandwidth: 2 Gbit/s}") == 2.5e8
    assert bandwidth("cluster.network.latency=1 ms", "workload.batch_size=8") == 3.75e8
    swept = plan(ring, [*named, f"sweep={{{BANDWIDTH}: [2 Gbit/s], cluster.workers: [2, 4]}}"])
    assert {run.scenario.cluster.network.bandwidth for run in swept.runs} == {2.5e8}
    profiles = plan(ring, [*named, f"sweep={{cluster.profile: [{fitted}, {other}]}}"])
    assert [run.scenario.cluster.network.bandwidth for run in profiles.runs] == [3.75e8, 5e8]
    assert lockstep.load(ring).cluster.network.bandwidth == 1.25e8


def test_a_fitted_key_that_the_scenario_cannot_have_names_the_profile(ring: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("profile: 1\nfitted: {cluster.wrokers: 3}\n")
    with pytest.raises(
        ScenarioError, match=r"wrong.yaml: cluster.wrokers: unknown key; did you mean 'workers'"
    ):
        lockstep.load(ring, [f"cluster.profile={wrong}"])


TABLE = "cluster.workers,throughput\n1,3200\n2,2500\n4,3800\n"
BAD: dict[str, tuple[str, list[str], str]] = {  # the table, the free keys, and what the message says
    "negative": ("throughput\n-3\n", [BANDWIDTH], "table.csv:2: throughput: must be a number above 0, not '-3'"),
    "not a number": ("throughput\nNaN\n", [BANDWIDTH], "must be a number above 0, not 'NaN'"),
    "infinite": ("throughput\ninf\n", [BANDWIDTH], "must be a number above 0"),
    "no cluster's": ("throughput\n1e300\n", [BANDWIDTH], "table.csv:2: throughput: must be from 1e-12 to 1e+15, not '1e300'"),
    "empty": ("", [BANDWIDTH], "must have one column throughput (samples/s) or step_s"),
    "no rows": ("throughput\n# 3\n", [BANDWIDTH], "has no rows"),
    "both": ("throughput,step_s\n3,3\n", [BANDWIDTH], "it has both"),
    "neither": ("cluster.workers\n3\n", [BANDWIDTH], "it has neither (columns: cluster.workers)"),
    "twice": ("cluster.workers,cluster.workers,throughput\n1,2,3\n", [BANDWIDTH], "'cluster.workers' is there twice"),
    "ragged": ("cluster.workers,throughput\n1\n", [BANDWIDTH], "table.csv:2: must have 2 cells"),
    "no measurement": ("cluster.workers,throughput\n1,\n", [BANDWIDTH], "throughput: is empty"),
    "sd": ("throughput,sd\n3,0\n", [BANDWIDTH], "sd: must be a number above 0, not '0'"),
    "some sd": ("throughput,sd\n3,1\n4,\n", [BANDWIDTH], "table.csv:3: has no sd, but other rows to fit have"),
    "use": ("throughput,use\n3,maybe\n", [BANDWIDTH], "use: must be fit or predict, not 'maybe'"),
    "none to fit": ("throughput,use\n3,predict\n", [BANDWIDTH], "has no row to fit"),
    "unknown column": ("cluster.wrokers,throughput\n3,4\n", [BANDWIDTH], "did you mean 'workers'?"),
    "bad value": ("cluster.workers,throughput\n0,4\n", [BANDWIDTH], "table.csv:2: cluster.workers: must be at least 1"),
    "few rows": ("throughput\n3\n", [BANDWIDTH, GRADIENT, PARAMETERS], "3 values cannot be found from 1 row:"),
    "no key": (TABLE, [], "--free: is missing; name a key"),
    "unknown key": (TABLE, ["cluster.netwrk.bandwidth"], "--free cluster.netwrk.bandwidth: has no number"),
    "a word": (TABLE, ["strategy.name"], "--free strategy.name: is 'all-reduce'; only numbers can be fitted"),
    "a list": (TABLE, ["cluster.kinds"], "only numbers can be fitted"),
    "few values": (TABLE, ["workload.batch_size"], "is a whole number with few values"),
    "nothing to begin with": (TABLE, ["cluster.apply_overhead"], "is 0 in the scenario to begin with; give its range"),
    "changes nothing": (TABLE, ["cluster.memory_bandwidth=1 MB/s..1 GB/s", "cluster.pass_overhead=1 us..1 s"],
                        "--free cluster.pass_overhead: changes nothing in the rows to fit, from 1 us to 1 s"),
    "upside down": (TABLE, [f"{BANDWIDTH}=2 Gbit/s..1 Gbit/s"], "'2 Gbit/s' must be less than '1 Gbit/s'"),
    "no unit": (TABLE, [f"{BANDWIDTH}=1..2"], "1 has no unit"),
    "half a range": (TABLE, [f"{BANDWIDTH}=1 Gbit/s"], "is not KEY or KEY=LOW..HIGH"),
    "below 0": (TABLE, [f"{GRADIENT}=0 s..1 s"], "must be a number above 0"),
    "a column too": (TABLE, ["cluster.workers"], "is a column of the table too"),
    "twice free": (TABLE, [GRADIENT, GRADIENT], "is given twice"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(command: Lockstep, ring: Path, tmp_path: Path, case: str) -> None:
    text, free, message = BAD[case]
    (tmp_path / "table.csv").write_text(text)
    asked = [word for key in free for word in ("--free", key)]
    out = tmp_path / "out.yaml"
    ended = command("fit", ring, "--measured", tmp_path / "table.csv", *asked, "--out", out)
    assert ended.status == 2, ended.err
    assert ended.out == "" and not out.exists()
    error = ended.err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error


def test_the_widest_errors_have_a_band(ring: Path) -> None:
    """Rows that no cluster could have together."""
    table = pd.DataFrame({"cluster.workers": [2, 4], "throughput": [1e-12, 1e15]})
    rows = fitted(ring, table, BANDWIDTH).rows
    assert (rows["low"] < rows["predicted"]).all() and (rows["high"] < math.inf).all()


def test_files_that_are_no_tables(command: Lockstep, ring: Path, tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    for name, message in {"binary.csv": "is not UTF-8", "none.csv": "No such file", ".": "directory"}.items():
        ended = command("fit", ring, "--measured", tmp_path / name, "--free", BANDWIDTH)
        assert ended.status == 2 and message in ended.err


def test_python_refuses_in_the_same_words(ring: Path) -> None:
    with pytest.raises(ScenarioError, match="the table's row 2: throughput: must be a number above 0"):
        fitted(ring, pd.DataFrame({"throughput": [1.0, -2.0]}), BANDWIDTH)


def test_overrides_of_a_scenario_count_as_those_of_its_file(ring: Path) -> None:
    """With another size of mini-batches."""
    table = pd.DataFrame({"cluster.workers": [2, 4], "throughput": [100.0, 150.0]})
    files = [lockstep.fit(source, table, {BANDWIDTH: None}, ["workload.batch_size=8"], jobs=1)
             for source in (ring, lockstep.load(ring))]  # fmt: skip
    assert files[0].free == files[1].free
    assert files[0].scenario.workload.batch_size == files[1].scenario.workload.batch_size == 8
    with pytest.raises(ScenarioError, match="must be"):
        lockstep.fit(lockstep.load(ring), table, {BANDWIDTH: None}, ["workload.batch_size=-1"], jobs=1)
