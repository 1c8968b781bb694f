"""A node as one of a group, for one collective: its messages are told apart from those of all others."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep.strategies.node import Collective, Group, Message, Source, Vector

if TYPE_CHECKING:
    from lockstep.job.node import Node

T = TypeVar("T")
_GROUPS = 8  # numbers of groups, of which a node may be in several
_COLLECTIVES = 1 << 32  # of a group that breaks


def first_part(group: Group) -> int:
    """What the messages of a group that breaks are told apart by is not more than this."""
    return -1 - group.number * _COLLECTIVES


def part_of(group: Group, number: int) -> int:
    """What tells the messages of a group's collective from others; below 0. number: of it, from 0."""
    if group.breaks:
        return first_part(group) - number
    return -1 - number * _GROUPS - group.number


class Member:
    """What a collective needs of `strategies.Node`, where each member means the same."""

    __slots__ = (
        "_begun",
        "_group",
        "_news",
        "_node",
        "_part",
        "concatenate",
        "hosts",
        "index",
        "rank",
        "workers",
    )

    def __init__(self, node: "Node", group: Group, part: int, begun: bool, news: Group | None = None) -> None:
        """part: of its messages; begun: whether the node goes on meanwhile; news: of whom break it off."""
        self._node, self._group, self._part, self._begun, self._news = node, group, part, begun, news
        self.rank, self.workers, self.hosts = node.rank, group.ranks, group.hosts
        self.index = group.ranks.index(node.rank)
        self.concatenate: Callable[[Sequence[Any]], Any] = node.concatenate

    def send(
        self, to: int, kind: str, body: Vector | None = None, *, sources: tuple[Source, ...] = ()
    ) -> Awaitable[None]:
        return self._node.send(to, kind, body, part=self._part, sources=sources)

    def receive(self, kind: str | None = None, sender: int | None = None) -> Awaitable[Message]:
        if self._news is not None:
            return self._node.receive_among(self._news, kind, sender, self._part)
        return self._node.receive(kind, sender, self._part)

    def apply(self, function: Callable[[], T], nbytes: int) -> Awaitable[T]:
        return self._node.apply(function, nbytes)

    def collective(
        self, program: Collective, vector: Vector, among: Group | None = None
    ) -> Awaitable[Vector]:
        """A part of the one that this is, one after the other; `among` some of its members."""
        if among is not None:
            some = Member(self._node, among, self._part, self._begun, self._news)
            return some.collective(program, vector)
        part = self._part if self._begun else 0
        short = self._node.port.collective(program, vector, self._group, part)
        return program(self, vector) if short is None else short  # type: ignore[arg-type]  # all it needs

    def all_reduce(self, vector: Vector) -> Awaitable[Vector]:
        """Around a ring: engines have native collectives of all workers alone."""
        from lockstep.strategies.collectives import ring

        return self.collective(ring, vector)
