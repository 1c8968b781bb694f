"""What has arrived at a node and is not in its mailbox yet, and the threads that wait for more."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from threading import Condition

from lockstep.job.events import Event
from lockstep.strategies import Message


@dataclass(slots=True, eq=False)
class Arrived:
    """A message, and when it was on its way: see `job.port.Arrival`."""

    message: Message
    start: float
    nbytes: int
    left_at: float = nan
    connection: int = 0
    """Which of those between these two it came by: how often they have begun anew, together."""


class Inbox:
    """`fetch(timeout_s)` gives what arrives next: None if nothing does in time, False if it is no message.

    `there`: whether something has arrived. One thread at a time fetches, for all; `wake` lets it return.
    """

    def __init__(
        self,
        fetch: Callable[[float], Arrived | bool | None],
        there: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        self.handed_over = 0  # messages so far
        self._fetch, self._there, self._wake = fetch, there, wake
        self._arrivals: deque[Arrived] = deque()
        self._fetching = False
        self._news = Condition()  # something has arrived, or was handed over, or fetching has ended

    def __len__(self) -> int:
        return len(self._arrivals)

    def wait(self, timeout_s: float, event: Event | None = None) -> bool:
        """Wait for what arrives next, or for another thread's news, unless `event` has happened.

        Whether something came.
        """
        with self._news:
            if event is not None and event.callbacks is None:
                return False
            if self._fetching:
                self._news.wait(timeout_s)
                return False
            self._fetching = True
            try:
                self._news.release()
                found = self._fetch(timeout_s)
            finally:
                self._news.acquire()
                self._fetching = False
                self._news.notify_all()
            if isinstance(found, Arrived):
                self._arrivals.append(found)
            return found is not None

    def drop_all(self) -> None:
        """Hand over nothing of what has arrived by now."""
        self._arrivals.clear()

    def nudge(self) -> None:
        """Let those who wait look again: an event of theirs has happened, and no message will tell them."""
        with self._news:
            self._news.notify_all()
            if self._fetching:
                self._wake()

    def look(self) -> None:
        """Fetch what has arrived by now, without waiting."""
        while True:
            with self._news:  # nobody else may be at the socket
                if self._fetching or not self._there():
                    return
            self.wait(0.0)

    def hand_over(self, take_in: Callable[[Arrived], None]) -> None:
        """Hand over what has arrived: for the activity whose turn it is."""
        if not self._arrivals:
            return
        while self._arrivals:
            self.handed_over += 1
            take_in(self._arrivals.popleft())
        with self._news:
            self._news.notify_all()
