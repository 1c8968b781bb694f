"""Both sides of a parameter server whose parameters are cut into one shard per server.

A worker pulls all shards, and pushes its update cut the same way. A server's answer to a push is the new
parameters of its shard: when it answers is the business of its consistency (consistency.py). Push then
pull of M bytes by N workers over S servers takes 2·N·M/(S·B) when the servers' links are the narrow ones.

Failure: a worker or a server that dies ends the run.
"""

from collections.abc import Sequence

from strategies.node import Contribution, Message, Node, Vector
from strategies.rules import Transformation


def shard_of(vector: Vector, index: int, count: int) -> Vector:
    """Part `index` of `count` nearly equal, contiguous parts of a vector."""
    n = len(vector)
    return vector[n * index // count : n * (index + 1) // count]


class ParameterServer:
    """A worker's view of the servers: all parameters, and the version of each shard it last pulled."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.versions = [0] * len(node.servers)
        self.batches_pushed = 0

    async def pull(self) -> Vector:
        """Ask every server for its shard; all parameters, shape (n,)."""
        for server in self.node.servers:
            self.node.send(server, "pull")
        return await self._answers()

    async def push_pull(self, update: Vector) -> Vector:
        """Push an update of shape (n,) and wait for the new parameters, shape (n,)."""
        node = self.node
        batches = node.step - self.batches_pushed
        self.batches_pushed = node.step
        for shard, server in enumerate(node.servers):
            part = shard_of(update, shard, len(node.servers))
            node.send(server, "push", part, version=self.versions[shard], batches=batches)
        return await self._answers()

    async def _answers(self) -> Vector:
        parts = []
        for shard, server in enumerate(self.node.servers):
            answer = await self.node.receive("parameters", server)
            assert answer.body is not None
            parts.append(answer.body)
            self.versions[shard] = answer.version
        return self.node.concatenate(parts)


class Shard:
    """A server's part of the parameters, their version, and the rule that updates them."""

    def __init__(self, node: Node, rule: Transformation) -> None:
        self.node = node
        self.parameters = shard_of(node.initial_parameters(), node.index, len(node.servers))
        self.version = 0
        self.rule = rule
        self.state = rule.initial

    async def update(self, pushes: Sequence[Message]) -> None:
        """Apply the mean of the pushed updates, in the order given."""

        bodies = [push.body for push in pushes if push.body is not None]

        def work() -> Vector:
            total = sum(bodies[1:], bodies[0])
            step, self.state = self.rule.step(total / len(bodies), self.state)
            return self.parameters + step

        self.parameters = await self.node.apply(work, (len(pushes) + 2) * self.parameters.nbytes)
        contributions = [Contribution(p.sender, self.version - p.version, p.batches) for p in pushes]
        self.version += 1
        await self.node.updated(self.version, self.parameters, contributions)

    def answer(self, worker: int) -> None:
        """Send the shard to a worker, without waiting for it to get there."""
        self.node.send(worker, "parameters", self.parameters, version=self.version)
