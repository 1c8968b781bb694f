"""Rounds of workers that wait for each other without a server, while some of them leave and come back."""

from collections.abc import Callable, Collection, Sequence

from lockstep.strategies.node import Message, Node, Vector


class Rounds:
    """A worker's numbered rounds, and what it hears of others in theirs: a message's `version` is its round.

    Two workers meet in the rounds from the later of two on: those that each has told the other, since when it
    is there for it. So who waits for a message of a round gets it, or hears that its sender has left, or that
    they meet later. Who is in the earliest round of all does not wait for ever, as all others are in that
    round or in a later one.

    Failure: who is back waits until another shows it its model, and begins with that in the other's next
    round; if there is nobody who could, it begins with what it has saved. What it had sent and the others had
    not used is lost. Who has ended says so, and shows its last model to who is back after that.
    """

    def __init__(
        self,
        node: Node,
        others: Sequence[int],
        first: int,
        kind: str,
        show: Callable[[], tuple[Vector, float]],
    ) -> None:
        """others: ranks; first: round; kind: of a round's messages; show: the model, and its weight."""
        self._node, self._kind, self._show = node, kind, show
        self._there = {*others}
        self._next, self._ended = first, False
        self._entered = not node.rejoins
        self._since = dict.fromkeys(others, first if self._entered else 0)
        self._silent = set[int]() if self._entered else {*others}  # nothing is known of their rounds yet
        self._apart = set[int]()  # those whose rounds do not end with this worker's
        self._came: dict[tuple[int, int], Message] = {}  # by round and sender
        self.disturbed = node.rejoins
        """Whether anybody, also one whom it does not meet, has failed or come back."""

    @property
    def there(self) -> Sequence[int]:
        """Ranks of those who are there in the round that has begun."""
        return [other for other, since in self._since.items() if other in self._there and since < self._next]

    async def enter(self) -> Message | None:
        """After a failure: wait for another's model, and return it, if there is one."""
        shown: Message | None = None
        while self._silent and shown is None:
            message = await self._hear()
            shown = message if message.kind != self._kind and message.body is not None else None
        if not self._entered:
            self._entered = True
            self._next = max(self._since.values(), default=0) or self._next
            self._since = {other: max(since, self._next) for other, since in self._since.items()}
            for other in sorted(self._there):
                self._say(other, shows=other in self._apart)
            self._apart = {*self._since}
        return shown

    async def begin(self) -> int:
        """Begin the next round; its number."""
        await self.look()
        self._next += 1
        return self._next - 1

    async def look(self) -> None:
        """Take in all that is there."""
        while self._node.arrived():
            await self._hear()

    async def take(self, due: Collection[tuple[int, int]]) -> list[Message]:
        """Wait for messages, each of a round and a sender, as long as they may come.

        All that have come of this round and of earlier ones, in the order of rounds, and then of ranks.
        """
        await self.look()
        for one in due:  # what is not awaited any more never is again
            while self.awaits(*one):
                await self._hear()
        taken = sorted(one for one in self._came if one[0] < self._next)
        return [self._came.pop(one) for one in taken]

    def end(self) -> None:
        """There will be no more rounds."""
        self._ended = True
        for other in sorted(self._there & self._apart):
            self._say(other, shows=False)
        self._node.spawn(self._stay())

    def meets(self, sender: int, number: int) -> bool:
        """Whether a worker that is, or was, there for this one is so in a round."""
        return self._since[sender] <= number

    def awaits(self, number: int, sender: int) -> bool:
        """Whether a message of a round is still to come, or may be, as far as is known."""
        if sender not in self._there:
            return False
        unknown = sender in self._silent
        return unknown or (self.meets(sender, number) and (number, sender) not in self._came)

    async def _hear(self) -> Message:
        message = await self._node.receive()
        kind, who = message.kind, message.sender
        self.disturbed = self.disturbed or kind in ("leave", "join")
        if who not in self._since:
            return message
        if kind == self._kind:
            self._came[message.version, who] = message
            return message
        if who in self._silent and kind in ("since", "end") and message.body is None:
            return message  # it does not know of this life yet, nor did it when it sent what came before
        if who in self._silent or kind in ("leave", "join"):
            self._came = {one: kept for one, kept in self._came.items() if one[1] != who}
        self._silent.discard(who)
        if kind == "since":
            self._since[who] = max(self._since[who], message.version)
        elif kind in ("end", "leave"):
            self._there.discard(who)
        elif kind == "join":
            self._there.add(who)
            self._since[who] = self._next
            self._apart.add(who)
            if self._entered:
                self._say(who, shows=True)
        return message

    def _say(self, to: int, *, shows: bool) -> None:
        """Since when this worker is there, or that it has ended."""
        body, weight = self._show() if shows else (None, 1.0)
        self._node.send(to, "end" if self._ended else "since", body, version=self._next, weight=weight)

    async def _stay(self) -> None:
        while True:
            await self._hear()
