"""`lockstep sweep`: the same table however it is run; stopped, it goes on; a run that fails is a row."""

import json
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep.analysis import report
from lockstep.analysis.plots import series
from lockstep.analysis.report import points
from lockstep.analysis.table import intervals, row, undisturbed
from lockstep.sweeping import running, show, table
from lockstep.sweeping.backends import here
from lockstep.sweeping.points import Plan, Run, plan
from lockstep.sweeping.sweep import Swept, sweep
from tests.support.command_line import Lockstep, fine
from tests.support.scenarios import SIZES

SWEPT = SIZES + "sweep: {strategy.name: [synchronous, ssp], cluster.workers: [1, 2], seeds: 2}\n"
ROWS = 8


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    file = tmp_path / "swept.yaml"
    file.write_text(SWEPT)
    return file


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[lockstep.Scenario]:
    """The scenarios that are simulated in this process."""
    seen, simulate = [], running.simulated

    def counting(scenario: lockstep.Scenario, *rest: Any) -> lockstep.Result:
        seen.append(scenario)
        return simulate(scenario, *rest)

    monkeypatch.setattr(running, "simulated", counting)
    return seen


@pytest.mark.slow
def test_the_same_bytes_from_one_process_two_and_dask(swept: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    lockstep.sweep(swept, out=tmp_path / "one", jobs=1)
    lockstep.sweep(swept, out=tmp_path / "two", jobs=2)
    cluster: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 2, "processes": False}
    with distributed.LocalCluster(**cluster, protocol="tcp://", dashboard_address=None) as there:
        address = there.scheduler_address
        assert address.startswith("tcp://")
        lockstep.sweep(swept, out=tmp_path / "dask", backend="dask", scheduler=address)
    one, *others = [(tmp_path / name / "results.parquet").read_bytes() for name in ("one", "two", "dask")]
    assert others == [one, one]
    found = pd.read_parquet(tmp_path / "one" / "results.parquet")
    assert list(found.columns[:5]) == ["point", "run", "status", "error", "name"]
    assert found["point"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found["seed"].tolist() == [5, 6] * 4
    single = lockstep.simulate(lockstep.load(swept, ["strategy.name=ssp", "cluster.workers=1", "seed=6"]))
    assert found.loc[5, "throughput"] == single.metrics["throughput"]


@pytest.mark.slow
def test_what_has_ended_is_not_run_again(swept: Path, tmp_path: Path, simulated: list[Any]) -> None:
    whole = lockstep.sweep(swept, out=tmp_path / "out", jobs=1)
    assert len(simulated) == len(whole) == ROWS
    points = tmp_path / "out" / "points.jsonl"
    points.write_bytes(points.read_bytes()[:-40])  # killed while it wrote the last line
    before = (tmp_path / "out" / "results.parquet").read_bytes()
    again = lockstep.sweep(swept, out=tmp_path / "out", jobs=1)
    assert len(simulated) == ROWS + 1
    assert (tmp_path / "out" / "results.parquet").read_bytes() == before
    pd.testing.assert_frame_equal(again, whole)
    more = tmp_path / "more.yaml"
    more.write_text(SWEPT.replace("[1, 2]", "[1, 2, 3]"))
    assert len(lockstep.sweep(more, out=tmp_path / "out", jobs=1)) == 12
    assert len(simulated) == ROWS + 1 + 4


def test_another_code_is_another_run(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [run.key for run in plan(swept).runs]
    assert len(set(keys)) == ROWS
    assert keys == [run.key for run in plan(lockstep.load(swept)).runs]
    assert not set(keys) & {run.key for run in plan(swept, engine="executor").runs}
    monkeypatch.setattr("lockstep.sweeping.points.version", lambda engine: {"lockstep's code": "other"})
    assert not set(keys) & {run.key for run in plan(swept).runs}


@pytest.mark.parametrize(
    ("had", "has"),
    [
        ("exponential, mean: 20 ms", "empirical, file: values.csv"),
        ("workers: 2", "workers: 2\n  stragglers: [{worker: 1, trace: values.csv}]"),
    ],
)
def test_the_content_of_a_file_is_part_of_the_run(tmp_path: Path, had: str, has: str) -> None:
    file, values = tmp_path / "a.yaml", tmp_path / "values.csv"
    file.write_text(SIZES.replace(had, has))
    values.write_text("0, 2\n1, 1\n" if "trace" in has else "1\n")
    first = plan(file).runs[0].key
    values.write_text("0, 3\n1, 1\n" if "trace" in has else "2\n")
    assert plan(file).runs[0].key != first


@pytest.mark.slow
def test_a_run_that_fails_is_a_row_and_is_tried_again(
    swept: Path, tmp_path: Path, command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate = running.simulated

    def failing(scenario: lockstep.Scenario, *rest: Any) -> lockstep.Result:
        if scenario.cluster.workers == 2 and scenario.seed == 6:
            raise ZeroDivisionError("by\nzero")
        return simulate(scenario, *rest)

    monkeypatch.setattr(running, "simulated", failing)
    ended = command("sweep", swept, "--out", tmp_path / "out", "--jobs", 1, "--json")
    assert ended.status == 3
    said = json.loads(ended.out)
    assert list(said) == [
        *("schema", "scenario", "engine", "varying", "runs", "kept", "failed", "points"),
    ]
    assert (said["runs"], said["kept"], said["failed"]) == (8, 0, 2)
    assert said["varying"] == ["strategy.name", "cluster.workers"]
    wrong = [row for row in said["points"] if row["status"] == "failed"]
    assert [row["point"] for row in wrong] == [1, 3]
    assert {row["error"] for row in wrong} == {"ZeroDivisionError: by"}
    assert wrong[0]["cluster.workers"] == 2
    assert wrong[0]["throughput"] is None
    shown = command("sweep", swept, "--out", tmp_path / "out", "--jobs", 1)
    assert shown.status == 3
    assert "2 of 8 runs failed; the first, of point 1: ZeroDivisionError: by" in shown.out
    assert "6 of 8 runs already there" in shown.err
    monkeypatch.setattr(running, "simulated", simulate)
    said = json.loads(fine(command("sweep", swept, "--out", tmp_path / "out", "--jobs", 1, "--json")))
    assert (said["kept"], said["failed"]) == (6, 0)


@pytest.mark.slow
def test_ctrl_c_keeps_what_has_ended(
    swept: Path, tmp_path: Path, command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate, out = running.simulated, tmp_path / "out"

    def interrupted(scenario: lockstep.Scenario, *rest: Any) -> lockstep.Result:
        if scenario.cluster.workers == 2:
            raise KeyboardInterrupt
        return simulate(scenario, *rest)

    monkeypatch.setattr(running, "simulated", interrupted)
    ended = command("sweep", swept, "--out", out, "--jobs", 1)
    assert ended.status == 130
    assert f"what has ended is in {out}; started again, the rest follows" in ended.err
    assert len(pd.read_parquet(out / "results.parquet")) == 2
    monkeypatch.setattr(running, "simulated", simulate)
    assert "2 of 8 runs already there" in command("sweep", swept, "--out", out, "--jobs", 1).err
    assert len(pd.read_parquet(out / "results.parquet")) == 8


@pytest.mark.slow
def test_records_of_chosen_points(swept: Path, tmp_path: Path, command: Lockstep) -> None:
    out = tmp_path / "out"
    fine(command("sweep", swept, "--out", out, "--jobs", 1))
    assert not (out / "runs").exists()
    fine(command("sweep", swept, "--out", out, "--jobs", 1, "--keep-records", "0,3"))
    found = pd.read_parquet(out / "results.parquet").set_index("run")
    kept = sorted(folder.name for folder in (out / "runs").iterdir())
    assert sorted(found[found["point"].isin([0, 3])].index) == kept
    metrics = json.loads((out / "runs" / kept[0] / "result.json").read_text())
    assert metrics["throughput"] == found.loc[kept[0], "throughput"]
    assert (out / "runs" / kept[0] / "records.parquet").is_file()


@pytest.mark.slow
def test_the_table_says_which_is_best(swept: Path, command: Lockstep) -> None:
    shown = fine(command("sweep", swept, "--jobs", 1, "--quiet"))
    assert "strategy.name" in shown
    assert "samples/s" in shown
    assert "±" in shown
    assert "Best: point" in shown


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([(0.6, 0.05), (0.2, 0.05)], True),
        ([(0.6, 0.5), (0.2, 0.5)], False),
        ([(0.1, 0.05), (0.2, 0.05)], False),
    ],
)
def test_who_learns_more_than_the_fastest_is_named(
    losses: list[tuple[float, float]], said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"mean": mean, "low": mean - half, "high": mean + half, "runs": 3} for mean, half in losses]
    show._say_who_learns_more((0, "samples/s", rows[0], []), dict(enumerate(rows)))
    shown = capsys.readouterr().out
    assert ("It learns less in these runs: its held-out loss is 0.6 ± 0.05, that of point 1" in shown) == said


EMBEDDING = "{problem: embedding, dimension: 80, width: 2, batch_size: 4}"


@pytest.mark.parametrize("learns", [False, True])
def test_the_runs_of_a_point_are_one_job_with_several_seeds(
    learns: bool, swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where which rows of the parameters are sent is drawn."""
    checked, check = [], lockstep.check
    changes = ["cluster.compute.time={distribution: gamma, mean: 10 ms, cv: 0.3}"]
    if learns:
        both = "{strategy.name: [synchronous, asynchronous], cluster.workers: [2, 3], seeds: 2}"
        changes += [f"workload={EMBEDDING}", "strategy.codec=rows", f"sweep={both}"]
    todo = plan(swept, changes)
    alone = [row(lockstep.simulate(run.scenario)) for run in todo.runs]

    def counting(scenario: lockstep.Scenario) -> Any:
        checked.append(scenario)
        return check(scenario)

    monkeypatch.setattr(lockstep, "check", counting)
    found = sweep(todo).table.to_dict("records")
    assert len(checked) == 4
    assert [{**each, **its} for each, its in zip(found, alone, strict=True)] == found
    assert len({each["duration_s"] for each in found}) == ROWS


def test_real_runs_one_at_a_time(sizes_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def run(scenario: lockstep.Scenario, *_: Any, testbed: bool) -> lockstep.Result:
        seen.append((scenario.cluster.workers, testbed))
        return lockstep.simulate(scenario)

    monkeypatch.setattr(lockstep, "run", run)
    scenario = lockstep.load(sizes_only, ["sweep={cluster.workers: [1, 2]}"])
    assert lockstep.sweep(scenario, engine="executor")["status"].tolist() == ["ok"] * 2
    assert seen == [(1, False), (2, False)]


def test_real_runs_that_stayed_disturbed_count_in_no_mean(
    sizes_only: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Point 0 has one that counts; of point 1, the fastest, none does."""
    runs = count()

    def run(scenario: lockstep.Scenario, *_: Any, **__: Any) -> lockstep.Result:
        number = next(runs)
        found = lockstep.simulate(scenario)
        return replace(found, disturbances=["taken"] if number else [])

    monkeypatch.setattr(lockstep, "run", run)
    gamma = "cluster.compute.time={distribution: gamma, mean: 10 ms, cv: 0.3}"
    changes = ["sweep={cluster.workers: [1, 2, 4], seeds: 2}", gamma]
    todo = plan(sizes_only, changes, engine="executor")
    swept = sweep(todo)
    first = swept.table.iloc[0]
    row = intervals(undisturbed(swept.table), ["point"], "throughput").iloc[0]
    assert (row["point"], row["runs"], row["mean"]) == (0, 1, first["throughput"])
    show.show(todo, swept, None)
    said = capsys.readouterr()
    assert (
        "5 of 6 runs stayed disturbed, and count in no mean of a point that has others: points 0, 1, 2."
        in said.out
    )
    assert [line.count("(disturbed)") for line in said.out.splitlines()].count(1) == 2  # points 1 and 2
    assert "Best" not in said.out
    assert "warning: points 0, 1, 2: taken" in said.err
    noisy = Swept(swept.table.iloc[1:], 0)
    show.show(todo, noisy, None)
    said = capsys.readouterr()
    assert "5 of 5 runs stayed disturbed: points 0, 1, 2." in said.out
    assert "±" in said.out
    assert "Best" not in said.out


def test_what_has_several_types_is_text() -> None:
    runs: list[Any] = [Run(i, str(i), None) for i in range(3)]  # type: ignore[arg-type]
    plan: Any = Plan(None, runs, [{}, {}, {}], 0, "simulator", False)  # type: ignore[arg-type]
    rows = {"0": {"strategy.x": "top-k"}, "1": {"strategy.x": 0.5, "updates": 1}, "2": {"updates": 2.5}}
    found = table.frame(plan, rows)
    assert table.rows(found)[1]["strategy.x"] == "0.5"
    assert found["updates"].tolist()[1:] == [1.0, 2.5]
    assert table.rows(found)[2]["strategy.x"] is None


def test_presets_are_told_by_the_names_that_the_file_has_for_them(tmp_path: Path) -> None:
    compute = "compute: {time: {distribution: constant, value: 10 ms}}"
    for name, rate in (("slow", "1 Mbit/s"), ("fast", "1 Gbit/s")):
        (tmp_path / f"{name}.yaml").write_text(f"{{workers: 2, network: {{bandwidth: {rate}}}, {compute}}}")
    file = tmp_path / "swept.yaml"
    clusters = "sweep: {cluster: [slow.yaml, {preset: fast.yaml}], workload.batch_size: [8, 16]}\n"
    file.write_text(SIZES + clusters)
    out = tmp_path / "out"
    found = lockstep.sweep(file, jobs=1, out=out)
    assert found["cluster.preset"].tolist() == ["slow"] * 2 + ["fast"] * 2
    assert series.varied(found) == ["cluster.preset", "workload.batch_size"]
    assert [each.name for each in series.lines(found, "cluster.preset")] == ["fast", "slow"]
    gathered = report.gather(out)
    assert not gathered.runs["command"].str.contains("preset").any()
    keys = points.varied(gathered.runs, ["cluster", "workload.batch_size"])
    assert keys == ["strategy.name", "cluster.preset", "cluster.workers", "workload.batch_size"]
    names = [point.name for point in points.points(gathered.runs, keys)]
    assert names[0] == "asynchronous with slow, 2 workers, batch size 8"


@pytest.mark.slow
def test_the_table_says_what_limits_each_point_where_it_fits(swept: Path, command: Lockstep) -> None:
    shown = fine(command("sweep", swept, "--jobs", 1))
    head = next(line for line in shown.splitlines() if "samples/s" in line)
    assert "bottleneck" in head
    assert "speedup" in head
    assert "computing" in shown


@pytest.mark.slow
@pytest.mark.parametrize(("width", "missing"), [(60, True), (80, True), (120, False)])
def test_the_table_fits_the_terminal(
    width: int, missing: bool, command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cell is cut or broken; what has no room is named."""
    from rich.console import Console

    monkeypatch.setattr("lockstep.terminal._console", lambda: Console(width=width))
    vary = "sweep={strategy.name: [staleness-aware, ssp], cluster.workers: [2, 3]}"
    shown = fine(
        command("sweep", "sizes-only", "--set", vary, "--set", "stop.steps=4", "--seeds", 3, "--jobs", 1)
    )
    title, above, head, *_ = shown.splitlines()
    assert title.rstrip() == "sizes-only: means and 95% intervals of 3 runs"
    assert ["mean" in above, *head.split()[:3]] == [True, "point", "strategy", "workers"]
    assert "…" not in shown
    table = shown[: shown.index("Not shown" if missing else "Best:")]
    assert all(len(line.rstrip()) <= width for line in table.splitlines())
    assert len(table.splitlines()) == 4 + 4
    assert ("\nNot shown for want of width: speedup" in shown) == missing


def test_a_folder_with_something_else_is_refused(swept: Path, tmp_path: Path, command: Lockstep) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    ended = command("sweep", swept, "--out", tmp_path / "full")
    assert ended.status == 2
    assert "has something else than a sweep in it; give another folder" in ended.err
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "simulater"], "--engine: must be simulator or executor, not 'simulater'"),
        (["--testbed"], "--testbed: is for real runs; say --engine executor too"),
        (["--backend", "spark"], "--backend: must be joblib, dask, ray, not 'spark'"),
        (["--backend", "dask"], "--scheduler: say where the cluster is, such as tcp://"),
        (["--backend", "dask", "--jobs", "2"], "--jobs: is for joblib"),
        (["--scheduler", "tcp://x:1"], "--scheduler: is for dask and ray; say --backend too"),
        (["--engine", "executor", "--jobs", "2"], "--jobs: is for simulations"),
        (["--engine", "executor", "--backend", "dask"], "--backend: is for simulations"),
        (["--keep-records", "all"], "--keep-records: needs a folder to keep them in; give --out"),
        (["--keep-records", "0,4"], "--keep-records: must be all, or points from 0 to 3, not '0,4'"),
        (["--keep-records", "first"], "--keep-records: must be all, or points from 0 to 3, not 'first'"),
        (["--set", "sweep.cluster.workers=[0]"], "sweep.cluster.workers[0]: must be at least 1, not 0"),
        (["--seeds", "0"], "invalid value for '--seeds'"),
    ],
)
def test_bad_input(swept: Path, tmp_path: Path, command: Lockstep, options: list[str], said: str) -> None:
    ended = command("sweep", swept, *options)
    assert ended.status == 2
    assert said in ended.err
    assert ended.out == ""
    assert len(ended.err.splitlines()) == 1


def test_a_missing_package_is_named(
    swept: Path, tmp_path: Path, command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, module in (("dask", "distributed"), ("ray", "ray")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        ended = command("sweep", swept, "--backend", name, "--scheduler", "x:1", "--out", tmp_path / "out")
        assert ended.status == 2
        assert f"{name} is not installed; pip install 'lockstep[{name}]'" in ended.err
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


def test_a_scenario_without_a_sweep_is_one_point(sizes_only: Path) -> None:
    assert len(sweep(plan(sizes_only), here).table) == 1
