"""Scalars for TensorBoard, read back with TensorBoard's own reader."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.analysis import tensorboard
from lockstep.scenarios import ScenarioError, dump
from tests.support.command_line import Lockstep, fine
from tests.support.scenarios import scenario

LEARNING = {"workload": {"problem": "logistic", "batch_size": 8}, "stop__steps": 20}


def read(path: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def test_curves_against_updates_and_virtual_time(tmp_path: Path) -> None:
    result = lockstep.simulate(scenario(**LEARNING))
    found = read(result.to_tensorboard(tmp_path))
    curve = result.curve
    for tag in ("loss", "accuracy"):
        events = found.Scalars(tag)
        assert [event.step for event in events] == curve["version"].tolist()
        assert [event.wall_time for event in events] == curve["time"].tolist()
        assert np.allclose([event.value for event in events], curve[tag], rtol=1e-6)


@pytest.mark.parametrize("strategy", ["asynchronous", "synchronous", "all-reduce", "d-psgd", "local-sgd"])
@pytest.mark.parametrize("servers", [1, 3])
def test_windows_add_up_to_the_figures_of_the_run(strategy: str, servers: int, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"strategy__name": strategy, "cluster__servers": servers}
    slow = {"bandwidth": "1 MB/s", "latency": "1 ms"}
    result = lockstep.simulate(scenario(**changes, stop__steps=40, cluster__network=slow))
    found, metrics = read(result.to_tensorboard(tmp_path)), result.metrics
    throughput = found.Scalars("throughput")
    assert len(throughput) == tensorboard.WINDOWS
    assert np.mean([event.value for event in throughput]) == pytest.approx(metrics["throughput"], rel=1e-6)
    assert throughput[-1].wall_time == pytest.approx(metrics["duration_s"])
    assert throughput[-1].step == metrics["updates"]
    stale = [event.value for event in found.Scalars("staleness")]
    assert min(stale) <= metrics["staleness"]["mean"] <= max(stale)


def test_both_engines_write_the_same_tags(engine: Callable[..., lockstep.Result], tmp_path: Path) -> None:
    result = engine(scenario(**LEARNING, cluster__workers=2))
    path = result.to_tensorboard(tmp_path)
    assert path.parent.name == {"simulator": "predicted", "executor": "measured"}[result.engine]
    found = read(path)
    assert set(found.Tags()["scalars"]) == {"loss", "accuracy", "throughput", "staleness"}
    (text,) = found.Tensors("scenario/text_summary")
    lines = text.tensor_proto.string_val[0].decode().splitlines()
    assert "".join(f"{line[4:]}\n" for line in lines) == dump(result.scenario)


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (
        lockstep.simulate(scenario(**LEARNING)).to_tensorboard(tmp_path / name) for name in ("a", "b")
    )
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_the_command_writes_in_the_place_of_an_earlier_run(
    command: Lockstep, sizes_only: Path, tmp_path: Path
) -> None:
    out = tmp_path / "board"
    for _ in range(2):
        fine(command("simulate", sizes_only, "--tensorboard", out, "--quiet"))
    (path,) = [path for path in out.rglob("*") if path.is_file()]
    assert set(read(path).Tags()["scalars"]) == {"throughput", "staleness"}


def test_without_the_package_nothing_is_computed(
    command: Lockstep, sizes_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    monkeypatch.setattr(lockstep, "simulate", pytest.fail)
    ended = command("simulate", sizes_only, "--tensorboard", tmp_path / "board")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (
        "error: --tensorboard: tensorboard is not installed; pip install 'lockstep[tensorboard]'\n"
    )
    assert not (tmp_path / "board").exists()


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_computed(
    command: Lockstep, sizes_only: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    ended = command("simulate", sizes_only, "--tensorboard", tmp_path / "file" / "board")
    assert ended.status == 2
    assert ended.err.startswith("error: --tensorboard: cannot write to")


def test_python_says_that_the_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(ScenarioError, match="is not installed"):
        lockstep.simulate(scenario()).to_tensorboard(tmp_path)
