"""A node's activities, each in a thread, take turns: one is in the strategy's code, the others wait."""

from contextlib import AbstractContextManager
from threading import Lock, get_ident


class _Others(AbstractContextManager[None]):
    """A class, as a generator would take longer than the turns."""

    __slots__ = ("_had_it", "_turns")

    def __init__(self, turns: "Turns") -> None:
        self._turns = turns

    def __enter__(self) -> None:
        self._had_it = self._turns.give_up()

    def __exit__(self, *failure: object) -> None:
        if self._had_it:
            self._turns.take()


class Turns:
    """Whose turn it is. A thread that never took one, outside a run, needs none."""

    def __init__(self) -> None:
        self._turn = Lock()
        self._holder: int | None = None  # the thread that has it

    def take(self) -> None:
        """Wait for the turn of this thread's activity."""
        self._turn.acquire()
        self._holder = get_ident()

    def give_up(self) -> bool:
        """Let others go on; whether it was this thread's turn: not where a signal came while it waited."""
        if self._holder != get_ident():
            return False
        self._holder = None
        self._turn.release()
        return True

    def others(self) -> AbstractContextManager[None]:
        """While others have their turns."""
        return _Others(self)
