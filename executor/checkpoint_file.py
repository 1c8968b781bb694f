"""Checkpoints of a real run on disk: a file for each version and process, numpy's, without objects."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lockstep.job.incarnation import Incarnation, Saved, saver
from lockstep.job.plan import Plan


def keeping(
    plan: Plan, folder: Path, rank: int, flush: Sequence[Callable[[], None]]
) -> Callable[[Saved], Callable[[], None]]:
    """What writes a process's part of checkpoints; those before the last that is whole are removed.

    flush: bring to the disk what has been recorded, which says whose gradients are in the checkpoint.
    """

    def keep(saved: Saved) -> Callable[[], None]:
        part = folder / f".{_name(saved.version, rank)}"
        write(part, saved)

        def kept() -> None:
            for bring in flush:
                bring()
            part.rename(folder / _name(saved.version, rank))
            last = newest(plan, folder)
            for file in folder.glob(_name("*", rank)):
                if _version(file) < last:
                    file.unlink()

        return kept

    return keep


def newest(plan: Plan, folder: Path) -> int:
    """The newest version that all have written who write some; 0: none."""
    savers = plan.savers
    written = [{_version(file) for file in folder.glob(_name("*", rank))} for rank in savers]
    return max(set.intersection(*written), default=0) if written else 0


def latest(folder: Path, rank: int) -> int:
    """The newest version that a rank has written; 0: none."""
    return max(map(_version, folder.glob(_name("*", rank))), default=0)


def whole(plan: Plan, folder: Path) -> tuple[int, Mapping[int, Saved]]:
    """The newest version that all have written, and what they have; 0 and nothing: none.

    What some have written after it is of a past that is given up, and goes.
    """
    version = newest(plan, folder)
    ranks = plan.savers if version else ()
    forget(plan, folder, version)
    return version, {rank: read(folder / _name(version, rank)) for rank in ranks}


def forget(plan: Plan, folder: Path, version: int) -> None:
    """Remove what anybody has written beyond a version, from which the job goes on."""
    for rank in plan.savers:
        for file in folder.glob(_name("*", rank)):
            if _version(file) > version:
                file.unlink(missing_ok=True)  # others remove it, too


def last(folder: Path, rank: int, device: str = "cpu") -> Saved | None:
    """The last that a rank has written, which may write a newer one, or have to forget it."""
    while version := latest(folder, rank):
        with suppress(FileNotFoundError):
            return read(folder / _name(version, rank), device)
    return None


def beginning(plan: Plan, folder: Path, life: Incarnation, rank: int, device: str) -> Incarnation:
    """A life with what a rank goes on from, on its device: of its own, or of who holds the same.

    It is of the life's version, but where others may have forgotten that: there it is the last that there is.
    """
    by = saver(plan, rank)
    if by is None:
        return life
    if not life.rejoins or plan.has_servers or plan.goes_back(rank):
        version = life.version
        return replace(life, saved={rank: read(folder / _name(version, by), device)} if version else {})
    saved = last(folder, by, device)
    return life if saved is None else replace(life, version=saved.version, saved={rank: saved})


def write(file: Path, saved: Saved) -> None:
    """Write it. Raises OSError."""
    arrays: dict[str, Any] = {}
    names: dict[int, str] = {}  # of vectors that are there already

    def shape(state: Any) -> Any:
        if isinstance(state, tuple):
            return [shape(each) for each in state]
        if state is None or isinstance(state, int | float):
            return state
        if (name := names.setdefault(id(state), f"vector-{len(arrays)}")) not in arrays:
            arrays[name] = state.detach().contiguous().cpu().view(torch.uint8).numpy()
        return {"vector": name, "type": str(state.dtype).removeprefix("torch.")}

    parts = {"state": shape(saved.state), "shown": shape(saved.shown)}
    tree = json.dumps({"version": saved.version, "step": saved.step, **parts})
    with open(file, "wb") as out:
        np.savez(out, tree=np.array(tree), **arrays)


def read(file: Path, device: str = "cpu") -> Saved:
    """What `write` wrote; the state on a device, what was shown in the host's memory."""
    with np.load(file, allow_pickle=False) as arrays:
        tree = json.loads(str(arrays["tree"]))

        def state(shape: Any, where: str) -> Any:
            if isinstance(shape, list):
                return tuple(state(each, where) for each in shape)
            if not isinstance(shape, dict):
                return shape
            vector = torch.from_numpy(arrays[shape["vector"]]).view(getattr(torch, shape["type"]))
            return vector.to(where)

        parts = state(tree["state"], device), state(tree["shown"], "cpu")
        return Saved(int(tree["version"]), int(tree["step"]), *parts)


def _name(version: int | str, rank: int) -> str:
    return f"checkpoint-{version}-{rank}.npz"


def _version(file: Path) -> int:
    return int(file.name.split("-")[1])
