"""What a node of a real run does beside its program: second activities, each in a thread."""

from collections.abc import Callable, Coroutine
from threading import Lock, Thread
from typing import Any

_GRACE_S = 1.0  # for an activity to see that it is over
Program = Coroutine[Any, Any, None]


class Activities:
    """`run` runs one to its end, or until it raises one of `ends`."""

    def __init__(self, run: Callable[[Program], None], ends: tuple[type[BaseException], ...] = ()) -> None:
        self._ends = ends
        self.failure: BaseException | None = None  # of one of them
        self._run = run
        self._threads: list[Thread] = []
        self._alive = 0
        self._counting = Lock()

    @property
    def started(self) -> int:
        """How many there have been."""
        return len(self._threads)

    def alive(self) -> int:
        """How many have not ended."""
        return self._alive

    def start(self, program: Program) -> None:
        """Begin another one."""
        with self._counting:
            self._alive += 1
        thread = Thread(target=self._run_beside, args=(program,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run_beside(self, program: Program) -> None:
        try:
            self._run(program)
        except self._ends:
            pass
        except BaseException as error:
            self.failure = error
        finally:
            with self._counting:
                self._alive -= 1

    def join(self) -> None:
        """Wait, but not for long, until all have ended."""
        for thread in self._threads:
            thread.join(_GRACE_S)
