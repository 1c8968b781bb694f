"""Snapshots of a process's parameters as a file: numpy's, without objects."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from lockstep.job.snapshots import Snapshots


def write(file: Path, snapshots: Snapshots) -> None:
    """Write them; parts on a GPU come from there now. Raises OSError."""
    arrays: dict[str, Any] = {
        "every": np.int64(snapshots.every),
        "versions": np.array([*snapshots.taken], np.int64),
        "times": np.array([time for time, _ in snapshots.taken.values()], np.float64),
        "parts": np.array([_numbers(part) for _, part in snapshots.taken.values()]),
    }
    if snapshots.last is not None:
        version, time, part = snapshots.last
        arrays |= {"last_version": np.int64(version), "last_time": np.float64(time), "last": _numbers(part)}
    with open(file, "wb") as out:
        np.savez(out, **arrays)


def read(file: Path) -> Snapshots:
    """What `write` wrote."""
    found = Snapshots(0)
    with np.load(file, allow_pickle=False) as arrays:
        found.every = int(arrays["every"])
        parts = arrays["parts"]
        found.taken = {
            int(version): (float(time), torch.from_numpy(part))
            for version, time, part in zip(arrays["versions"], arrays["times"], parts, strict=True)
        }
        if "last" in arrays:
            last = torch.from_numpy(arrays["last"])
            found.last = int(arrays["last_version"]), float(arrays["last_time"]), last
    return found


def _numbers(part: torch.Tensor) -> np.ndarray:
    return part.cpu().numpy()
