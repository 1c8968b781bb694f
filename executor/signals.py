"""Who hears a signal, and when."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what asks a process to end


class Terminated(BaseException):
    """This process has been told to end."""


def terminate(*_: Any) -> None:
    """A handler: raise Terminated, once."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise Terminated("told to end")


class TimedOut(BaseException):
    """The time that a command was given is over. `records`: what had been measured."""

    records: Any = None


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Raise TimedOut after so many seconds, and every second from then on; only in a main thread."""

    def ring(*_: Any) -> None:
        raise TimedOut(f"it has not ended within {seconds:g} s (--timeout)")

    if seconds is None or current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Interruption:
    """A handler that raises KeyboardInterrupt and remembers it.

    Python drops what is raised in a destructor or a callback, and some imports catch everything: whoever
    waits for long asks `check` now and then.
    """

    def __init__(self) -> None:
        self._asked = False

    def __call__(self, *_: Any) -> None:
        """Be told of a signal."""
        self._asked = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if there has been a signal."""
        if self._asked:
            raise KeyboardInterrupt

    @contextmanager
    def unmasked(self) -> Iterator[None]:
        """Raise KeyboardInterrupt instead of the error that a library has made of it, as pydantic does."""
        try:
            yield
        except Exception:
            self.check()
            raise


@contextmanager
def handled(handler: Callable[..., Any] | signal.Handlers, *numbers: signal.Signals) -> Iterator[None]:
    """Let `handler` have these signals meanwhile; only a main thread can, elsewhere nothing changes."""
    if current_thread() is not main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old or signal.SIG_DFL)


@contextmanager
def blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Keep these signals waiting meanwhile; a process started meanwhile never hears them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
