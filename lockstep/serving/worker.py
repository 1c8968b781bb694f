"""A process that computes for the page, whose event loop never waits: the last request wins."""

import asyncio
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from enum import Enum
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

from lockstep.executor.parent import end_with_parent

Answers = Callable[..., Iterator[Any]]


class Done(Enum):
    """What comes last."""

    DONE = "done"


DONE = Done.DONE
_DIED = "the process that computes has died; was there enough memory? Change a setting to start another"


class Worker:
    """One process, started when it is needed.

    A request is a generator function of a module, and what it is called with; what it yields comes to `told`,
    an Exception if it raises one, and `DONE` in the end. A new request ends a process that is still busy with
    the one before: another takes its place, a fork of a server that has loaded everything.
    """

    def __init__(self, told: Callable[[Any], None]) -> None:
        """`told` is called in the event loop."""
        self._told, self._busy = told, False
        self._process: Any = None
        self._connection: Connection | None = None

    def ask(self, answers: Answers, *arguments: Any) -> None:
        """Let the process answer this, and nothing else any more."""
        if self._busy or self._process is None or not self._process.is_alive():
            self._start()
        assert self._connection is not None
        self._busy = True
        self._connection.send((answers, arguments))

    def stop(self) -> None:
        """End the process; the next request starts another."""
        if self._connection is not None:
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
            self._process.kill()  # first: a connection that closes under it would be an error to it
            self._process.join()
            self._connection.close()
        self._connection = self._process = None
        self._busy = False

    def _start(self) -> None:
        self.stop()
        context = multiprocessing.get_context("forkserver")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_answer, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        asyncio.get_running_loop().add_reader(self._connection.fileno(), self._hear)

    def _hear(self) -> None:
        assert self._connection is not None
        try:
            told = self._connection.recv()
        except (EOFError, OSError):
            self.stop()
            self._told(RuntimeError(_DIED))
            return
        if told is DONE or isinstance(told, Exception):
            self._busy = False
        self._told(told)


def load() -> None:
    """Start the server that processes are forks of: it loads what they need while the browser opens."""
    forkserver.set_forkserver_preload(["lockstep.serving.prediction"])
    forkserver.ensure_running()


def _answer(connection: Connection) -> None:
    """The process: answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the page's, which ends this
    end_with_parent()
    while True:
        try:
            answers, arguments = connection.recv()
        except EOFError:
            return
        try:
            for told in answers(*arguments):
                connection.send(told)
            connection.send(DONE)
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception as error:
            connection.send(_plain(error))


def _plain(error: Exception) -> Exception:
    """One that can be sent, with what it says."""
    return RuntimeError(str(error) or type(error).__name__)
