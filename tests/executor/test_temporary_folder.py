"""Where the processes of a run are forked from is reached by a socket, a file whose name cannot be long."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from multiprocessing import connection, current_process, util
from pathlib import Path

import pytest

from lockstep.executor import folder as folders
from lockstep.scenarios import ScenarioError


@pytest.fixture
def long_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What TMPDIR is, in a process that has no folder for sockets yet."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setitem(current_process()._config, "tempdir", None)  # type: ignore[attr-defined]
    before = set(util._finalizer_registry)  # type: ignore[attr-defined]
    yield folder
    for key in set(util._finalizer_registry) - before:  # type: ignore[attr-defined]
        util._finalizer_registry[key]()  # type: ignore[attr-defined]


def test_a_socket_has_a_name_that_it_can_have(long_folder: Path) -> None:
    folders.short_names()
    name = connection.arbitrary_address("AF_UNIX")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
    os.unlink(name)
    assert tempfile.gettempdir() == str(long_folder)  # for everything else
    assert not list(long_folder.iterdir())


def test_without_any_folder_for_it_there_is_one_message(
    long_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(util, "get_temp_dir", full)
    with pytest.raises(
        ScenarioError, match=r"TMPDIR: is too long .*No space left on device\); at most 71 bytes"
    ):
        folders.short_names()


def test_the_longest_folder_that_is_taken_is_one_that_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "x" * (folders.LONGEST - 1))
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: f"{tempfile.tempdir}/{prefix}12345678")
    monkeypatch.setitem(current_process()._config, "tempdir", None)  # type: ignore[attr-defined]
    folders.short_names()
    monkeypatch.setattr(util, "Finalize", lambda *_, **__: None)
    assert len(connection.arbitrary_address("AF_UNIX")) <= 103


def test_sockets_of_a_run_in_the_longest_folder_that_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = Path("/tmp") / ("x" * (folders.LONGEST - 5))
    longest.mkdir(mode=0o700)
    before = set(util._finalizer_registry)  # type: ignore[attr-defined]
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(longest))
        monkeypatch.setitem(current_process()._config, "tempdir", None)  # type: ignore[attr-defined]
        run = folders.new_folder()
        assert run.stat().st_mode & 0o777 == 0o700
        assert run.is_relative_to(longest)
        assert len(str(run / "99999")) <= 103
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
        assert len(str(folders.torchruns_folder() / "99999")) <= 107  # ZeroMQ's own bound
    finally:
        for key in set(util._finalizer_registry) - before:  # type: ignore[attr-defined]
            util._finalizer_registry[key]()  # type: ignore[attr-defined]
        shutil.rmtree(longest)
