"""A worker's own copy of the parameters, which it reads while newer ones are on their way."""

from collections.abc import Awaitable

from lockstep.strategies.node import Node, Vector
from lockstep.strategies.parameter_server import ParameterServer
from lockstep.strategies.updates import sum_of


class Copy:
    """All parameters, shard by shard as they came last, and the own deltas that these do not hold yet.

    With `prefetch` every push asks for an answer, which comes when it comes; without, a shard is asked for
    when it is too old. The server has to tell the clock of its answers, and to hold none back but those for
    which this worker waits (consistency.bounded): an answer then has all own deltas that came before it.
    """

    def __init__(self, node: Node, server: ParameterServer, prefetch: bool) -> None:
        self.node = node
        self.server = server
        self.prefetch = prefetch
        self.shards: list[Vector] = []
        self.clocks = [0] * len(server.parts)  # pushes of every worker that are in the shard, at least
        self.lacking: list[list[Vector]] = [[] for _ in server.parts]
        self.due = 0  # answers that are on their way, or will be

    async def pull(self) -> Vector:
        """All parameters for the first time, shape (n,)."""
        parameters = await self.server.pull()
        self.shards = [self.server.of(parameters, number) for number in range(len(self.clocks))]
        return parameters

    async def push(self, delta: Vector) -> None:
        """Push a delta of shape (n,), and count it in from now on."""
        await self.server.push(delta, "push" if self.prefetch else "commit")
        self.due += len(self.shards) if self.prefetch else 0
        for number, lacking in enumerate(self.lacking):
            lacking.append(self.server.of(delta, number))

    async def read(self, clock: int) -> Vector:
        """The newest parameters here, with all own deltas, shape (n,); waits until they are at `clock`."""
        if not self.prefetch:
            for server, old in zip(self.node.parents, self.clocks, strict=True):
                if old < clock:
                    self.node.send(server, "pull")
                    self.due += 1
        while self.node.arrived("parameters") or min(self.clocks) < clock:
            await self._take_in()
        return await self._with_own_deltas() if any(self.lacking) else self.server.whole(self.shards)

    def _with_own_deltas(self) -> Awaitable[Vector]:
        parts = [[shard, *own] for shard, own in zip(self.shards, self.lacking, strict=True)]
        nbytes = sum(3 * len(own) * shard.nbytes for shard, *own in parts)
        return self.node.apply(lambda: self.server.whole([sum_of(part) for part in parts]), nbytes)

    async def drain(self) -> None:
        """Wait for all answers that are due."""
        while self.due:
            await self._take_in()

    async def _take_in(self) -> None:
        number, self.shards[number], self.clocks[number] = await self.server.answer()
        self.due -= 1
        del self.lacking[number][: 1 if self.prefetch else None]  # it answers the oldest push, or has all
