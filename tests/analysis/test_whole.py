"""A file that is written anew is there as it was until it is whole."""

from pathlib import Path

import pytest

from lockstep.analysis.incomplete import Incomplete
from lockstep.analysis.whole import part_of, put, put_text
from lockstep.scenarios.loading import made
from tests.support.failing import document


def test_a_file_is_there_as_it_was_until_another_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "there.json"
    put_text(file, "before")

    def fails(part: Path) -> None:
        part.write_text("half")
        assert file.read_text() == "before"
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        put(file, fails)
    assert file.read_text() == "before"
    put_text(file, "after")
    assert [each.name for each in tmp_path.iterdir()] == ["there.json"]
    assert file.read_text() == "after"


def test_what_a_killed_process_had_begun_to_write_does_not_outlive_a_result(tmp_path: Path) -> None:
    with Incomplete(tmp_path, made(document())) as left:
        for name in ("records.parquet", "deaths.json"):
            part_of(left.folder / name).write_text("half")
        left.discard()
    assert not left.folder.exists()
