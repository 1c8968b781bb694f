"""Functions that numba compiles, where it is installed (`pip install 'lockstep[fast]'`)."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar, cast

INSTALLED = find_spec("numba") is not None
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compiled, once for this machine if it can be kept; as it is where numba is not installed.

    Loading numba takes half a second.
    """
    if not INSTALLED:
        return function
    from numba import njit

    try:
        return cast(Function, njit(cache=True)(function))
    except RuntimeError:  # no folder for it can be written to
        return cast(Function, njit(function))
