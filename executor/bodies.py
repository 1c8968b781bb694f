"""Large bodies between processes of one host: in memory that both map, so that they are copied once.

What ZeroMQ does with 25 MB is copy them into the kernel and out again. The memory has no name that could be
left behind: the sender makes it (memfd_create), the receiver opens it through the sender's /proc, and it is
gone with the last process that maps it, however that ended.

A piece of it holds one body, and is used again: its first byte is 1 from when it is lent until the receiver
has no vector left that lies in it. So nobody waits for anybody, and no second message is needed.
"""

import mmap
import os
import weakref
from itertools import count
from typing import Any, NamedTuple

import numpy as np

_HEADER = 64  # bytes before the body: whether it is lent, on a cache line of its own
_MOST = 256  # pieces of a process, each with a file descriptor; what comes on top of them is sent
_LENT, _FREE = 1, 0
_NAME = "lockstep-body"

Where = tuple[int, int, int]
"""A process, its file descriptor, and which of its pieces that is: descriptors are used again."""


class _Piece(NamedTuple):
    file: int
    number: int
    memory: mmap.mmap
    body: np.ndarray


class Lent:
    """The pieces of a process that receivers read."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[_Piece]] = {}
        self._numbers = count()

    def lend(self, to: int, data: np.ndarray) -> Where | None:
        """Copy bytes to where a receiver can read them; None if there are too many of them."""
        pieces = self._pieces.setdefault(to, [])
        for piece in pieces:
            if piece.memory[0] == _FREE and len(piece.body) >= len(data):
                break
        else:
            if sum(map(len, self._pieces.values())) >= _MOST:
                return None
            piece = _new(len(data), next(self._numbers))
            pieces.append(piece)
        piece.body[: len(data)] = data
        piece.memory[0] = _LENT
        return os.getpid(), piece.file, piece.number

    def forget(self, to: int) -> None:
        """A receiver is no more."""
        for piece in self._pieces.pop(to, ()):
            os.close(piece.file)

    def close(self) -> None:
        """Give back what nobody reads; what is read lives as long as its reader."""
        for to in [*self._pieces]:
            self.forget(to)


class Borrowed:
    """The pieces of others that a process reads, by their sender."""

    def __init__(self) -> None:
        self._mapped: dict[int, dict[Where, mmap.mmap]] = {}

    def body(self, sender: int, where: Where, nbytes: int) -> Any:
        """A body as a buffer, whose piece is the sender's again when nothing refers to it any more.

        Raises ValueError if it has not so many bytes, FileNotFoundError if the sender is no more, or has
        given it up.
        """
        its = self._mapped.setdefault(sender, {})
        memory = its.get(where)
        if memory is None or len(memory) < _HEADER + nbytes:
            memory = its[where] = _map(where)
        if len(memory) < _HEADER + nbytes:
            raise ValueError(f"{len(memory) - _HEADER} bytes instead of {nbytes}")
        found = np.frombuffer(memory, np.uint8, nbytes, _HEADER)
        weakref.finalize(found, memory.__setitem__, 0, _FREE).atexit = False
        return found

    def forget(self, sender: int) -> None:
        """A sender is no more."""
        self._mapped.pop(sender, None)


def _new(nbytes: int, number: int) -> _Piece:
    file = os.memfd_create(f"{_NAME}-{number}")
    os.ftruncate(file, _HEADER + nbytes)
    memory = mmap.mmap(file, 0)
    return _Piece(file, number, memory, np.frombuffer(memory, np.uint8, nbytes, _HEADER))


def _map(where: Where) -> mmap.mmap:
    process, descriptor, number = where
    there = f"/proc/{process}/fd/{descriptor}"
    _check(there, number)
    file = os.open(there, os.O_RDWR)
    try:
        _check(f"/proc/self/fd/{file}", number)  # it may have been closed in between
        return mmap.mmap(file, 0)
    finally:
        os.close(file)


def _check(file: str, number: int) -> None:
    if not os.readlink(file).startswith(f"/memfd:{_NAME}-{number} "):
        raise FileNotFoundError(f"{file} is something else by now")
