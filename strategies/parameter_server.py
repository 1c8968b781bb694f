"""Both sides of a parameter server whose parameters are cut into one shard per server.

A worker pulls all shards, and pushes its update cut the same way. A server's answer to a push is the new
parameters of its shard: when it answers is the business of its consistency (consistency.py). Push then
pull of M bytes by N workers over S servers takes 2·N·M/(S·B) when the servers' links are the narrow ones.

Failure: a worker or a server that dies ends the run.
"""

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from strategies.node import Contribution, Message, Node, Vector
from strategies.placement import cut
from strategies.rules import Transformation


def shard_of(vector: Vector, index: int, count: int) -> Vector:
    """Part `index` of `count` nearly equal, contiguous parts of a vector."""
    n = len(vector)
    return vector[n * index // count : n * (index + 1) // count]


def parts_of(shard: slice, count: int) -> list[slice]:
    """A shard cut into nearly equal parts, as slices of the whole vector."""
    return [
        slice(shard.start + part.start, shard.start + part.stop)
        for part in cut(shard.stop - shard.start, [1] * count)
    ]


class ParameterServer:
    """A worker's view of the servers: all parameters, and the version of each part it last pulled.

    Each shard travels in `parts` messages.
    """

    def __init__(self, node: Node, parts: int = 1) -> None:
        self.node = node
        self.slices = [part for shard in node.shards for part in parts_of(shard, parts)]
        self.addresses = [(server, part) for server in node.parents for part in range(parts)]
        self.firsts = [(server, number - part) for number, (server, part) in enumerate(self.addresses)]
        self.versions = [0] * len(self.slices)
        self.batches_pushed = 0

    def pull(self) -> Awaitable[Vector]:
        """Ask every server for its shard; all parameters, shape (n,)."""
        for server in self.node.parents:
            self.node.send(server, "pull")
        return self.answers()

    def push_pull(self, update: Vector) -> Awaitable[Vector]:
        """Push an update of shape (n,) and wait for the new parameters, shape (n,)."""
        self.push(update)
        return self.answers()

    def push(self, update: Vector) -> list[Awaitable[None]]:
        """Push an update of shape (n,); awaiting these waits until it has left."""
        batches = self.batches()
        return [self.push_part(number, update[part], batches) for number, part in enumerate(self.slices)]

    def batches(self) -> int:
        """The mini-batches computed since this was last asked."""
        new = self.node.step - self.batches_pushed
        self.batches_pushed = self.node.step
        return new

    def push_part(self, number: int, body: Vector, batches: int) -> Awaitable[None]:
        """Push one of the slices; awaiting this waits until it has left."""
        server, part = self.addresses[number]
        return self.node.send(server, "push", body, version=self.versions[number], batches=batches, part=part)

    async def answers(self) -> Vector:
        """Wait for one answer from every server; all parameters, shape (n,)."""
        bodies: list[Any] = [None] * len(self.slices)
        for server, first in self.firsts:
            answer = await self.node.receive("parameters", server)
            number = first + answer.part
            bodies[number], self.versions[number] = answer.body, answer.version
        return self.node.concatenate(bodies)

    def leave(self) -> None:
        """Tell the servers that nothing more will come, so that they do not wait for it."""
        for server in self.node.parents:
            self.node.send(server, "leave")


class Shard:
    """A server's part of the parameters, or a part of that, its version, and the rule that updates it."""

    def __init__(self, node: Node, rule: Transformation, part: int = 0, parts: int = 1) -> None:
        self.node = node
        self.part = part
        self.parameters = node.initial_parameters()[parts_of(node.shards[node.shard], parts)[part]]
        self.version = 0
        self.rule = rule
        self.state = rule.initial

    async def apply(self, pushes: Sequence[Message], over: int) -> list[Contribution]:
        """Apply the sum of the pushed updates, in the order given, divided by `over`; whose they were."""

        def work() -> Vector:
            total = sum_of(pushes)
            step, self.state = self.rule.step(total if over == 1 else total / over, self.state)
            return self.parameters + step

        self.parameters = await self.node.apply(work, (len(pushes) + 2) * self.parameters.nbytes)
        contributions: list[Contribution] = []
        for push in pushes:
            contributions += push.contributions(self.version)
        self.version += 1
        return contributions

    async def update(self, pushes: Sequence[Message], over: int) -> None:
        """Apply, and tell the engine."""
        contributions = await self.apply(pushes, over)
        await self.node.updated(self.version, self.parameters, contributions)

    async def mean_update(self, pushes: Sequence[Message]) -> None:
        """Apply the mean of the workers' updates, in the order of ranks, and tell the engine."""
        await self.update(sorted(pushes, key=lambda push: push.sender), count(pushes))

    def answer(self, worker: int) -> None:
        """Send the parameters to a worker (or a relay), without waiting for them to get there."""
        self.node.send(worker, "parameters", self.parameters, version=self.version, part=self.part)


def sum_of(pushes: Sequence[Message]) -> Vector:
    """The sum of what was pushed, in the order given."""
    total: Any = pushes[0].body
    for push in pushes[1:]:
        total = total + push.body
    return total  # type: ignore[no-any-return]


def count(pushes: Iterable[Message]) -> int:
    """How many workers' updates are in the pushes."""
    return sum(len(push.pushed_by) for push in pushes)
