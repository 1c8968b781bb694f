"""Groups of servers that each hold a copy of the parameters, and reconcile them now and then.

Each shard has a master, in one of the groups. Its followers send it what they have added to their copies
since they last heard of it; the master adds that, and answers with the shard.
"""

from typing import Any

from lockstep.strategies.node import Message, Node
from lockstep.strategies.parameter_server import Shard

_ADD = 3  # passes over a vector of x + x'


class SharedShard:
    """A shard of which other servers hold copies. Nothing is lost: what a copy adds comes to the master once.

    SINGA's servers (read in src/server.cc of April 2016: HandleUpdate, HandleSyncRequest and Response).
    Theirs forget what is added between a request and its answer, and cut shards finer, so that each group is
    the master of as much. Failure: a server that dies ends the run.
    """

    def __init__(self, node: Node, shard: Shard, period: int) -> None:
        """period: updates after which a copy and its master are reconciled."""
        self.node, self.shard, self.period = node, shard, period
        self.known: Any = shard.parameters  # the master's, with all that has been sent to it
        self.waits = 0  # updates since the last request
        self.asked = False

    async def updated(self) -> None:
        """The shard has had an update; nobody waits for the others."""
        self.waits += 1
        if not self.node.parents or self.asked or self.waits < self.period:
            return
        here: Any = self.shard.parameters
        moved = await self.node.apply(lambda: here - self.known, _ADD * here.nbytes)
        self.known, self.waits, self.asked = here, 0, True
        self.node.send(self.node.parents[0], "moved", moved)

    async def take_in(self, message: Message) -> None:
        """What a copy has added, at its master; or the master's answer, at a copy."""
        body: Any = message.body
        if message.kind == "moved":
            await self._change(lambda: self.node.add(self.shard.parameters, body), body.nbytes)
            self.node.send(message.sender, "reconciled", self.shard.parameters)
        else:
            shard = self.shard  # whose parameters may change until then
            await self._change(lambda: self.node.add(body, shard.parameters - self.known), 2 * body.nbytes)
            self.known, self.asked = body, False

    async def _change(self, parameters: Any, nbytes: int) -> None:
        self.shard.parameters = await self.node.apply(parameters, _ADD * nbytes)
        # a master that has had no update of its own has one now
        await self.node.updated(max(self.shard.version, 1), self.shard.parameters, [])
