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
from typing import Any, NamedTuple

import numpy as np

_HEADER = 64  # bytes before the body: whether it is lent, on a cache line of its own
_MOST = 256  # pieces of a process, each with a file descriptor; what comes on top of them is sent
_LENT, _FREE = 1, 0
_NAME = "lockstep-body"

Where = tuple[int, int]
"""A process and its file descriptor."""


class _Piece(NamedTuple):
    file: int
    memory: mmap.mmap
    body: np.ndarray


class Lent:
    """The pieces of a process that receivers read."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[_Piece]] = {}

    def lend(self, to: int, data: np.ndarray) -> Where | None:
        """Copy bytes to where a receiver can read them; None if there are too many of them."""
        pieces = self._pieces.setdefault(to, [])
        for piece in pieces:
            if piece.memory[0] == _FREE and len(piece.body) >= len(data):
                break
        else:
            if sum(map(len, self._pieces.values())) >= _MOST:
                return None
            piece = _new(len(data))
            pieces.append(piece)
        piece.body[: len(data)] = data
        piece.memory[0] = _LENT
        return os.getpid(), piece.file

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

        Raises ValueError if there is none of so many bytes, OSError if the sender is no more.
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


def _new(nbytes: int) -> _Piece:
    file = os.memfd_create(_NAME)
    os.ftruncate(file, _HEADER + nbytes)
    memory = mmap.mmap(file, 0)
    return _Piece(file, memory, np.frombuffer(memory, np.uint8, nbytes, _HEADER))


def _map(where: Where) -> mmap.mmap:
    file = os.open(name := f"/proc/{where[0]}/fd/{where[1]}", os.O_RDWR)
    try:
        if not os.readlink(name).startswith(f"/memfd:{_NAME} "):
            raise ValueError(f"{name} holds no body")
        return mmap.mmap(file, 0)
    finally:
        os.close(file)
