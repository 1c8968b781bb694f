"""Snapshots of a process's parameters as a file: numpy's, without objects."""

from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import torch

from lockstep.executor.stored import Stored
from lockstep.job.snapshots import Snapshots


def write(file: Path, snapshots: Snapshots) -> None:
    """Write them, one in memory at a time; parts on a GPU come from there now. Raises OSError."""
    with ZipFile(file, "w") as archive:
        for name, array in _arrays(snapshots):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                np.lib.format.write_array(out, array, allow_pickle=False)


def _arrays(snapshots: Snapshots) -> Iterator[tuple[str, np.ndarray]]:
    yield "every", np.asarray(snapshots.every, np.int64)
    yield "versions", np.array([*snapshots.taken], np.int64)
    yield "times", np.array([time for time, _ in snapshots.taken.values()], np.float64)
    for version, (_, part) in snapshots.taken.items():
        yield f"part-{version}", _numbers(part)
    if snapshots.last is not None:
        version, time, part = snapshots.last
        yield "last_version", np.asarray(version, np.int64)
        yield "last_time", np.asarray(time, np.float64)
        yield "last", _numbers(part)


def read(file: Path) -> Snapshots:
    """What `write` wrote."""
    found = Snapshots(0)
    with np.load(file, allow_pickle=False) as arrays:
        found.every = int(arrays["every"])
        found.taken = {
            int(version): (float(time), torch.from_numpy(arrays[f"part-{version}"]))
            for version, time in zip(arrays["versions"], arrays["times"], strict=True)
        }
        if "last" in arrays:
            last = torch.from_numpy(arrays["last"])
            found.last = int(arrays["last_version"]), float(arrays["last_time"]), last
    return found


def _numbers(part: torch.Tensor | Stored) -> np.ndarray:
    found: np.ndarray = part.numpy() if isinstance(part, Stored) else part.cpu().numpy()
    return found
