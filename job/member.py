"""A node as one of a group, for one collective: its messages are told apart from those of all others."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep.strategies.node import Collective, Group, Message, Vector

if TYPE_CHECKING:
    from lockstep.job.node import Node

T = TypeVar("T")
_GROUPS = 8  # numbers of groups, of which a node may be in several


class Member:
    """What a collective needs of `strategies.Node`, where each member means the same."""

    __slots__ = ("_node", "_part", "concatenate", "hosts", "index", "rank", "workers")

    def __init__(self, node: "Node", group: Group, number: int) -> None:
        """number: of the collective, from 0, among those of the group."""
        self._node, self._part = node, 1 + number * _GROUPS + group.number
        self.rank, self.workers, self.hosts = node.rank, group.ranks, group.hosts
        self.index = group.ranks.index(node.rank)
        self.concatenate: Callable[[Sequence[Any]], Any] = node.concatenate

    def send(self, to: int, kind: str, body: Vector | None = None) -> Awaitable[None]:
        return self._node.send(to, kind, body, part=self._part)

    def receive(self, kind: str | None = None, sender: int | None = None) -> Awaitable[Message]:
        return self._node.receive(kind, sender, self._part)

    def apply(self, function: Callable[[], T], nbytes: int) -> Awaitable[T]:
        return self._node.apply(function, nbytes)

    def collective(self, program: Collective, vector: Vector) -> Awaitable[Vector]:
        return program(self, vector)  # type: ignore[arg-type]  # all that a collective needs

    def all_reduce(self, vector: Vector) -> Awaitable[Vector]:
        """Around a ring: engines have native collectives of all workers alone."""
        from lockstep.strategies.collectives import ring

        return self.collective(ring, vector)
