"""Functions that numba compiles, where it is installed (`pip install 'lockstep[fast]'`)."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
HERE = Path(__file__).parent


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
    """Whether there is a numba, which need not work; takes no time."""
    return find_spec("numba") is not None


def able() -> bool:
    """Whether functions can be compiled."""
    return njit() is not None


def compiled(function: Function) -> Function:
    """Compiled, once for this machine if it can be kept; as it is where that cannot be."""
    if not able():
        return function
    with _by_sources() as kept:
        return cast(Function, njit()(cache=kept, nogil=True)(function))


def inlined(function: Function) -> Function:
    """Compiled as a part of whoever calls it: where arrays are handed over, their owners would be counted."""
    return cast(Function, njit()(inline="always")(function)) if able() else function


@contextmanager
def _by_sources() -> Iterator[bool]:
    """Keep what is compiled in a folder that has its name from all that is compiled; whether that can be.

    numba itself only looks whether a function's own file has changed, and not those of what it calls; and
    where it cannot write it would take another folder, without that name.
    """
    from numba.core import config as found

    config: Any = found
    before = config.CACHE_DIR
    folder = _folder(before)
    if folder is None:
        yield False
        return
    config.CACHE_DIR = str(folder)
    try:
        yield True
    finally:
        config.CACHE_DIR = before


@cache
def _folder(given: str) -> Path | None:
    """The first that can be written: in NUMBA_CACHE_DIR, if given, here, or in the user's cache."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for place in ([Path(given)] if given else []) + [HERE / "__pycache__", home / "lockstep"]:
        try:
            folder = place / _digest()
            folder.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=folder).close()
        except OSError:
            continue
        return folder
    return None


@cache
def _digest() -> str:
    sources = sorted([*HERE.glob("*kernel.py"), HERE / "lent.py", HERE / "shared_ring.py"])
    return sha256(b"".join([source.read_bytes() for source in sources])).hexdigest()[:16]
