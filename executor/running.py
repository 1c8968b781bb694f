"""How a strategy's coroutine is run in real time: what it awaits has happened by then."""

from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Stopped(BaseException):
    """This node's part in the run is over."""


class Done(Awaitable[T]):
    """The value of something that has been done."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, Any, T]:
        return self.value
        yield


def run_to_end(program: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never really waits."""
    try:
        program.send(None)
    except StopIteration:
        return
    except Stopped:
        return
    program.close()
    raise TypeError("a strategy may only await members of its node")
