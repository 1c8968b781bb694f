"""Folders of results, of which an earlier one is there until a later one is whole.

New files are written into a folder of their own inside, `.new-PID`. Renamed `.complete`, it counts: its files
then take the places of those before. Killed meanwhile, a process leaves that to the next one.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

INCOMPLETE = "incomplete"  # what a run has recorded that has no result yet (incomplete.py)
_NEW, _COMPLETE, _NONE = ".new-", ".complete", ".none"  # .none: that file is to be removed


@contextmanager
def replacing(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Where to write new files, any of `names`: those of the folder are replaced by them all at once, or not.

    One of `names` that is not written is removed. Raises OSError, and the folder is as before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settle(folder)
    for left in folder.glob(f"{_NEW}*"):
        if not Path("/proc", left.name.removeprefix(_NEW)).exists():
            shutil.rmtree(left, ignore_errors=True)
    new = folder / f"{_NEW}{os.getpid()}"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        yield new
        for name in names:
            if not (new / name).exists():
                (new / f"{name}{_NONE}").touch()
        for file in new.iterdir():
            _to_disk(file)
        new.rename(folder / _COMPLETE)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    settle(folder)


def settle(folder: Path) -> None:
    """Put complete files in their places, if that was interrupted; nothing to do in most folders."""
    complete = folder / _COMPLETE
    if not complete.is_dir():
        return
    with suppress(FileNotFoundError):  # somebody else does the same
        for file in sorted(complete.iterdir()):
            if file.name.endswith(_NONE):
                (folder / file.name.removesuffix(_NONE)).unlink(missing_ok=True)
                file.unlink()
            else:
                file.replace(folder / file.name)
        complete.rmdir()


def _to_disk(file: Path) -> None:
    """See to it that a file is there after a power cut too; raises OSError if the disk was full."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
