"""Functions of kernels as libraries, which numba and a C compiler have built once for this machine.

To load one takes milliseconds, where to import numba and what it keeps takes half a second and 120 MB. A
function's arguments are numbers, arrays of `jit` and tuples of these; what it returns is a whole number. It
is called with the place of a list of 64-bit words, which are what numba would pass one by one.
"""

import ctypes
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from lockstep.simulator.jit import BUILDS, able, folders, installed, kept_in, linker, nobody_elses

ENTRY = "lockstep_entry"  # the name of a library's function
UNFINISHED = "building-"  # how folders begin that are there while one is built

Function = Callable[..., int]


def ready(kernel: str, name: str) -> bool:
    """Whether that function of a kernel is there, compiled, without taking time."""
    return bool(linker()) and installed() and _there(kernel, name) is not None


def native(kernel: str, name: str) -> Function | None:
    """That function of a kernel, compiled, for one caller; None where that cannot be.

    Takes seconds, once for a machine. Warns (RuntimeWarning) if numba and a compiler are there, but cannot be
    used.
    """
    if linker():
        library = _library(kernel, name)
        return None if library is None else Native(library)
    if not able():
        return None
    found: Function = getattr(import_module(f"lockstep.simulator.{kernel}"), name)  # numba has compiled it
    return found


class Library(NamedTuple):
    """A function, the types of its arguments, and which of the words each of them has."""

    entry: Any
    kinds: list[Any]
    spans: list[slice]


@cache
def _library(kernel: str, name: str) -> Library | None:
    if not installed():
        return None
    try:
        path = _there(kernel, name) or _built(kernel, name)
        entry = getattr(ctypes.CDLL(str(path)), ENTRY)
    except (OSError, AttributeError, RuntimeError) as error:
        import warnings

        text = f"simulations take longer, as numba is there, but could not build what they need: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        return None
    entry.argtypes, entry.restype = [ctypes.c_void_p] * 3, ctypes.c_int32
    kinds = arguments(getattr(import_module(f"lockstep.simulator.{kernel}"), name))
    ends = [*accumulate(len([*words(kind)]) for kind in kinds)]
    return Library(entry, kinds, [slice(*span) for span in pairwise([0, *ends])])


def _there(kernel: str, name: str) -> Path | None:
    """Its library, if there is one that nobody else can have written but root: it is code."""
    for folder in folders():  # root may have built it in one that this user cannot write
        path = _path(folder, kernel, name)
        if nobody_elses(folder) and nobody_elses(path):
            return path
        if folder == kept_in():
            break
    return None


def _path(folder: Path, kernel: str, name: str) -> Path:
    return folder / f"{kernel}-{name}-{sysconfig.get_platform()}.so"


def _built(kernel: str, name: str) -> Path:
    """Build it, one process at a time. Raises RuntimeError, or OSError."""
    from fcntl import LOCK_EX, LOCK_UN, flock

    folder = kept_in()
    assert folder is not None  # else there is no linker()
    with (folder / "builds").open("w") as file:
        with suppress(OSError):  # some file systems have no locks: then each builds for itself
            flock(file, LOCK_EX)
        try:
            return _there(kernel, name) or _build(kernel, name, folder)
        finally:
            with suppress(OSError):
                flock(file, LOCK_UN)  # a process that was forked meanwhile has the file, too


def _build(kernel: str, name: str, folder: Path) -> Path:
    """Let another process write it: numba needs memory that this one could never give back."""
    import shutil
    import subprocess

    for left in folder.glob(f"{UNFINISHED}*"):  # by one that was killed
        shutil.rmtree(left, ignore_errors=True)
    path = _path(folder, kernel, name)
    # it imports what this process would, and nothing of the current folder
    where = [str(Path(__file__).parents[2]), *(each for each in sys.path if each)]
    code = f"import sys; sys.path[:] = {where!r}; from lockstep.simulator.building import main; main()"
    command = [sys.executable or "", "-I", "-c", code, kernel, name, str(linker()), str(path)]
    given = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
    # for any processor of this kind: others may have this folder
    given |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", BUILDS: "1"}
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    if done.returncode or not nobody_elses(path):
        said = done.stderr.strip().splitlines() or ["it was killed, or others can write it"]
        raise RuntimeError(next((line for line in said if "error" in line.lower()), said[-1]))
    return path


class Native:
    """A function of a library. It remembers its arguments: who comes again is not written down anew."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._words = np.zeros(library.spans[-1].stop, np.int64)
        self._given: list[Any] = [None] * len(library.kinds)
        self._found = np.zeros(2, np.int64)  # the result, and an exception
        self._places = [each.ctypes.data for each in (self._found, self._found[1:], self._words)]

    def __call__(self, *given: Any) -> int:
        """Raises RuntimeError if it fails, of which the kernels know nothing."""
        library = self._library
        for number, (kind, value) in enumerate(zip(library.kinds, given, strict=True)):
            if value is not self._given[number]:
                self._words[library.spans[number]] = [*_flat(kind, value)]
                self._given[number] = value
        if library.entry(*self._places):
            raise RuntimeError("a compiled function has failed")
        return int(self._found[0])


def arguments(function: Any) -> list[Any]:
    """Their types, as its annotations have them."""
    return [kind for name, kind in get_type_hints(function, include_extras=True).items() if name != "return"]


def words(kind: Any) -> Iterator[str]:
    """LLVM's types of what numba's convention makes of an argument; each takes 8 bytes."""
    if kind in (int, float):
        yield "i64" if kind is int else "double"
    elif get_origin(kind) is tuple:
        for each in get_args(kind):
            yield from words(each)
    else:  # an owner and a parent, items, bytes of each, where, and by dimension how many and how far
        yield from ["ptr", "ptr", "i64", "i64", "ptr", *["i64"] * 2 * kind.__metadata__[1]]


def _flat(kind: Any, value: Any) -> Iterator[int]:
    """The bits of these words."""
    if kind is int:
        yield int(value)
    elif kind is float:
        yield int(np.float64(value).view(np.int64))
    elif get_origin(kind) is tuple:
        for each, part in zip(get_args(kind), value, strict=True):
            yield from _flat(each, part)
    else:
        dtype, dimensions = kind.__metadata__
        if value.dtype != dtype or value.ndim != dimensions or not value.flags.c_contiguous:
            raise TypeError(f"{value.ndim} dimensions of {value.dtype}, not {dimensions} of {dtype.__name__}")
        where = value.__array_interface__["data"][0]
        yield from (0, 0, value.size, value.itemsize, where, *value.shape, *value.strides)
