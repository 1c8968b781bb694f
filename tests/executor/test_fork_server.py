"""The fork server of a run: begun ahead of it, without garbage, and gone if the run does not come to be."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.calibration.process import alone
from lockstep.executor import forking
from lockstep.executor.forking import ahead
from lockstep.workloads import modules
from tests.support.commands import HANGS, processes, until

COMMAND = "from lockstep.cli import main; main()"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is asked of a fork server, in order; none is started."""
    found: list[Any] = []
    monkeypatch.setattr(forkserver, "set_forkserver_preload", lambda names: found.append({*names}))
    monkeypatch.setattr(forkserver, "ensure_running", lambda: found.append("runs"))
    monkeypatch.setattr(forking, "kill", lambda: found.append("killed"))
    monkeypatch.setattr(forking.resource_tracker, "ensure_running", lambda: None)
    monkeypatch.setattr(forking, "_ahead", False)
    monkeypatch.setattr(forking, "pid", lambda: None)
    return found


def test_one_that_was_begun_ahead_goes_on_if_it_imports_what_is_learned(asked: list[Any]) -> None:
    quadratic = ["workload={problem: quadratic}", "stop={steps: 1}"]
    for overrides in ([], ["workload.model=cnn"], quadratic, ["workload.learning=false"]):
        workload = lockstep.load("quickstart", overrides).workload
        with ahead():
            forking.start(modules(workload))
        assert "killed" not in asked, overrides


def test_one_that_was_begun_ahead_is_begun_again_for_what_takes_long_to_import(asked: list[Any]) -> None:
    """Else each process of the run would import it for itself."""
    slow = modules(lockstep.load("quickstart", ["workload.model=resnet18"]).workload)
    with ahead():
        forking.start(slow)
        forking.start(slow)  # and only once
    assert [each for each in asked if isinstance(each, str)] == ["runs", "killed", "runs", "runs"]
    assert {*slow, "lockstep.executor.process"} <= asked[3]
    forking.start(["another"])  # of a later run in the same process: others may live on the one that there is
    assert asked.count("killed") == 1


def test_one_that_there_is_already_stays(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "pid", lambda: 4242)
    with pytest.raises(ValueError, match="no"), ahead():
        raise ValueError("no")
    assert not asked


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_one_that_was_begun_ahead_ends_if_the_run_does_not_come_to_be(
    asked: list[Any], error: type[BaseException]
) -> None:
    with pytest.raises(error), ahead():
        raise error
    assert asked[-1] == "killed"


def test_an_interruption_that_a_library_makes_an_error_of_is_one(asked: list[Any]) -> None:
    """As imports do."""

    def loads() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt as interrupt:
            raise ImportError(f"{interrupt!r}") from None

    def drops() -> None:
        with suppress(BaseException):
            os.kill(os.getpid(), signal.SIGINT)

    for load in (loads, drops):
        with pytest.raises(KeyboardInterrupt), ahead():
            load()
        assert asked[-1] == "killed"


def _garbage() -> tuple[bool, int]:
    return gc.isenabled(), gc.get_freeze_count()


@pytest.mark.real
def test_its_processes_look_for_garbage_but_not_among_its_modules() -> None:
    enabled, frozen = alone(_garbage)
    assert enabled
    assert frozen > 100_000


def _cold(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.Popen(command, start_new_session=True, text=True, stdout=-1, stderr=-1, **options)


@pytest.mark.real
@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda _: None, id="refused"),
        pytest.param(lambda run: run.send_signal(signal.SIGTERM), id="told to end"),
        pytest.param(lambda run: run.kill(), id="killed"),
    ],
)
def test_nothing_is_left_of_a_run_that_does_not_come_to_be(
    end: Callable[[subprocess.Popen[str]], None], tmp_path: Path
) -> None:
    run = _cold("run", "no-such-scenario", env={**os.environ, "TMPDIR": str(tmp_path)})
    assert until(lambda: len(processes(run.pid)) > 2 or run.poll() is not None, HANGS)
    end(run)
    said = run.communicate(timeout=HANGS)[1]
    assert until(lambda: not processes(run.pid), HANGS)
    if run.returncode != -signal.SIGKILL:
        assert run.returncode in (2, 130)
        assert said.splitlines()[-1].startswith("error: ")
        assert "Traceback" not in said
    assert not [path.name for path in tmp_path.iterdir()]
