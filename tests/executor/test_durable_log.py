"""The log of a node that may be killed: what a signal does in the midst of an entry."""

import os
from pathlib import Path

import pytest

from lockstep.analysis import streams
from lockstep.executor.interleaving import DurableInterleaving
from lockstep.executor.signals import Terminated


@pytest.mark.parametrize("written", ["names", "entry"])
def test_an_entry_is_there_once_if_a_signal_ends_the_write(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler raises when the write has been made; then the log goes on with the node's end."""
    log = DurableInterleaving(tmp_path, 0)
    log.note("begin", "cpu", 0)
    write, calls = os.pwrite, iter(["names", "entry"])

    def strikes(file: int, data: bytes, offset: int) -> int:
        count = write(file, data, offset)
        if next(calls) == written:
            raise Terminated
        return count

    monkeypatch.setattr(os, "pwrite", strikes)
    with pytest.raises(Terminated):
        log.note("message", "push", -1, 1, 7)
    monkeypatch.undo()
    log.note("retire", activity=0)
    log.close()
    found = streams.log(tmp_path, 0)
    assert [*found["word"]] == ["begin", "message", "retire"]
    assert [*found["kind"]] == ["cpu", "push", ""]
    assert [*found["number"]] == [-1, 7, -1]


def test_who_is_killed_before_its_names_are_there_has_no_entries(tmp_path: Path) -> None:
    """While files are made, or get other names."""
    log = DurableInterleaving(tmp_path, 2)
    log.note("begin", "cpu", 0)
    log.close()
    names = streams.packed_log(tmp_path, 2)[1]
    for left in (names.write_bytes(b""), names.unlink()):
        assert left is None or left == 0
        assert len(streams.log(tmp_path, 2)) == 0
