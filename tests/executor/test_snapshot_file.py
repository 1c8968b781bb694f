"""Snapshots on their way to the launcher take little memory, and come as they were."""

import tracemalloc
from pathlib import Path

import torch

from lockstep.executor import snapshot_file
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
