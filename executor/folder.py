"""The private folder of a run on one host: only its owner can look into it, and so reach its sockets.

Processes that one launcher started have it in the launcher's folder for temporary files, those of a torchrun
in one of their own, whose name they all know. It is gone with the run; what a torchrun leaves whose processes
were all killed, the next one removes.
"""

import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from multiprocessing import util
from pathlib import Path

import psutil

from lockstep.scenarios import ScenarioError

LONGEST = 71  # bytes of TMPDIR; a socket's name has 103 at most, and "/pymp-…/r…/hub" is 27 of these
_PREFIX = "lockstep-"
_COMING_S = 60.0  # that a process of a torchrun may need to start; should one die, torchrun ends the others
_LOOK_S = 0.05


def new_folder() -> Path:
    """One for the processes that this one starts; raises ScenarioError if TMPDIR is of no use."""
    short_names()
    return Path(tempfile.mkdtemp(prefix="r", dir=util.get_temp_dir()))


def short_names() -> None:
    """See to it that sockets of this process are in a folder whose name is short enough for a socket's.

    As from Python 3.14 on, it is then one below /tmp: an abstract name would be anyone's to connect to.
    """
    before = tempfile.gettempdir()
    if len(os.fsencode(before)) <= LONGEST:
        return
    tempfile.tempdir = "/tmp"
    try:
        util.get_temp_dir()  # makes it, once, and sees that it is removed
    except OSError as error:
        problem = f"is too long for the names of sockets, and /tmp cannot be written ({error.strerror})"
        raise ScenarioError(f"{problem}; at most {LONGEST} bytes", key="TMPDIR") from None
    finally:
        tempfile.tempdir = before


def torchruns_folder() -> Path:
    """The one of all processes that this one's torchrun has started on this host; the first makes it.

    Raises ScenarioError if it is somebody else's.
    """
    agent, restarts = psutil.Process(os.getppid()), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    above = Path(tempfile.gettempdir())
    above = above if len(os.fsencode(above)) <= LONGEST else Path("/tmp")
    _remove_old(above)
    folder = above / f"{_PREFIX}{agent.pid}-{int(agent.create_time()):x}-{restarts}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ScenarioError(f"{folder} is not a private folder of this user: remove it", key="TMPDIR")
    (folder / f"here-{os.getpid()}").touch()
    (folder / f"came-{os.getpid()}").touch()
    return folder


def await_siblings(folder: Path) -> None:
    """Wait until all of this host's processes have come: for one that comes later the folder would be new."""
    end = time.monotonic() + _COMING_S
    while len([*folder.glob("came-*")]) < int(os.environ["LOCAL_WORLD_SIZE"]) and time.monotonic() < end:
        time.sleep(_LOOK_S)


def leave(folder: Path) -> None:
    """This process of a torchrun needs the folder no more; the last one removes it."""
    (folder / f"here-{os.getpid()}").unlink(missing_ok=True)
    if not any(_is_there(int(file.name.removeprefix("here-"))) for file in folder.glob("here-*")):
        shutil.rmtree(folder, ignore_errors=True)


def _is_there(pid: int) -> bool:
    """Whether a process is still alive; it may have been killed before it could leave."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _remove_old(above: Path) -> None:
    """Remove folders of torchruns that are no more."""
    for folder in above.glob(f"{_PREFIX}*-*-*"):
        pid, created, _ = folder.name.removeprefix(_PREFIX).split("-", 2)
        with suppress(OSError, ValueError):
            if folder.lstat().st_uid == os.geteuid() and not _lives(int(pid), int(created, 16)):
                shutil.rmtree(folder, ignore_errors=True)


def _lives(pid: int, created: int) -> bool:
    try:
        return abs(psutil.Process(pid).create_time() - created) < 2
    except psutil.NoSuchProcess:
        return False
