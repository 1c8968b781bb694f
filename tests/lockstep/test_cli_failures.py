"""Commands whose runs fail or are interrupted, and `validate`."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep import cli
from lockstep.scenarios import load
from tests.support.command_line import Lockstep, fine
from tests.support.json_keys import KEYS, check_types


def raising(error: BaseException) -> Callable[..., Any]:
    def engine(*_: Any, **__: Any) -> Any:
        raise error

    return engine


def test_a_simulation_that_fails(
    command: Lockstep, sizes_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lockstep.simulator import engine, errors

    error = errors.SimulationError("the nodes wait for each other for ever")
    monkeypatch.setattr(engine, "simulate", raising(error))
    ended = command("simulate", sizes_only, "--json", "--out", tmp_path / "out")
    assert (ended.status, ended.out) == (3, "")
    assert ended.err == "error: the nodes wait for each other for ever\n"
    assert not (tmp_path / "out").exists()


def closed_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize(
    ("opened", "status", "said"),
    [
        (lambda: os.open("/dev/full", os.O_WRONLY), 3, "error: output: No space left on device\n"),
        (closed_pipe, 1, ""),
    ],
    ids=["full", "head"],
)
@pytest.mark.parametrize("option", [["--json"], []], ids=["json", "table"])
def test_output_that_nobody_takes(
    opened: Callable[[], int], status: int, said: str, option: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["lockstep", "profiles", *option])
    with open(opened(), "w", encoding="ascii") as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        with pytest.raises(SystemExit) as leave:
            cli.main()
    assert (leave.value.code, capsys.readouterr().err) == (status, said)


def test_letters_that_a_terminal_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["lockstep", "strategies"])
    stdout = TextIOWrapper(BytesIO(), encoding="ascii")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        with pytest.raises(SystemExit) as leave:
            cli.main()
    assert leave.value.code == 0
    assert b"?" in stdout.detach().getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def some_records(sizes_only: Path) -> pd.DataFrame:
    return lockstep.simulate(lockstep.load(sizes_only)).records.head(5)


@pytest.mark.real  # the fork server
def test_a_run_that_fails_keeps_what_was_measured(
    command: Lockstep,
    learning: Path,
    tmp_path: Path,
    some_records: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from lockstep.executor import launch

    out = tmp_path / "out"
    fine(command("simulate", learning, "--out", out))
    error = launch.RunFailed("worker 1 (rank 1) died: it was tired", some_records, "Traceback …\n")
    monkeypatch.setattr(launch, "execute", raising(error))
    ended = command("run", learning, "--quiet", "--out", out, "--set", "seed=77")
    assert (ended.status, ended.out) == (3, "")
    assert ended.err.splitlines() == [
        f"What was measured until then: {out / 'incomplete/records.parquet'}",  # the executor writes it
        "Traceback …",
        "error: worker 1 (rank 1) died: it was tired",
    ]
    assert json.loads((out / "result.json").read_text())["seed"] == 5  # the result before is still there


@pytest.mark.real  # the fork server
def test_an_interrupted_run(
    command: Lockstep,
    sizes_only: Path,
    tmp_path: Path,
    some_records: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from lockstep.executor import launch

    out = tmp_path / "out"
    monkeypatch.setattr(launch, "execute", raising(launch.RunInterrupted(some_records)))
    ended = command("run", sizes_only, "--quiet", "--out", out)
    assert (ended.status, ended.out) == (130, "")
    assert ended.err.splitlines() == [
        f"What was measured until then: {out / 'incomplete/records.parquet'}",
        "error: interrupted",
    ]


def test_a_full_disk_is_one_line(
    command: Lockstep, sizes_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(28, "No space left on device", "records.parquet")
    monkeypatch.setattr("lockstep.analysis.parquet.write", raising(error))
    ended = command("simulate", sizes_only, "--quiet", "--out", tmp_path / "out")
    assert (ended.status, ended.out) == (3, "")
    assert ended.err == "error: records.parquet: No space left on device\n"


def test_a_bug_is_not_dressed_up(sizes_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lockstep.simulator import engine

    monkeypatch.setattr(engine, "simulate", raising(RuntimeError("a bug")))
    monkeypatch.setattr(sys, "argv", ["lockstep", "simulate", str(sizes_only)])
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main()


# --- validate -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loopback() -> Iterator[None]:
    """A loopback measured by somebody else: it takes seconds, and other tests look at it."""
    from lockstep import loopback

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loopback, "measure_loopback", lambda parameters: loopback.Loopback(1e-4, 1e9))
        yield


ERRORS = {
    "throughput", "duration_s", "updates_per_s", "speedup", "loss", "time_to_target_s", "staleness_mean",
    "staleness_ks",
}  # fmt: skip


@pytest.mark.real
@pytest.mark.usefixtures("loopback")
def test_validate_json(command: Lockstep, learning: Path) -> None:
    ended = command("validate", learning, "--json")
    found = json.loads(fine(ended))
    assert ended.err == ""
    assert list(found) == ["predicted", "measured", "error"]
    for side, engine in (("predicted", "simulator"), ("measured", "executor")):
        check_types(found[side], KEYS, null=("accuracy", "target", "target_metric", "time_to_target_s"))
        assert found[side]["engine"] == engine
    error = found["error"]
    assert set(error) == ERRORS
    a, b = found["predicted"]["throughput"], found["measured"]["throughput"]
    assert error["throughput"] == pytest.approx((a - b) / b)
    assert 0 <= error["staleness_ks"] <= 1
    assert error["time_to_target_s"] is None


@pytest.mark.real
@pytest.mark.usefixtures("loopback")
def test_an_interrupted_validate_keeps_what_it_has(
    command: Lockstep, learning: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lockstep.run

    def run(
        scenario: lockstep.Scenario, progress: object, *, testbed: bool, out: Path | None, **_: object
    ) -> lockstep.Result:
        if scenario.strategy.name == "all-reduce":
            raise KeyboardInterrupt
        return real(scenario, out=out)

    monkeypatch.setattr("lockstep.run", run)
    out = tmp_path / "out"
    ended = command(
        "validate", learning, "--strategy", "synchronous", "--strategy", "all-reduce", "--out", out
    )
    assert ended.status == 130
    assert (out / "synchronous" / "measured" / "result.json").exists()
    assert (out / "all-reduce" / "predicted" / "result.json").exists()
    assert len(json.loads((out / "validation.json").read_text())["points"]) == 1


@pytest.mark.real
@pytest.mark.usefixtures("loopback")
def test_validate_several_strategies(command: Lockstep, learning: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = "synchronous", "all-reduce"
    flags = [part for name in (*names, names[0]) for part in ("--strategy", name)]
    text = fine(command("validate", learning, *flags, "--out", out))
    assert text.startswith("Predicting for this machine's loopback, measured just now: a message costs ")
    files = {"validation.png", "validation.svg", "validation.json"}
    assert {path.name for path in out.iterdir()} == {*files, *names}
    for name in names:
        for side in ("predicted", "measured"):
            kept = {path.name for path in (out / name / side).iterdir()}
            own = "utilisation.parquet" if side == "predicted" else "interleaving.parquet"
            assert kept == {"scenario.yaml", "result.json", "records.parquet", "parameters.npy", own}
            assert load(out / name / side / "scenario.yaml").strategy.name == name
    points = json.loads((out / "validation.json").read_text())["points"]
    assert [point["predicted"]["strategy"] for point in points] == list(names)
    assert (out / "validation.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "validation.svg").read_text()
