"""What processes of a run tell each other by name: torch.distributed's stores, and one for who may be killed.

torch.distributed exports its own in a way that type checkers do not see.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store

__all__ = ["FolderStore", "HashStore", "LookedAt", "Store", "for_collectives"]

_LOOK_S = 0.02  # how often a process asks whether a key is there
_WIDTH = 20  # of a number


class LookedAt(Store):
    """One whose keys are waited for in Python, so that a signal is heard meanwhile."""

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:  # noqa: D102
        end = time.monotonic() + timeout.total_seconds() if timeout else float("inf")
        while not self.check([*keys]):
            if time.monotonic() > end:
                raise TimeoutError(f"nobody has set {', '.join(keys)}")
            time.sleep(_LOOK_S)


class FolderStore(LookedAt):
    """A file for each key, of processes of one host: each may be killed at any instant.

    A FileStore appends to one file, in several writes. Where a process was killed between two of them, all
    others read on for ever, and hold the lock while they do.
    """

    def __init__(self, folder: Path) -> None:
        """folder: made if it is not there; of one user."""
        super().__init__()
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = str(folder)

    def set(self, key: str, value: str | bytes) -> None:  # noqa: D102
        descriptor, part = tempfile.mkstemp(prefix=".", dir=self._folder)
        with open(descriptor, "wb") as file:
            file.write(value.encode() if isinstance(value, str) else value)
        os.replace(part, self._file(key))

    def get(self, key: str) -> bytes:  # noqa: D102
        self.wait([key])
        return self._now(key) or b""

    def check(self, keys: Sequence[str]) -> bool:  # noqa: D102
        return all(os.path.exists(self._file(key)) for key in keys)

    def add(self, key: str, number: int) -> int:  # noqa: D102
        file = os.open(self._file(key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX if number else fcntl.LOCK_SH)  # who is killed holds it no longer
            total = int(os.read(file, _WIDTH) or 0) + number
            if number:
                os.pwrite(file, f"{total:{_WIDTH}}".encode(), 0)  # so few bytes are written at once or not
        finally:
            os.close(file)
        return total

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:  # noqa: D102
        with self._alone():
            found = self._now(key)
            if found == expected.encode() or (found is None and not expected):
                self.set(key, desired)
                return desired.encode()
        return expected.encode() if found is None else found

    def _file(self, key: str) -> str:
        return f"{self._folder}/{quote(key, safe='')}"

    def _now(self, key: str) -> bytes | None:
        try:
            with open(self._file(key), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        lock = os.open(f"{self._folder}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def for_collectives(store: Store, folder: Path) -> Store:
    """One for process groups, whose threads would wait for Python's lock where a store is written in Python.

    folder: of the run on this host; a job whose processes may die alone has no such groups.
    """
    if isinstance(store, FolderStore):
        return FileStore(str(folder / "collectives"), -1)
    return PrefixStore("collectives", store)
