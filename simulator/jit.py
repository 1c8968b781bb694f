"""Functions that numba compiles, where it is installed (`pip install 'lockstep[fast]'`)."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


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
        return cast(Function, njit()(cache=True)(function))
    except RuntimeError:  # no folder for it can be written to
        return cast(Function, njit()(function))


def inlined(function: Function) -> Function:
    """As `compiled`, as a part of whoever calls it: of each array that is handed over owners are counted."""
    return cast(Function, njit()(inline="always")(function)) if able() else function
