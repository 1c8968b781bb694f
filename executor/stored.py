"""Snapshots of a large model, in files instead of in memory: there they were eight models.

A file has no name, so that nothing is left behind, and is written by a thread, off the clock but for the core
that it takes; what lies on a GPU is copied from there on the clock. What fits into the budget of all
snapshots stays where it is.
"""

import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch

from lockstep.job.snapshots import BUDGET, Snapshots


class Stored:
    """A vector that is being written to a file, or has been."""

    def __init__(self, vector: torch.Tensor, folder: Path, writer: ThreadPoolExecutor) -> None:
        self._vector: torch.Tensor | None = vector
        self._dtype = vector.numpy().dtype
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._written = writer.submit(self._write, vector)

    def _write(self, vector: torch.Tensor) -> None:
        with suppress(OSError):  # a full disk: then it stays in memory
            self._file.write(vector.numpy().data)
            self._file.flush()
            self._vector = None

    def wait(self) -> None:
        """Until it has been written."""
        self._written.result()

    def numpy(self) -> Any:
        """It, shape (n,), once it has been written."""
        self.wait()
        if self._vector is not None:
            return self._vector.numpy()
        self._file.seek(0)
        return np.fromfile(self._file, self._dtype)


class StoredSnapshots(Snapshots):
    """As `Snapshots`; those beyond the budget are in files in `folder`."""

    def __init__(self, total_bytes: int, own: Any, folder: Path) -> None:
        super().__init__(total_bytes, own)
        self._stores, self._folder = self.limit * total_bytes > BUDGET, folder
        self._writer = ThreadPoolExecutor(1, "snapshots")

    def offer(self, version: int, time: float, part: Any) -> bool:
        """As there. One is on its way to its file at most: a slow disk holds the owner up."""
        if not super().offer(version, time, part):
            return False
        if self._stores:
            for _, before in [*self.taken.values()][-2:-1]:
                if isinstance(before, Stored):
                    before.wait()
            self.taken[version] = time, Stored(part.cpu(), self._folder, self._writer)
        return True
