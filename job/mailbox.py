"""The messages that a node was sent and has not taken, and who waits for one."""

from collections import deque
from collections.abc import Awaitable

from lockstep.job.events import Event, ready
from lockstep.strategies.node import Broken, Group, Message

# for a message of that kind, sender and part; None: any
Waiting = tuple[str | None, int | None, int | None, Event]


class Mailbox:
    """Of one node. `waiting`: receives that wait, the oldest first.

    One of them may be of a collective that other messages end: those of the group's news.
    """

    __slots__ = ("_breaking", "mail", "waiting")

    def __init__(self) -> None:
        self.mail: deque[Message] | None = None  # made when it is needed: an empty one takes 0.6 kB
        self.waiting: list[Waiting] = []
        self._breaking: tuple[Group, Event] | None = None  # whose messages end waiting for one

    def hand_over_or_keep(self, message: Message) -> bool:
        """Give a message to the receive that has waited longest for it; whether there was none."""
        kind, sender = message.kind, message.sender
        for place, (wanted, by, part, event) in enumerate(self.waiting):
            if (  # matches, without a call
                (wanted == kind or (wanted is None and (message.part >= 0 or part is not None)))
                and (by is None or by == sender)
                and (part is None or part == message.part)
            ):
                del self.waiting[place]
                event.happen(message)
                return False
        self.put(message)
        return True

    def put(self, message: Message) -> None:
        """Keep a message."""
        self.mail = self.mail or deque()
        self.mail.append(message)

    def receive(
        self, kind: str | None = None, sender: int | None = None, part: int | None = None
    ) -> Awaitable[Message]:
        """See `strategies.Node`."""
        if self.mail:
            for place, message in enumerate(self.mail):
                if matches(message, kind, sender, part):
                    del self.mail[place]
                    return ready(message)
        event = Event()
        self.waiting.append((kind, sender, part, event))
        return event

    async def receive_among(
        self, group: Group, kind: str | None, sender: int | None, part: int | None
    ) -> Message:
        """As `receive`, in a collective of a group; raises Broken if it has news, or as soon as it has."""
        self.look_for_news(group)
        awaited = self.receive(kind, sender, part)
        if isinstance(awaited, Event):
            self._breaking = group, awaited
        message = await awaited
        self._breaking = None
        if message is None:
            raise Broken
        return message

    def look_for_news(self, group: Group) -> None:
        """Raise Broken if there is a message that ends a group's collectives."""
        if group.breaks and any(map(group.broken_by, self.mail or ())):
            raise Broken

    def break_off(self, message: Message) -> None:
        """End waiting in a collective if this message, which has come, is news of its group."""
        if self._breaking is not None and self._breaking[0].broken_by(message):
            (_, event), self._breaking = self._breaking, None
            self.waiting = [each for each in self.waiting if each[3] is not event]
            event.happen()

    def arrived(self, kind: str | None = None) -> bool:
        """See `strategies.Node`."""
        return any(matches(message, kind) for message in self.mail or ())

    def forget_parts(self, since: int) -> None:
        """Forget the messages of collectives of groups whose parts are before `since`."""
        self.mail = deque(each for each in self.mail or () if not since < each.part < 0)


def matches(message: Message, kind: str | None, sender: int | None = None, part: int | None = None) -> bool:
    """None: any, but for the kind, which is then none of passes or of a group's collective."""
    return (
        (kind == message.kind or (kind is None and (message.part >= 0 or part is not None)))
        and (sender is None or sender == message.sender)
        and (part is None or part == message.part)
    )
