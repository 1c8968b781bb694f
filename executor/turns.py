"""A node's activities, each in a thread, take turns: one is in the strategy's code, the others wait."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident


class Turns:
    """Whose turn it is. A thread that never took one, outside a run, needs none."""

    def __init__(self) -> None:
        self._turn = Lock()
        self._holder: int | None = None  # the thread that has it

    def take(self) -> None:
        """Wait for the turn of this thread's activity."""
        self._turn.acquire()
        self._holder = get_ident()

    def give_up(self) -> None:
        """Let others go on; nothing where a signal came while this thread waited for its turn."""
        if self._holder == get_ident():
            self._holder = None
            self._turn.release()

    @contextmanager
    def others(self) -> Iterator[None]:
        """While others have their turns."""
        has_it = self._holder == get_ident()
        self.give_up()
        try:
            yield
        finally:
            if has_it:
                self.take()
