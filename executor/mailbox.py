"""Messages that have arrived at a node, and its activities, each in a thread, that wait for some."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition

from lockstep.strategies import Message

_Wanted = tuple[str | None, int | None]  # kind and sender; None: any


@dataclass(slots=True, eq=False)
class Received(Message):
    """A message that has come over the network."""

    number: int = 0  # from 1, of those of its kind from its sender


class Mailbox:
    """`fetch(timeout_s)` gives what arrives next: None if nothing does in time, False if it is no message.

    One thread at a time fetches, for all.
    """

    def __init__(self, fetch: Callable[[float], Message | bool | None]) -> None:
        self.taken_in = 0  # messages so far
        self._fetch = fetch
        self._mail: deque[Message] = deque()
        self._waiting: list[_Wanted] = []
        self._fetching = False
        self._news = Condition()  # there is mail, or nobody fetches it any more

    def receive(
        self, kind: str | None, sender: int | None, look: Callable[[], None], every_s: float
    ) -> Message:
        """Wait for the oldest message that matches; now and then `look` whether to go on waiting."""
        wanted = kind, sender
        with self._news:
            self._waiting.append(wanted)
            try:
                while True:
                    for place, message in enumerate(self._mail):
                        if _matches(message, wanted):
                            del self._mail[place]
                            return message
                    look()
                    self._wait(every_s)
            finally:
                self._waiting.remove(wanted)

    def arrived(self, kind: str | None, timeout_s: float = 0.0) -> bool:
        """Take in what has arrived, waiting for the first of it; whether a message of that kind is there."""
        with self._news:
            while self._wait(timeout_s):
                timeout_s = 0.0
            return any(_matches(message, (kind, None)) for message in self._mail)

    def waited_for(self, activities: int) -> tuple[_Wanted, ...] | None:
        """What the activities of the node wait for; None if one of so many does something else."""
        waiting = tuple(self._waiting)
        return waiting if len(waiting) >= activities else None

    def taken_in_if_idle(self, activities: Callable[[], int]) -> int | None:
        """The messages taken in so far, if all activities wait and none of them will get what is there."""
        with self._news:
            goes_on = any(_matches(message, wanted) for message in self._mail for wanted in self._waiting)
            return None if goes_on or len(self._waiting) < activities() else self.taken_in

    def _wait(self, timeout_s: float) -> bool:
        """Wait for what arrives next, or for another thread's news; whether it was this one's."""
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
        if isinstance(found, Message):
            self._mail.append(found)
            self.taken_in += 1
        return found is not None


def _matches(message: Message, wanted: _Wanted) -> bool:
    kind, sender = wanted
    return kind in (None, message.kind) and sender in (None, message.sender)
