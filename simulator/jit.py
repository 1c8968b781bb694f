"""Functions that numba compiles, where it is installed (`pip install 'lockstep[fast]'`).

On Linux with a C compiler they are built once for this machine, in a process of its own, into libraries that
load without numba (native.py): the functions of the kernels stay as they are in Python. Elsewhere numba
compiles them in this process.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from tempfile import TemporaryFile
from typing import Annotated, Any, TypeVar, cast

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])
HERE = Path(__file__).parent
BUILDS = "LOCKSTEP_BUILDS"  # is set in a process that builds a library
# Arrays that such functions are given, in C's order: what they hold, and their dimensions
Ints = Annotated[Any, np.int64, 1]
Floats = Annotated[Any, np.float64, 1]
Wholes = Annotated[Any, np.int64, 2]
Reals = Annotated[Any, np.float64, 2]


@cache
def njit() -> Any:
    """What compiles; None where there is no numba, or none for this numpy. Takes half a second."""
    try:
        from numba import config
        from numba import njit as found
    except Exception:  # there is none, or it does not go with the numpy that is here
        return None
    return None if getattr(config, "DISABLE_JIT", False) else found


@cache
def installed() -> bool:
    """Whether there is a numba that may be used, which need not work; takes no time."""
    return find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"


def able() -> bool:
    """Whether functions can be compiled in this process."""
    return njit() is not None


@cache
def linker() -> str | None:
    """What makes a library of what numba has compiled; None: numba compiles in this process."""
    if os.environ.get(BUILDS) or sys.platform != "linux":
        return None
    return which("cc") if kept_in() else None


def here(function: Function) -> Function:
    """Compiled in this process, once for this machine if it can be kept; as it is where that cannot be."""
    if not able():
        return function
    with _by_sources() as kept:
        return cast(Function, njit()(cache=kept, nogil=True)(function))


def compiled(function: Function) -> Function:
    """Compiled where there are no libraries; else as it is, for native.py."""
    return function if linker() else here(function)


def inlined(function: Function) -> Function:
    """Compiled as a part of whoever calls it: where arrays are handed over, their owners would be counted."""
    return function if linker() or not able() else cast(Function, njit()(inline="always")(function))


@contextmanager
def _by_sources() -> Iterator[bool]:
    """Keep what is compiled in a folder that has its name from all that is compiled; whether that can be.

    numba itself only looks whether a function's own file has changed, and not those of what it calls; and
    where it cannot write it would take another folder, without that name.
    """
    from numba.core import config as found

    config: Any = found
    before = config.CACHE_DIR
    folder = None if os.environ.get(BUILDS) else kept_in()
    if folder is None:
        yield False
        return
    config.CACHE_DIR = str(folder)
    try:
        yield True
    finally:
        config.CACHE_DIR = before


@cache
def folders() -> list[Path]:
    """Where it may be: in NUMBA_CACHE_DIR, if given, beside the sources, or in the user's cache."""
    places = [HERE / "__pycache__"]
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        places.insert(0, Path(given).absolute())
    with suppress(RuntimeError):  # this user has no home
        places.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lockstep")
    return [place / _digest() for place in places]


@cache
def kept_in() -> Path | None:
    """The first of these that can be written, and by nobody else: what is in there is executed."""
    for folder in folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if not nobody_elses(folder):
                folder.chmod(folder.lstat().st_mode & 0o755)
            TemporaryFile(dir=folder).close()
            if nobody_elses(folder):
                return folder
    return None


def nobody_elses(path: Path) -> bool:
    """Whether it is there, and only this user and root can write it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    others = stat.S_ISLNK(found.st_mode) or found.st_mode & 0o022
    return not others and found.st_uid in (0, os.geteuid())


@cache
def _digest() -> str:
    sources = sorted([*HERE.glob("*kernel.py"), *(HERE / name for name in _MORE)])
    return sha256(b"".join([source.read_bytes() for source in sources])).hexdigest()[:16]


_MORE = "lent.py", "shared_ring.py", "jit.py", "native.py", "building.py"
