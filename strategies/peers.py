"""The other workers that are there, where there are no servers: as `leave` and `join` tell a worker."""

from bisect import insort
from collections.abc import Sequence

from lockstep.strategies.node import Message, Node


class Peers:
    """`there`: their ranks, in order; at first all, or all `among` whom it matters."""

    def __init__(self, node: Node, among: Sequence[int] | None = None) -> None:
        self._rank = node.rank
        self._all = [worker for worker in node.workers if worker != node.rank] if among is None else among
        self.there = [*self._all]

    def hear(self, message: Message) -> bool:
        """Of one that leaves or joins; whether this worker is the next to it, which shows it its model."""
        who = message.sender
        if message.kind == "leave":
            if who in self.there:
                self.there.remove(who)
            return False
        if who not in self.there and who in self._all:
            insort(self.there, who)
        others = [self._rank, *(rank for rank in self.there if rank != who)]
        return min(others, key=lambda rank: (rank < who, rank)) == self._rank
