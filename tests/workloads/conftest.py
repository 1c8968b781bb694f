"""What tests of users' tasks share."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: an empty one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
