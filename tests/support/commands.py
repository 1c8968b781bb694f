"""Real `lockstep run` commands that a test can strike at, and what is left of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd

import lockstep
from tests.support import command_line
from tests.support.command_line import Ended
from tests.support.forked import Forked
from tests.support.pace import slowness

SLOWNESS = slowness()
HANGS = round(150 * SLOWNESS)  # s; nothing takes that long, even on a machine that does something else too
SOON = 8 * SLOWNESS  # s; it is 1 to 2 where nothing else runs
INSTALLED = Path(sys.executable).with_name("lockstep")
COMMAND = """
import contextlib, os, pathlib
from lockstep import cli, terminal

@contextlib.contextmanager
def progress(doing, quiet):
    yield lambda fraction: pathlib.Path(os.environ["PROGRESS"]).write_text(str(fraction))

terminal.progress = progress
cli.main()
"""
LONG = """
name: long
cluster:
  workers: 3
  servers: 2
  compute: {time: {distribution: constant, value: 20 ms}}
workload: {problem: quadratic}
strategy: asynchronous
stop: {time: 10 min}
"""


def processes(session: int) -> dict[int, int]:
    """The processes of a session, oldest first, and their parents; what waits to be reaped does not count."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        state, parent, _, its_session, started = fields[0], *map(int, (*fields[1:4], fields[19]))
        if its_session == session and state != "Z":
            found[int(entry.name)] = (started, parent)
    order = sorted(found, key=lambda pid: (found[pid][0], pid))
    return {pid: found[pid][1] for pid in order}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], Any], seconds: float) -> Any:
    """Wait for a condition; what it was in the end."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


def nodes(records: pd.DataFrame | None, event: str) -> set[int]:
    """Who has records of this event."""
    return set() if records is None else set(records.loc[records["event"] == event, "node"])


def wait_until_on_disk(out: Path, **events: set[int]) -> None:
    """Wait until a run has written records of these events by these nodes: what a SIGKILL cannot take.

    A process writes twice a second, and a command is under way as soon as one of its nodes is.
    """

    def written() -> bool:
        try:
            records = lockstep.records(out)
        except lockstep.ScenarioError:
            return False
        return all(nodes(records, event) >= who for event, who in events.items())

    assert until(written, HANGS), f"no records in {out} of some of {events}"


class Command:
    """A `lockstep run` in a session of its own, and with a folder of its own for temporary files.

    `cold`: as a user starts it, from nothing, and not forked from what has imported its modules.
    """

    def __init__(self, folder: Path, *options: str, scenario: str = LONG, cold: bool = False) -> None:
        self.out, self.temporary, self.progress = folder / "out", folder / "tmp", folder / "progress"
        self.temporary.mkdir(parents=True)
        self.began = time.monotonic()
        self.started_s = 0.0
        self.stdout, self.stderr = folder / "stdout", folder / "stderr"
        file = folder / "long.yaml"
        file.write_text(scenario)
        environment = {**os.environ, "TMPDIR": str(self.temporary), "PROGRESS": str(self.progress)}
        arguments = ["run", str(file), "--json", "--out", str(self.out), *options]
        self.process: subprocess.Popen[bytes] | Forked
        if not cold:
            self.process = Forked(COMMAND, arguments, environment, self.stdout, self.stderr)
            return
        with open(self.stdout, "w") as stdout, open(self.stderr, "w") as stderr:
            self.process = subprocess.Popen(
                [INSTALLED, *arguments], env=environment, stdout=stdout, stderr=stderr, start_new_session=True
            )

    def wait_until_under_way(self) -> None:
        assert until(lambda: self.progress.exists() or self.process.poll() is not None, HANGS)
        assert self.process.poll() is None, self.stderr.read_text()
        self.started_s = time.monotonic() - self.began

    def ranks(self) -> list[int]:
        """The processes of the run in the order of their ranks: those that another one was forked from."""
        found = processes(self.process.pid)
        return [pid for pid, parent in found.items() if found.get(parent) == self.process.pid]

    def ends(self, after: float = 0) -> tuple[int, str]:
        """Exit status, and standard error; soon `after` s, and nothing left but PyTorch's cache folder."""
        soon = max(SOON, self.started_s)  # others may be starting just now, as this did
        status = self.process.wait(after + soon)
        assert until(lambda: not processes(self.process.pid), soon), processes(self.process.pid)
        assert not [path.name for path in self.temporary.iterdir() if "torchinductor" not in path.name]
        assert self.stdout.read_text() == ""
        return status, self.stderr.read_text()

    def kept(self) -> pd.DataFrame:
        assert [path.name for path in self.out.iterdir()] == ["incomplete"]
        kept = self.out / "incomplete"
        names = ["records.parquet", "scenario.yaml", "status.json"]
        assert sorted(path.name for path in kept.iterdir()) == names
        assert lockstep.load(kept / "scenario.yaml").name in ("long", "cut")
        return pd.read_parquet(kept / "records.parquet")

    def kill(self) -> None:
        for pid in processes(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(HANGS)


def forked(folder: Path, *arguments: object) -> Ended:
    """How `lockstep` ends with these arguments in a process of its own, whose start is not the point."""
    said = folder / "stdout", folder / "stderr"
    process = Forked(command_line.COMMAND[-1], [*map(str, arguments)], os.environ, *said)
    status = process.wait(HANGS)
    return Ended(status, *(file.read_text() for file in said))


class Commands(dict[str, Command]):
    """Those that have been asked for, under way."""

    def __init__(self, folder: Path, options: Mapping[str, Sequence[str]], scenario: str) -> None:
        super().__init__()
        self._begin = lambda name: Command(folder / name, *options[name], scenario=scenario)

    def __missing__(self, name: str) -> Command:
        self[name] = self._begin(name)
        self[name].wait_until_under_way()
        return self[name]


@contextmanager
def commands(
    folder: Path, options: Mapping[str, Sequence[str]], scenario: str = LONG
) -> Iterator[dict[str, Command]]:
    """Each starts when it is asked for, and is killed at the end."""
    found = Commands(folder, options, scenario)
    try:
        yield found
    finally:
        for command in found.values():
            command.kill()
