"""Results that were damaged, mixed up or too many: nothing else is lost, and one line says what is wrong."""

import json
from pathlib import Path

import pandas as pd
import pytest

import lockstep
from lockstep.analysis.saved import load
from lockstep.recommendation.ranking import in_step
from lockstep.scenarios import ScenarioError
from lockstep.sweeping import running
from lockstep.sweeping.store import opened
from tests.support.command_line import Lockstep, fine
from tests.support.scenarios import SIZES


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    """A sweep's folder, of two runs."""
    file = tmp_path / "swept.yaml"
    file.write_text(SIZES + "sweep: {cluster.workers: [1, 2]}\n")
    lockstep.sweep(file, out=tmp_path / "out", jobs=1)
    return tmp_path / "out"


def test_a_damaged_line_costs_its_run_only(swept: Path) -> None:
    file = swept / "points.jsonl"
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"\x00" + first + b'{"run": "no status"}\n' + second)
    with opened(swept) as store:
        assert list(store.rows) == [json.loads(second)["run"]]
    assert len(file.read_bytes().splitlines()) == 3


def test_a_line_that_was_changed_is_noticed_and_its_run_made_again(
    swept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = swept / "points.jsonl"
    before = pd.read_parquet(swept / "results.parquet")
    first, second = file.read_text().splitlines()
    changed = json.loads(first)
    changed["throughput"] *= 2
    file.write_text(f"{json.dumps(changed)}\n{second}\n")
    again = lockstep.sweep(swept / "scenario.yaml", out=swept, jobs=1)
    pd.testing.assert_frame_equal(again, before)
    assert "points.jsonl: a line is not as written; what ran is made again" in capsys.readouterr().err


def test_a_line_that_was_cut_short_is_not_written_on(swept: Path) -> None:
    file = swept / "points.jsonl"
    file.write_bytes(file.read_bytes()[:-1])
    with opened(swept) as store:
        (kept,) = store.rows.values()
        store.keep({**kept, "run": "another"}, {})
    with opened(swept) as store:
        assert list(store.rows) == [kept["run"], "another"]


def test_seeds_without_end_are_refused(sizes_only: Path, command: Lockstep) -> None:
    ended = command("sweep", sizes_only, "--seeds", 10**12)
    assert (ended.status, "at most 100,000" in ended.err) == (2, True)


def test_warnings_of_a_sweep_are_said_once(sizes_only: Path, command: Lockstep) -> None:
    sets = ["--set", "sweep={strategy.rho: [1, 2]}", "--set", "strategy.name=asynchronous"]
    ended = command("sweep", sizes_only, *sets, "--jobs", 1)
    fine(ended)
    assert ended.err.count("strategy.rho means nothing to asynchronous") == 1
    assert "warning: points 0, 1: " in ended.err


@pytest.mark.parametrize("name", ["simulate", "recommend"])
def test_a_sweep_is_not_written_over(name: str, swept: Path, sizes_only: Path, command: Lockstep) -> None:
    before = {file.name: file.read_bytes() for file in swept.iterdir()}
    ended = command(name, sizes_only, "--out", swept)
    assert (ended.status, ended.err.count("has a sweep in it; give another folder")) == (2, 1)
    assert {file.name: file.read_bytes() for file in swept.iterdir()} == before


def test_a_report_is_a_file(swept: Path, command: Lockstep) -> None:
    ended = command("report", swept, "--out", swept)
    assert (ended.status, "is a folder; give a file" in ended.err) == (2, True)


@pytest.mark.parametrize("damage", ["[]", '{"speedup": 1, "throughput": 0}', "{"])
def test_a_damaged_result_is_said_in_a_line(damage: str, sizes_only: Path, tmp_path: Path) -> None:
    lockstep.simulate(lockstep.load(sizes_only)).save(tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text(damage)
    with pytest.raises(ScenarioError, match="its files cannot be read"):
        load(tmp_path / "run")


def test_another_table_is_no_record_of_a_run(sizes_only: Path, tmp_path: Path) -> None:
    lockstep.simulate(lockstep.load(sizes_only)).save(tmp_path / "run")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "run" / "records.parquet")
    with pytest.raises(ScenarioError, match="its files cannot be read"):
        load(tmp_path / "run")


@pytest.mark.parametrize("workers", [1, 2])
def test_one_worker_is_in_step_with_itself(workers: int, sizes_only: Path) -> None:
    sets = [f"cluster.workers={workers}", "strategy.name=asynchronous"]
    (row,) = lockstep.sweep(lockstep.load(sizes_only, sets), jobs=1).to_dict("records")
    assert in_step(row) == (workers == 1)


def test_a_report_of_a_sweep_of_which_all_runs_failed(
    sizes_only: Path, tmp_path: Path, command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("out of <memory>")

    monkeypatch.setattr(running, "simulated", failing)
    out = tmp_path / "out"
    assert command("sweep", sizes_only, "--jobs", 1, "--out", out).status == 3
    fine(command("report", out))
    page = (out / "report.html").read_text()
    assert "No run has come to its end." in page
    assert "out of &lt;memory&gt;" in page


@pytest.mark.slow
def test_records_out_of_order_are_put_in_order(sizes_only: Path, command: Lockstep, tmp_path: Path) -> None:
    fine(command("simulate", sizes_only, "--out", tmp_path / "run"))
    drawn = fine(command("plot", tmp_path / "run", "--out", tmp_path / "before", "--format", "png"))
    file = tmp_path / "run" / "records.parquet"
    records = pd.read_parquet(file)
    records.sample(frac=1, random_state=1).to_parquet(file, index=False)
    again = fine(command("plot", tmp_path / "run", "--out", tmp_path / "after", "--format", "png"))
    assert again == drawn.replace("before", "after")
    assert load(tmp_path / "run").records["end"].tolist() == records["end"].tolist()
