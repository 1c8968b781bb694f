"""`lockstep fit`: known values are found again, what cannot be told is not named, and predictions hold."""
# ruff: noqa: E501, PT018  (a case is a line)

import json
import math
from pathlib import Path

import pandas as pd
import pytest

import lockstep
from lockstep import ScenarioError
from lockstep.fitting import Fit
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
WORKERS = (1, 2, 4, 8)


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
    found = fitted(ring, measured(ring, TRUE))
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
    table = measured(ring, TRUE).assign(use=["fit", "fit", "predict", "predict"])
    found = fitted(ring, table)
    for key, true in VALUES.items():
        assert found.free[key].value == pytest.approx(true, rel=1e-4)
        assert (found.free[key].low, found.free[key].high) == (None, None)
    assert found.rows["error"].abs().max() < 1e-4
    assert found.rows["left_out"].isna().all()
    assert found.noise is None and found.identifiable


def test_with_sd_two_rows_are_enough_for_an_interval(ring: Path) -> None:
    table = measured(ring, TRUE)
    table = table.assign(use=["fit", "fit", "predict", "predict"], sd=0.01 * table["throughput"])
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


def test_a_value_that_may_be_as_large_as_it_likes_has_no_upper_end(ring: Path) -> None:
    table = measured(ring, {GRADIENT: "1 s", BANDWIDTH: "100 Gbit/s"})
    table["throughput"] *= [1.01, 0.99, 1.01, 0.99]
    ring.write_text(RING.replace("10 ms", "1 s"))
    found = fitted(ring, table, BANDWIDTH)
    its = found.free[BANDWIDTH]
    assert its.high is None and its.low is not None and its.low < 1.25e10
    assert not found.identifiable


def test_a_rough_prediction_is_a_mean_and_its_interval_is_wide(tmp_path: Path) -> None:
    """Two servers that eight workers queue at: any change of a value gives another order."""
    file = tmp_path / "rough.yaml"
    file.write_text(RING.replace("all-reduce", "asynchronous").replace("workers: 2", "workers: 8\n  servers: 2")
                    .replace("constant, value: 10 ms", "lognormal, mean: 10 ms, cv: 0.3")
                    .replace("steps: 2", "steps: 20"))  # fmt: skip
    table = measured(file, {"seed": "5"}, (1, 4, 8))
    found = lockstep.fit(file, table, {BANDWIDTH: ("500 Mbit/s", "2 Gbit/s")}, jobs=1)
    its = found.free[BANDWIDTH]
    assert its.low is not None and its.high is not None
    assert its.low < 1.25e8 < its.high


def test_the_profile_wins_over_the_file_and_loses_to_set_and_sweep(
    ring: Path, command: Lockstep, tmp_path: Path
) -> None:
    measured(ring, TRUE).to_csv(tmp_path / "table.csv", index=False)
    out = tmp_path / "fitted.yaml"
    said = command("fit", ring, "--measured", tmp_path / "table.csv", "--free", BANDWIDTH, "--free", GRADIENT,
                   "--out", out, "--json")  # fmt: skip
    document = json.loads(fine(said))
    assert {"free", "rows", "identifiable"} <= document.keys()
    assert set(document["free"][BANDWIDTH]) == {"value", "low", "high", "unit"}
    assert {"cluster.workers", "measured", "predicted", "error", "use"} <= document["rows"][0].keys()
    named = [f"cluster.profile={out}"]
    there = lockstep.load(ring, named)
    assert there.cluster.network.bandwidth == pytest.approx(3.75e8, rel=1e-4)
    assert lockstep.load(ring, [*named, f"{BANDWIDTH}=2 Gbit/s"]).cluster.network.bandwidth == 2.5e8
    own = lockstep.load(ring, [*named, "cluster.network={bandwidth: 2 Gbit/s}"])
    assert own.cluster.network.bandwidth == 2.5e8
    points = plan(ring, [*named, f"sweep={{{BANDWIDTH}: [2 Gbit/s], cluster.workers: [2, 4]}}"])
    assert {run.scenario.cluster.network.bandwidth for run in points.runs} == {2.5e8}
    profiles = plan(ring, [f"sweep={{cluster.profile: [{out}]}}"])
    assert profiles.runs[0].scenario.cluster.network.bandwidth == pytest.approx(3.75e8, rel=1e-4)
    for row in document["rows"]:
        again = lockstep.load(ring, [*named, f"cluster.workers={row['cluster.workers']}"])
        assert lockstep.simulate(again).metrics["throughput"] == pytest.approx(row["predicted"], rel=1e-4)
    assert out.with_suffix(".png").is_file() and out.with_suffix(".svg").is_file()


def test_the_profile_keeps_what_the_scenarios_own_had(ring: Path, command: Lockstep, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "profile: 1\ncluster: {apply_overhead: 3 ms}\nfitted: {workload.batch_size: 16}\n"
    )
    named = ["--set", f"cluster.profile={tmp_path / 'own.yaml'}"]
    true = {**TRUE, "cluster.profile": str(tmp_path / "own.yaml")}
    measured(ring, true).to_csv(tmp_path / "table.csv", index=False)
    out = tmp_path / "fitted.yaml"
    fine(command("fit", ring, *named, "--measured", tmp_path / "table.csv", "--free", GRADIENT, "--out", out))
    there = lockstep.load(ring, [f"cluster.profile={out}"])
    assert there.cluster.apply_overhead == 3e-3
    assert there.workload.batch_size == 16


def test_what_people_see(ring: Path, command: Lockstep, tmp_path: Path) -> None:
    measured(ring, TRUE).to_csv(tmp_path / "table.csv", index=False)
    out = fine(
        command("fit", ring, "--measured", tmp_path / "table.csv", "--free", BANDWIDTH, "--free", GRADIENT)
    )
    assert "375 MB/s" in out and "17 ms" in out
    assert "Left out in turn" in out and "The rows tell all values apart." in out


TABLE = "cluster.workers,throughput\n1,3200\n2,2500\n4,3800\n"
BAD: dict[str, tuple[str, list[str], str]] = {  # the table, the free keys, and what the message says
    "negative": ("throughput\n-3\n", [BANDWIDTH], "table.csv:2: throughput: must be a number above 0, not '-3'"),
    "not a number": ("throughput\nNaN\n", [BANDWIDTH], "must be a number above 0, not 'NaN'"),
    "infinite": ("throughput\ninf\n", [BANDWIDTH], "must be a number above 0"),
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


def test_files_that_are_no_tables(command: Lockstep, ring: Path, tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    for name, message in {"binary.csv": "is not UTF-8", "none.csv": "No such file", ".": "directory"}.items():
        ended = command("fit", ring, "--measured", tmp_path / name, "--free", BANDWIDTH)
        assert ended.status == 2 and message in ended.err


def test_python_refuses_in_the_same_words(ring: Path) -> None:
    with pytest.raises(ScenarioError, match="the table's row 2: throughput: must be a number above 0"):
        fitted(ring, pd.DataFrame({"throughput": [1.0, -2.0]}), BANDWIDTH)
