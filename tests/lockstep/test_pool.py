"""The pool of processes on this machine, of sweeps, `claims` and the suite of `validate`: joblib's own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from joblib import Parallel, delayed

import lockstep
from lockstep import cli
from tests.support import ROOT
from tests.support.commands import HANGS, SOON, processes, until
from tests.support.scenarios import scenario

COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell in the background has taken away
from lockstep.cli import main
main()
"""
COMMANDS = {
    signal.SIGKILL: ["claims"],
    signal.SIGINT: ["validate", "--suite", "--measured", str(ROOT / "benchmarks" / "truth")],
}


@pytest.mark.slow
def test_joblib_can_follow_a_sweep() -> None:
    assert len(lockstep.sweep(scenario(sweep={"cluster.workers": [1, 2]}), jobs=2)) == 2
    assert Parallel(n_jobs=2)(delayed(abs)(number) for number in (-1, 2)) == [1, 2]


def hears(pid: int) -> bool:
    """Whether a process would hear Ctrl-C: it neither blocks nor ignores it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigBlk", "SigIgn"))]
    return not any(mask >> signal.SIGINT - 1 & 1 for mask in masks)


@pytest.mark.real
@pytest.mark.skipif(os.cpu_count() == 1, reason="one core has no pool")
def test_what_is_killed_leaves_no_process(tmp_path: Path) -> None:
    started = {}
    for number, arguments in COMMANDS.items():
        with (tmp_path / f"{number.name}.txt").open("w") as stderr:
            started[number] = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *arguments, "--quiet", "--out", str(tmp_path / number.name)],
                stderr=stderr, start_new_session=True,
            )  # fmt: skip
    try:
        for process in started.values():  # two workers, and two that clean up after them
            assert until(lambda pid=process.pid: len(processes(pid)) > 4, HANGS)
            children = [pid for pid, parent in processes(process.pid).items() if parent == process.pid]
            assert not [pid for pid in children if hears(pid)]
        os.killpg(started[signal.SIGINT].pid, signal.SIGINT)
        started[signal.SIGKILL].kill()
        for process in started.values():
            process.wait(SOON)
            assert until(lambda pid=process.pid: not processes(pid), SOON), processes(process.pid)
    finally:
        for process in started.values():
            for pid in processes(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()
    assert started[signal.SIGINT].returncode == 130
    assert (tmp_path / "SIGINT.txt").read_text() == "error: interrupted\n"


LEAVE = """
import os
from joblib.externals.loky.backend import resource_tracker
from lockstep.pool import pool
with pool(2) as submit:
    print(submit(abs, -1).result())
resource_tracker.register("/loky-gone", "semlock")
os._exit(0)
"""


@pytest.mark.real
def test_what_is_cleaned_up_afterwards_is_not_told() -> None:
    ended = subprocess.run([sys.executable, "-c", LEAVE], capture_output=True, text=True, timeout=HANGS)
    assert (ended.stdout, ended.stderr) == ("1\n", "")


def test_sigterm_is_as_ctrl_c(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli, "app", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit) as leave:
        cli.main()
    assert (leave.value.code, capsys.readouterr().err) == (130, "error: interrupted\n")
