"""The folder of a run that goes on."""

from pathlib import Path

import pytest

from lockstep.analysis.incomplete import Incomplete
from tests.support.scenarios import scenario


def test_who_cannot_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk; the next run can begin there."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "new" / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space left"):
            Incomplete(out, scenario())
    assert not [*tmp_path.iterdir()]
    with Incomplete(out, scenario()) as there:
        assert there.folder.is_dir()
