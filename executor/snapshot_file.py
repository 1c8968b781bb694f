"""Snapshots of a process's parameters as a file: numpy's, without objects."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch

from lockstep.executor.stored import Stored
from lockstep.job.snapshots import Snapshots, merged


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


def keeping(snapshots: Snapshots, folder: Path, rank: int) -> Callable[[], None]:
    """What writes those snapshots that it has not written yet: for a process that may be killed."""
    written: set[int] = set()

    def keep() -> None:
        new = Snapshots(0)
        new.every = snapshots.every
        new.taken = {v: found for v, found in snapshots.taken.items() if v not in written}
        if new.taken:
            part = folder / f".{_kept(rank, max(new.taken))}"
            write(part, new)
            part.rename(folder / _kept(rank, max(new.taken)))
            written.update(new.taken)

    return keep


def restore(snapshots: Snapshots, folder: Path, rank: int, version: int, part: Any = None) -> None:
    """Have what `keeping` has written, up to a version; what is beyond is given up, and goes."""
    files = [*folder.glob(_kept(rank, "*"))]
    if files:
        found = merged([*map(read, files)])
        snapshots.every, snapshots.taken = found.every, found.taken
    snapshots.go_back(version, part)
    beyond = [file for file in files if int(file.stem.rpartition("-")[2]) > version]
    if beyond:
        keeping(snapshots, folder, rank)()
    for file in beyond:
        file.unlink()


def _kept(rank: int, version: int | str) -> str:
    return f"kept-snapshots-{rank}-{version}.npz"


def _numbers(part: torch.Tensor | Stored) -> np.ndarray:
    found: np.ndarray = part.numpy() if isinstance(part, Stored) else part.cpu().numpy()
    return found
