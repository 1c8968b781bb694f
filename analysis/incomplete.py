"""What a real run has recorded while it goes on: the folder `incomplete` in its --out.

scenario.yaml      what is run
status.json        that it is not complete, and why
deaths.json        of a run that may fail: who has died by itself, and when
rank-N.*.arrow     what process N has recorded so far (analysis/streams.py)
life-K             the same of each life of a job that fails and goes on, and what it began with
checkpoint-V-N.npz what process N has written at version V
records.parquet    in place of these, once the run has ended without a result
"""

import fcntl
import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import pandas as pd

from lockstep.analysis import streams
from lockstep.analysis.folders import INCOMPLETE
from lockstep.analysis.records import join
from lockstep.analysis.whole import part_of, put
from lockstep.scenarios import Scenario, ScenarioError, dump

STATUS, _RECORDS, DEATHS = "status.json", "records.parquet", "deaths.json"
_PATTERNS = ("rank-*.arrow", "life-*/*", "checkpoint-*.npz", ".checkpoint-*.npz")


class Incomplete:
    """The folder of one run at a time. Raises ScenarioError if another one is under way there."""

    def __init__(self, out: Path, scenario: Scenario | None, name: str = INCOMPLETE) -> None:
        """scenario: of the run that begins; None: what is there stays.

        Raises OSError; nothing is left then that was not there.
        """
        self.folder = out / name
        self._new = [folder for folder in (out, *out.parents) if not folder.exists()]
        if self.folder.is_symlink() or (self.folder.exists() and not self.folder.is_dir()):
            raise ScenarioError(f"{str(self.folder)!r} is not a folder of a run; remove it", key="--out")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock: int | None = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.__exit__()
            problem = f"another run is writing to {str(out)!r}; wait for it, or give another folder"
            raise ScenarioError(problem, key="--out") from None
        if scenario is None:
            return
        try:
            for file in _own(self.folder):
                file.unlink()
            for life in self.folder.glob("life-*"):
                life.rmdir()
            (self.folder / "scenario.yaml").write_text(dump(scenario), encoding="utf-8")
            self._say("the run goes on, or was killed")
        except OSError:  # such as a full disk
            with suppress(OSError):
                self.undo()
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def keep(self, records: pd.DataFrame | None, why: str) -> None:
        """The run has ended without a result: why; `records` replace what its processes have written.

        Raises OSError; what is there stays then.
        """
        self._say(why)
        if records is None:
            return
        put(self.folder / _RECORDS, partial(records.to_parquet, index=False))
        for file in self.folder.glob("rank-*.arrow"):
            file.unlink()

    def discard(self) -> None:
        """There is a result."""
        for file in _own(self.folder):
            file.unlink()
        for life in self.folder.glob("life-*"):
            life.rmdir()
        with suppress(OSError):  # somebody has put something else there
            self.folder.rmdir()

    def undo(self) -> bool:
        """It could not begin: leave nothing. False if something has been recorded, which stays."""
        found = records(self.folder)
        if found is not None and len(found):
            return False
        self.discard()
        with suppress(OSError):  # one is not empty any more
            for folder in self._new:
                folder.rmdir()
        return True

    def _say(self, why: str) -> None:
        status = json.dumps({"complete": False, "why": why})
        (self.folder / STATUS).write_text(status + "\n", encoding="utf-8")


def discard(out: Path) -> None:
    """There is a result now: remove what runs had left that did not end well, but for one under way."""
    for folder in out.glob(f"{INCOMPLETE}*"):
        if is_one(folder) and not folder.is_symlink():
            with suppress(ScenarioError), Incomplete(out, None, folder.name) as left:
                left.discard()


def _own(folder: Path) -> list[Path]:
    """The files of a run."""
    files = [folder / name for name in (STATUS, "scenario.yaml", _RECORDS, DEATHS)]
    found = [file for file in (*files, *map(part_of, files)) if file.exists()]
    return [*found, *(file for pattern in _PATTERNS for file in folder.glob(pattern))]


def is_one(folder: Path) -> bool:
    """Whether it is the folder of a run that has not ended with a result."""
    return (folder / STATUS).is_file()


def scenario_of(out: Path) -> Path:
    """The scenario of the run in a folder that has not ended. Raises ScenarioError if there is none."""
    file = out / INCOMPLETE / "scenario.yaml"
    if not is_one(out / INCOMPLETE) or not file.is_file():
        raise ScenarioError("there is no run in it that was killed", file=str(out))
    return file


def why(folder: Path) -> str:
    """Why there is no result, in words."""
    try:
        return str(json.loads((folder / STATUS).read_text(encoding="utf-8"))["why"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError):  # it was killed while it said so
        return "it was killed"


def records(folder: Path) -> pd.DataFrame | None:
    """What is there of the records of a run that did not end well; None if that is nothing."""
    file = folder / _RECORDS
    if file.exists():
        return pd.read_parquet(file)
    lives = sorted(folder.glob("life-*"), key=lambda life: int(life.name.split("-")[1]))
    found = [each for life in lives if (each := records(life)) is not None]
    return join(found) if found else streams.records(streams.streams(folder))
