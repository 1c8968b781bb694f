"""A real run of a user's task that was killed goes on, and ends with the parameters of one that was not."""

import json
from pathlib import Path

import numpy as np
import pytest

import lockstep
from tests.support.command_line import Lockstep, fine
from tests.support.failing import document, killed_at
from tests.support.tasks import DIGITS, written

READ = DIGITS.replace("data=TensorDataset", "data=lambda x, y: list(zip(x, y))")
READ = READ.replace("data(x[1437:], y[1437:])", "data(x[1437:1469], y[1437:1469])")  # read at each evaluation


@pytest.mark.real
@pytest.mark.parametrize("loaders", [0, 1])
def test_it_ends_with_the_same_parameters(
    loaders: int, tmp_path: Path, command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With samples that are read one by one; what reads them ahead begins where the run goes on."""
    monkeypatch.chdir(written(tmp_path, READ))
    workload = {"task": "my_task:digits", "batch_size": 32, "loaders": loaders}
    compute = {"time": {"distribution": "constant", "value": "50 ms"}}
    if loaders:
        compute["loading"] = {"distribution": "constant", "value": "1 ms"}
    file, out = tmp_path / "mine.yaml", tmp_path / "out"
    file.write_text(json.dumps(document(workload=workload, cluster={"compute": compute})))
    killed_at(file, out, version=10)
    fine(command("run", "--resume", out, "--quiet"))
    simulated = lockstep.simulate(lockstep.load(file))
    assert np.array_equal(np.load(out / "parameters.npy"), simulated.parameters)
    metrics = json.loads((out / "result.json").read_text())
    assert metrics["samples"] == simulated.metrics["samples"]
    assert metrics["failures"] == 1


@pytest.mark.real
def test_it_does_not_go_on_with_other_code(
    tmp_path: Path, command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written(tmp_path, DIGITS))
    file, out = tmp_path / "mine.yaml", tmp_path / "out"
    file.write_text(json.dumps(document(workload={"task": "my_task:digits", "batch_size": 32})))
    killed_at(file, out, version=5)
    written(tmp_path, DIGITS + "\n    # better\n")
    ended = command("run", "--resume", out)
    assert ended.status == 2
    assert "has changed since this was written" in ended.err
    assert "put the code back: a run goes on, and is replayed, with what it was made with" in ended.err
    assert len(lockstep.records(out))  # what was measured is there all the same
