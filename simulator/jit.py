"""Functions that numba compiles, where it is installed (`pip install 'lockstep[fast]'`)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
HERE = Path(__file__).parent


@cache
def njit() -> Any:
    """What compiles; None where there is no numba, or none for this numpy. Takes half a second."""
    try:
        from numba import njit as found
    except ImportError:
        return None
    return found


def able() -> bool:
    """Whether functions can be compiled."""
    return njit() is not None


def compiled(function: Function) -> Function:
    """Compiled, once for this machine if it can be kept; as it is where that cannot be."""
    if not able():
        return function
    try:
        with _by_sources():
            return cast(Function, njit()(cache=True)(function))
    except RuntimeError:  # no folder for it can be written to
        return cast(Function, njit()(function))


def inlined(function: Function) -> Function:
    """Compiled as a part of whoever calls it: where arrays are handed over, their owners would be counted."""
    return cast(Function, njit()(inline="always")(function)) if able() else function


@contextmanager
def _by_sources() -> Iterator[None]:
    """Keep what is compiled in a folder that has its name from all that is compiled.

    numba itself only looks whether a function's own file has changed, and not those of what it calls.
    """
    from numba.core import config as found

    config: Any = found
    before = config.CACHE_DIR
    config.CACHE_DIR = str(Path(before or HERE / "__pycache__") / _digest())
    try:
        yield
    finally:
        config.CACHE_DIR = before


@cache
def _digest() -> str:
    sources = sorted([*HERE.glob("*kernel.py"), HERE / "shared_ring.py"])
    return sha256(b"".join([source.read_bytes() for source in sources])).hexdigest()[:16]
