"""Forked commands of tests (tests/support/forked.py) are those that `python -c` starts."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import HANGS, processes, until
from tests.support.forked import Forked

pytestmark = pytest.mark.real

# What a program finds out about itself, and how a process of a run of its own does.
TELLS = """
import atexit, json, os, signal, sys, tempfile
from multiprocessing import active_children, current_process, get_start_method, parent_process

def told():
    pid = os.getpid()
    status = open("/proc/self/status").read().splitlines()
    return {
        "arguments": sys.argv, "folder": os.getcwd(), "environment": dict(sorted(os.environ.items())),
        "leads": [os.getpgid(0) == pid, os.getsid(0) == pid], "input": os.read(0, 9).decode(),
        "signals": [line for line in status if line.startswith(("SigBlk", "SigIgn"))],
        "handlers": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
        "processes": [active_children(), parent_process(), get_start_method(allow_none=True)],
        "temporary": tempfile.gettempdir(), "module": __name__, "mask": os.umask(0o22),
    }

print(json.dumps(told()))
print(*sys.argv[1:], file=sys.stderr)
atexit.register(print, "registered")
"""
ENDS = {
    "falls off": ("pass", 0),
    "exits": ("raise SystemExit(3)", 3),
    "exits with none": ("import sys; sys.exit()", 0),
    "exits with words": ("raise SystemExit('words')", 1),
    "fails": ("1 / 0", 1),
    "is killed": ("import os; os.kill(os.getpid(), 9)", -9),
    "is told to end": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
    "leaves at once": ("import os; os._exit(7)", 7),
    "is the command": ("from lockstep.cli import main; main()", 2),
    "leaves a thread": ("from threading import Timer; Timer(0.1, print, ['late']).start()", 0),
}
HAS_A_CHILD = """
import signal, sys
from multiprocessing import get_context
from pathlib import Path
from lockstep.executor.fork_server import start_fork_server
start_fork_server()
child = get_context("forkserver").Process(target=signal.sigwait, args=([signal.SIGINT, signal.SIGTERM],))
child.start()
Path(sys.argv[1]).touch()
child.join()
"""
Start = Callable[..., Any]


def cold(
    program: str, arguments: list[str], environment: dict[str, str], stdout: Path, stderr: Path
) -> subprocess.Popen[bytes]:
    with open(stdout, "w") as out, open(stderr, "w") as err:
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            preexec_fn=_as_in_front,
        )  # fmt: skip


def _as_in_front() -> None:
    """As a command is begun; these tests may be a job of what ignores SIGINT, or blocks signals."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def ended(start: Start, tmp_path: Path, program: str, *arguments: str) -> tuple[int, str, str]:
    out, err = tmp_path / "out", tmp_path / "err"
    process = start(program, list(arguments), {**os.environ, "TMPDIR": str(tmp_path), "MORE": "é"}, out, err)
    status = process.wait(HANGS)
    return status, out.read_text(), err.read_text()


def test_it_finds_what_a_command_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("run", "-h", "two words", "--set", "a={b: 'c'}", "")
    forked = ended(Forked, tmp_path, TELLS, *arguments)
    assert forked == ended(cold, tmp_path, TELLS, *arguments)
    assert forked[1].endswith("registered\n")


@pytest.mark.parametrize("how", ENDS)
def test_it_ends_as_a_command_ends(how: str, tmp_path: Path) -> None:
    program, status = ENDS[how]
    forked, its = (ended(start, tmp_path, program, "run", "no-such-file.yaml") for start in (Forked, cold))
    assert forked[:2] == its[:2]
    assert forked[0] == status
    assert forked[2].splitlines()[-1:] == its[2].splitlines()[-1:]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
@pytest.mark.parametrize(
    "start", [pytest.param(Forked, id="forked"), pytest.param(cold, id="cold", marks=pytest.mark.nightly)]
)
def test_its_processes_are_its_own_and_go_with_it(start: Start, number: int, tmp_path: Path) -> None:
    begun, environment = tmp_path / "begun", {**os.environ, "TMPDIR": str(tmp_path)}
    process = start(HAS_A_CHILD, [str(begun)], environment, tmp_path / "out", tmp_path / "err")
    assert until(begun.exists, HANGS)
    itself, *others = (found := processes(process.pid))
    assert itself == process.pid
    assert [found[pid] for pid in others[:2]] == [itself, itself]  # a resource tracker and a fork server
    assert [found[pid] for pid in others[2:]] == [others[1]]
    os.killpg(process.pid, number)
    process.wait(HANGS)
    assert until(lambda: not processes(process.pid), HANGS)
