"""Network namespaces without a name: one lives as long as a process is in it or holds it open.

Nothing can be left behind then, however a run ends: with the last process the kernel removes the namespace,
and with that its interfaces, bridges and queues.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from multiprocessing import reduction
from typing import Any, TypeVar

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000  # <linux/sched.h>
_OWN = "/proc/thread-self/ns/net"


class Namespace:
    """A network namespace, held open. It can be an argument of a process that is started."""

    def __init__(self, file: FileIO) -> None:
        self.file = file

    def enter(self) -> None:
        """Move the calling thread, and the threads that it will start, into it for good."""
        _call("setns", self.file.fileno(), _CLONE_NEWNET)

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in it, in a thread of its own: the caller's never leaves its namespace."""

        def inside() -> T:
            self.enter()
            return function(*arguments)

        return in_a_thread(inside)

    def close(self) -> None:
        """Let go of it."""
        self.file.close()

    def __reduce__(self) -> Any:
        return _received, (reduction.DupFd(self.file.fileno()),)


def new_namespace() -> Namespace:
    """A new one, which the calling thread is in from now on."""
    _call("unshare", _CLONE_NEWNET)
    return Namespace(FileIO(_OWN))


def in_a_thread(function: Callable[[], T]) -> T:
    """Call a function that changes its thread's namespace."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


def _received(descriptor: Any) -> Namespace:
    return Namespace(FileIO(descriptor.detach()))


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library, which Python has from 3.12 on."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
