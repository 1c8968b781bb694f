"""Large bodies between processes of one host: in memory that both map, so that they are copied once at most.

What ZeroMQ does with 25 MB is copy them into the kernel and out again. The memory has no name that could be
left behind: the sender makes it (memfd_create), the receiver opens it through the sender's /proc, and it is
gone with the last process that maps it, however that ended.

A piece of it holds one body, and is used again: a byte in front of it is 1 from when it is lent until the
receiver has no vector left that lies in it. So nobody waits for anybody, and no second message is needed.

A vector that is to be sent can be made in a piece: then it is not copied at all, and all its receivers read
the same piece. It is used again when neither they nor its maker have a vector left that lies in it.
"""

import mmap
import os
import resource
import weakref
from contextlib import suppress
from itertools import count
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

HEADER = 64  # bytes before the body: to whom it is lent, on a cache line of their own
_OWN = 0  # of these bytes that of the maker, or of the only receiver of a copy; other receivers have others
_MOST = 256  # pieces of a process, each with two file descriptors; what comes on top of them is sent
_MADE = _MOST // 2  # of these, in which vectors may be made: they can stay for long
_LENT, _FREE = 1, 0
_NAME = "lockstep-body"

Where = tuple[int, int, int, int]
"""A process, its file descriptor, which of its pieces that is (files are used again), and whose byte."""


def allow_descriptors() -> None:
    """Let this process open as many files as it may: it has two of each of its pieces, one of each other."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems have a limit that they do not tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Piece(NamedTuple):
    file: int
    number: int
    memory: mmap.mmap
    body: np.ndarray


class Lent:
    """The pieces of a process that receivers read."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[_Piece]] = {}  # with copies, by receiver
        self._made: dict[int, _Piece] = {}  # those that vectors are made in, by their place in memory
        self._retired: list[_Piece] = []  # of those: nobody writes to them any more
        self._bytes: dict[int, int] = {}  # of receivers, in front of these
        self._numbers, self._lock = count(), Lock()

    def room(self, nbytes: int) -> np.ndarray | None:
        """Where a vector can be made that is to be sent; None if there are too many. The same for `lend`."""
        with self._lock:
            for piece in self._made.values():
                if len(piece.body) == nbytes and not any(piece.memory[:HEADER]):
                    break
            else:
                more = len(self._made) + len(self._retired) < _MADE
                if not more or (another := self._another(nbytes)) is None:
                    return None
                self._made[_place(another.body)] = piece = another
            piece.memory[_OWN] = _LENT
        return _until_gone(piece.memory, nbytes, _OWN)

    def lend(self, to: int, data: np.ndarray) -> Where | None:
        """Let a receiver read bytes: a copy, but for what was made in a piece. None if there are too many."""
        with self._lock:
            made = self._made.get(_place(data))
            if made is not None and len(made.body) == len(data):
                byte = self._bytes.setdefault(to, len(self._bytes) + 1)
                if byte < HEADER and made.memory[byte] == _FREE:
                    return _lent(made, byte)
            pieces = self._pieces.setdefault(to, [])
            for piece in pieces:
                if piece.memory[_OWN] == _FREE and len(piece.body) >= len(data):
                    break
            else:
                if (another := self._another(len(data))) is None:
                    return None
                pieces.append(piece := another)
            piece.body[: len(data)] = data
            return _lent(piece, _OWN)

    def _another(self, nbytes: int) -> _Piece | None:
        self._close_retired()
        there = len(self._made) + len(self._retired) + sum(map(len, self._pieces.values()))
        if there >= _MOST:
            return None
        try:
            return _new(nbytes, next(self._numbers))
        except OSError:  # no descriptor, or no memory
            return None

    def forget(self, to: int) -> None:
        """A receiver is no more, or cut off: it may go on reading what it reads."""
        with self._lock:
            for piece in self._pieces.pop(to, ()):
                os.close(piece.file)
            if (byte := self._bytes.get(to, HEADER)) < HEADER:
                its = [place for place, piece in self._made.items() if piece.memory[byte] != _FREE]
                self._retired += [self._made.pop(place) for place in its]
                for piece in self._retired:
                    piece.memory[byte] = _FREE
                self._close_retired()

    def _close_retired(self) -> None:
        """Give back those that no other receiver has still to read."""
        for piece in [*self._retired]:
            if not any(piece.memory[_OWN + 1 : HEADER]):
                self._retired.remove(piece)
                os.close(piece.file)

    def close(self) -> None:
        """Give back what nobody reads; what is read lives as long as its reader."""
        for to in [*self._pieces]:
            self.forget(to)
        for piece in (*self._made.values(), *self._retired):
            os.close(piece.file)
        self._made.clear()
        self._retired.clear()


class Borrowed:
    """The pieces of others that a process reads, by their sender."""

    def __init__(self) -> None:
        self._mapped: dict[int, dict[tuple[int, int, int], mmap.mmap]] = {}

    def body(self, sender: int, where: Where, nbytes: int) -> Any:
        """A body as a buffer, whose piece is the sender's again when nothing refers to it any more.

        Raises ValueError if it has not so many bytes, FileNotFoundError if the sender is no more, or has
        given it up.
        """
        its, piece = self._mapped.setdefault(sender, {}), where[:3]
        memory = its.get(piece)
        if memory is None:
            for given_up in [each for each in its if not _there(*each)]:
                del its[given_up]
            memory = its[piece] = _map(*piece)
        if len(memory) < HEADER + nbytes:
            raise ValueError(f"{len(memory) - HEADER} bytes instead of {nbytes}")
        return _until_gone(memory, nbytes, where[3])

    def forget(self, sender: int) -> None:
        """A sender is no more."""
        self._mapped.pop(sender, None)


def _new(nbytes: int, number: int) -> _Piece:
    file = os.memfd_create(f"{_NAME}-{number}")
    try:
        os.ftruncate(file, HEADER + nbytes)
        memory = mmap.mmap(file, 0)
    except OSError:
        os.close(file)
        raise
    return _Piece(file, number, memory, np.frombuffer(memory, np.uint8, nbytes, HEADER))


def _place(data: np.ndarray) -> int:
    """The address of its first byte."""
    return int(data.__array_interface__["data"][0])


def _lent(piece: _Piece, byte: int) -> Where:
    piece.memory[byte] = _LENT
    return os.getpid(), piece.file, piece.number, byte


def _until_gone(memory: mmap.mmap, nbytes: int, byte: int) -> np.ndarray:
    """The body in a piece; when nothing refers to it any more, that byte says so."""
    found = np.frombuffer(memory, np.uint8, nbytes, HEADER)
    weakref.finalize(found, _free, memory, byte, os.getpid()).atexit = False
    return found


def _free(memory: mmap.mmap, byte: int, process: int) -> None:
    if os.getpid() == process:  # a child that was forked has a copy of what lies there, not a share in it
        memory[byte] = _FREE


def _map(process: int, descriptor: int, number: int) -> mmap.mmap:
    there = f"/proc/{process}/fd/{descriptor}"
    _check(there, number)
    file = os.open(there, os.O_RDWR)
    try:
        _check(f"/proc/self/fd/{file}", number)  # it may have been closed in between
        return mmap.mmap(file, 0)
    finally:
        os.close(file)


def _there(process: int, descriptor: int, number: int) -> bool:
    """Whether its sender still has a piece."""
    try:
        _check(f"/proc/{process}/fd/{descriptor}", number)
    except OSError:
        return False
    return True


def _check(file: str, number: int) -> None:
    if not os.readlink(file).startswith(f"/memfd:{_NAME}-{number} "):
        raise FileNotFoundError(f"{file} is something else by now")
