"""Snapshots on their way to the launcher take little memory, and come as they were."""

import tracemalloc
import weakref
from pathlib import Path

import pytest
import torch

from lockstep.executor import snapshot_file
from lockstep.executor.stored import StoredSnapshots
from lockstep.job.snapshots import Snapshots

LENGTH, VERSIONS = 1 << 20, 9


def snapshots() -> Snapshots:
    taken = Snapshots(1 << 30)
    for version in range(VERSIONS):
        taken.offer(version, version / 8, torch.full((LENGTH,), float(version)))
    return taken


def test_they_come_back_as_they_were(tmp_path: Path) -> None:
    whole = snapshots()
    snapshot_file.write(tmp_path / "file", whole)
    found = snapshot_file.read(tmp_path / "file")
    assert (found.every, [*found.taken]) == (whole.every, [*whole.taken])
    for (at, part), (its, own) in zip(found.taken.values(), whole.taken.values(), strict=True):
        assert at == its
        assert torch.equal(part, own)
    assert found.last is not None
    assert found.last[:2] == (VERSIONS - 1, 1.0)
    assert torch.equal(found.last[2], torch.full((LENGTH,), VERSIONS - 1.0))


def test_those_that_are_given_up_do_not_come_back(tmp_path: Path) -> None:
    """What a process's first life has made beyond version 2 is not found by its second life, or its third."""
    first, second, third = Snapshots(0), Snapshots(0), Snapshots(0)
    keep = snapshot_file.keeping(first, tmp_path, 3)
    for version in range(6):
        first.offer(version, 0.0, torch.full((4,), float(version)))
        if version % 2:
            keep()
    snapshot_file.restore(second, tmp_path, 3, 2)
    snapshot_file.restore(third, tmp_path, 3, 9)
    for found in (second, third):
        assert {version: float(part[0]) for version, (_, part) in found.taken.items()} == {0: 0, 1: 1, 2: 2}


def test_they_are_written_one_at_a_time(tmp_path: Path) -> None:
    """They were put into one array before: as much again as all of them."""
    whole = snapshots()
    tracemalloc.start()
    try:
        snapshot_file.write(tmp_path / "file", whole)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 4 * LENGTH


def test_those_of_a_large_model_are_in_files_without_names(tmp_path: Path) -> None:
    """As many as in memory, and of the same versions; what nobody wants any longer is closed."""
    stored = StoredSnapshots(1 << 30, None, tmp_path)
    alive = []
    for version in range(40):
        part = torch.full((LENGTH,), float(version))
        stored.offer(version, version / 8, part)
        alive.append(weakref.ref(part))
        del part
    for _, part in stored.taken.values():
        part.wait()
    assert [version for version, part in enumerate(alive) if part() is not None] == [39]  # the last one
    assert [*tmp_path.iterdir()] == []
    in_memory = Snapshots(1 << 30)
    for version in range(40):
        in_memory.offer(version, version / 8, None)
    assert [*stored.taken] == [*in_memory.taken]
    snapshot_file.write(tmp_path / "file", stored)
    for version, (_, part) in snapshot_file.read(tmp_path / "file").taken.items():
        assert torch.equal(part, torch.full((LENGTH,), float(version)))


def test_those_of_a_small_model_stay_in_memory(tmp_path: Path) -> None:
    small = StoredSnapshots(1 << 20, None, tmp_path)
    small.offer(0, 0.0, part := torch.zeros(8))
    assert small.taken[0][1] is part


def test_on_a_full_disk_they_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, data: object) -> None:
            raise OSError("no space left")

        def close(self) -> None: ...

    monkeypatch.setattr("lockstep.executor.stored.TemporaryFile", lambda dir: Full())
    stored = StoredSnapshots(1 << 30, None, tmp_path)
    stored.offer(0, 0.0, part := torch.ones(8))
    assert stored.taken[0][1].numpy().tolist() == part.tolist()
