"""Files that somebody else has written: reading them runs nothing."""

import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.analysis import saved
from lockstep.scenarios import ScenarioError, dump
from tests.support import ROOMS, ROOT
from tests.support.command_line import Lockstep
from tests.support.scenarios import scenario

SWEEP = "\nsweep:"


class Planted:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize(
    "name", ["parameters.npy", "records.parquet", "utilisation.parquet", "result.json", "scenario.yaml"]
)
def test_a_strangers_results_run_nothing(tmp_path: Path, name: str) -> None:
    out, mark = tmp_path / "out", tmp_path / "mark"
    lockstep.simulate(scenario(workload={"problem": "quadratic"})).save(out)
    evil = Planted(mark)
    if name == "scenario.yaml":
        text = (out / name).read_text()
        (out / name).write_text(text + f"\nevil: !!python/object/apply:os.mkdir ['{mark}']\n")
    elif name == "parameters.npy":
        np.save(out / name, np.array([evil], dtype=object), allow_pickle=True)
    else:
        (out / name).write_bytes(pickle.dumps(evil))
    with pytest.raises(ScenarioError):
        saved.load(out)
    assert not mark.exists()


def test_code_beside_a_strangers_results_does_not_run(tmp_path: Path) -> None:
    """It would run beside a scenario that is asked for; and a mark says so if a test of it were none."""
    out, mark = tmp_path / "out", tmp_path / "mark"
    lockstep.simulate(scenario(workload={"problem": "quadratic"})).save(out)
    (out / "evil.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    file = out / "scenario.yaml"
    text = re.sub(r"workload:\n(  .*\n)*", "workload: {task: 'evil:f'}\n", file.read_text())
    file.write_text(text)
    for read in (saved.load, lockstep.replay):
        with pytest.raises(ScenarioError, match=r"no module evil in the current folder|cannot be replayed"):
            read(out)
    assert not mark.exists()
    with pytest.raises(ScenarioError, match="no function f"):
        lockstep.simulate(lockstep.load(file))
    assert mark.exists()


def test_a_report_runs_no_code_beside_a_strangers_sweep(tmp_path: Path, command: Lockstep) -> None:
    out, mark = tmp_path / "out", tmp_path / "mark"
    (tmp_path / "s.yaml").write_text(f"{dump(scenario()).partition(SWEEP)[0]}{SWEEP} {{seed: [1, 2]}}\n")
    lockstep.sweep(tmp_path / "s.yaml", out=out, jobs=1)
    (out / "evil.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    file = out / "scenario.yaml"
    text = re.sub(r"workload:\n(  .*\n)*", "workload: {task: 'evil:f'}\n", file.read_text())
    file.write_text(text)
    ended = command("report", out)
    assert ended.status == 2
    assert "the current folder" in ended.err
    assert not mark.exists()
    begun = tmp_path / "begun" / "incomplete"
    begun.mkdir(parents=True)
    (begun / "scenario.yaml").write_text(text)
    (begun / "evil.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    (begun / "status.json").write_text('{"why": "killed"}')
    ended = command("run", "--resume", begun.parent)
    assert ended.status == 2
    assert "the current folder" in ended.err
    assert not mark.exists()


def test_nothing_that_reads_files_can_unpickle() -> None:
    """Of the modules that a stranger's file, or a socket, comes to, none has a pickle in its text."""
    mentioned = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if any(
            word in path.read_text()
            for word in ("pickle.load", "import pickle", "marshal", "torch.load(", "dill")
        )
    }
    assert not mentioned


def test_a_strangers_profile_and_sweep_run_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    profile = tmp_path / "profile.yaml"
    profile.write_text(f"cluster: !!python/object/apply:os.mkdir ['{mark}']\n")
    with pytest.raises(ScenarioError):
        lockstep.load("quickstart", [f"cluster.profile={profile}"])
    out = tmp_path / "out"
    text = dump(scenario(stop={"steps": 2})).partition(SWEEP)[0]
    (tmp_path / "s.yaml").write_text(f"{text}{SWEEP} {{seed: [1, 2]}}\n")
    lockstep.sweep(tmp_path / "s.yaml", out=out, jobs=1)
    for name in ("points.jsonl", "results.parquet"):
        (out / name).write_bytes(pickle.dumps(Planted(mark)))
    table = lockstep.sweep(tmp_path / "s.yaml", out=out, jobs=1)
    assert list(table["status"]) == ["ok", "ok"]
    assert not mark.exists()
