"""The key that the hosts of a run share: a file of its owner's alone."""

import stat
from pathlib import Path
from typing import Any

import pytest

from lockstep.executor import keys
from lockstep.scenarios import ScenarioError


def test_a_key_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "key"
    keys.make(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(keys.read(file)) == 32
    with pytest.raises(ScenarioError, match="File exists"):
        keys.make(file)
    file.chmod(0o640)
    with pytest.raises(ScenarioError, match="others can read"):
        keys.read(file)
    file.chmod(0o600)
    file.write_text("not a key")
    with pytest.raises(ScenarioError, match="it is no key"):
        keys.read(file)
    file.write_text("00")
    with pytest.raises(ScenarioError, match="is no key"):
        keys.read(file)
    with pytest.raises(ScenarioError, match="make one with 'lockstep key'"):
        keys.read(tmp_path / "none")


def test_the_command_that_makes_a_key(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert command("key").status == 0
    assert len(keys.read(None)) == 32
    ended = command("key")
    assert (ended.status, "File exists" in ended.err) == (2, True)
    assert command("key", tmp_path / "other").status == 0
    assert keys.read(tmp_path / "other") != keys.read(None)
