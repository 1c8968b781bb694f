"""What programs wait for, on any clock: an event happens once, and wakes those who await it."""

from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Event:
    """Awaiting it gives the value with which it happened. SimPy's queue takes it for one of its own."""

    __slots__ = ("callbacks", "value")
    _ok, _value = True, None  # for SimPy

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Event], object]] | None = []
        self.value: Any = None

    def __await__(self) -> Generator[Any, Any, Any]:
        if self.callbacks is not None:
            yield self
        return self.value

    def happen(self, value: Any = None) -> None:
        """Wake those who wait now, before anything else of this instant."""
        callbacks, self.callbacks = self.callbacks, None
        self.value = value
        for callback in callbacks or ():
            callback(self)

    def then(self, call: Callable[["Event"], object]) -> None:
        """Call a function too when it happens, which must not have been yet."""
        assert self.callbacks is not None
        self.callbacks.append(call)


def both(one: Event, other: Event) -> Event:
    """What happens with the later of two events."""
    event, left = Event(), [one, other]

    def one_of_them(happened: Event) -> None:
        left.remove(happened)
        if not left:
            event.happen()

    for each in (one, other):
        each.then(one_of_them)
    return event


async def ready(value: T) -> T:
    """A value that is there already."""
    return value


class Later(Awaitable[T]):
    """What `make` returns, but not before an event."""

    __slots__ = ("event", "make")

    def __init__(self, event: Event, make: Callable[[], T]) -> None:
        self.event, self.make = event, make

    def __await__(self) -> Generator[Any, Any, T]:
        if self.event.callbacks is not None:
            yield self.event
        return self.make()


@coroutine
def passed_on(awaited: Any) -> Generator[Any, Any, None]:
    """Wait for what a program awaits, for whoever drives the program in the place of an engine."""
    yield awaited


class Retired(BaseException):
    """The program's node has no more part in the run."""
