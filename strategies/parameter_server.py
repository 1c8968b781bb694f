"""Both sides of a parameter server whose parameters are cut into one shard per server.

A worker pulls all shards, and pushes its update cut the same way. A server's answer to a push is the new
parameters of its shard: when it answers is the business of its consistency (consistency.py). A commit is a
push that wants no answer. Push then pull of M bytes by N workers over S servers takes 2·N·M/(S·B) when the
servers' links are the narrow ones.

Failure: a worker or a server that dies ends the run.
"""

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from strategies.bounds import Fraction
from strategies.codecs import Codec, Encoder, Name, decode
from strategies.multiple import Multiple
from strategies.node import Contribution, Message, Node, Vector
from strategies.placement import cut
from strategies.rules import Arrival, Rule
from strategies.touched import Counting


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

    Each shard travels in `parts` messages. What is pushed goes through a codec, which with error feedback
    adds to each push what it left out of the last one.
    """

    def __init__(
        self,
        node: Node,
        *,
        codec: Name = "none",
        codec_ratio: Fraction = 0.01,
        error_feedback: bool = True,
    ) -> None:
        self.node = node
        self.codec = Codec(codec, codec_ratio)
        self.error_feedback = error_feedback
        self.batches_pushed = 0
        self.encoders: dict[tuple[int, int], Encoder] = {}
        self.cut(1)

    def cut(self, parts: int) -> None:
        """Let each shard travel in so many messages from now on."""
        self.slices = [part for shard in self.node.shards for part in parts_of(shard, parts)]
        self.addresses = [(server, part) for server in self.node.parents for part in range(parts)]
        self.firsts = [(server, number - part) for number, (server, part) in enumerate(self.addresses)]
        self.versions = [0] * len(self.slices)

    def pull(self) -> Awaitable[Vector]:
        """Ask every server for its shard; all parameters, shape (n,)."""
        for server in self.node.parents:
            self.node.send(server, "pull")
        return self.answers()

    async def push_pull(self, update: Vector) -> Vector:
        """Push an update of shape (n,) and wait for the new parameters, shape (n,)."""
        await self.push(update)
        return await self.answers()

    async def push(self, update: Vector, kind: str = "push") -> list[Awaitable[None]]:
        """Push an update of shape (n,); awaiting what this gives waits until it has left."""
        batches = self.batches()
        return [
            await self.push_part(number, update[part], batches, kind)
            for number, part in enumerate(self.slices)
        ]

    async def commit(self, update: Vector) -> None:
        """Push an update of shape (n,) to which no answer is wanted."""
        await self.push(update, "commit")

    def batches(self) -> int:
        """The mini-batches computed since this was last asked."""
        new = self.node.step - self.batches_pushed
        self.batches_pushed = self.node.step
        return new

    async def push_part(
        self, number: int, update: Vector, batches: int, kind: str = "push"
    ) -> Awaitable[None]:
        """Encode and push one of the slices; awaiting what this gives waits until it has left."""
        server, part = self.addresses[number]
        body = update if self.codec.name == "none" else await self._encoded(server, part, update)
        return self.node.send(server, kind, body, version=self.versions[number], batches=batches, part=part)

    def _encoded(self, server: int, part: int, update: Vector) -> Awaitable[Vector]:
        if (server, part) not in self.encoders:
            self.encoders[server, part] = Encoder(self.node, self.codec, self.error_feedback)
        return self.encoders[server, part].encode(update)

    async def answers(self) -> Vector:
        """Wait for one answer from every server; all parameters, shape (n,)."""
        bodies: list[Any] = [None] * len(self.slices)
        for server, first in self.firsts:
            answer = await self.node.receive("parameters", server)
            number = first + answer.part
            bodies[number], self.versions[number] = answer.body, answer.version
        return self.node.concatenate(bodies)

    async def push_pull_along(self, update: Vector, along: Sequence[Vector]) -> list[Vector]:
        """As `push_pull`, with other vectors of shape (n,) that servers sum likewise; all of them anew."""
        batches = self.batches()
        answers: list[list[Any]] = [[None] * len(self.slices) for _ in range(1 + len(along))]
        for number, (server, piece) in enumerate(zip(self.node.parents, self.slices, strict=True)):
            for part, vector in enumerate(along, 1):
                body = await self._encoded(server, part, vector[piece])
                self.node.send(server, "push", body, version=self.versions[number], part=part)
            await self.push_part(number, update[piece], batches)
        for number, server in enumerate(self.node.parents):
            for _ in answers:
                answer = await self.node.receive("parameters", server)
                answers[answer.part][number] = answer.body
                if answer.part == 0:
                    self.versions[number] = answer.version
        return [self.node.concatenate(bodies) for bodies in answers]

    def leave(self) -> None:
        """Tell the servers that nothing more will come, so that they do not wait for it."""
        for server in self.node.parents:
            self.node.send(server, "leave")


class Shard:
    """A server's part of the parameters, or a part of that, its version, and the rule that updates it."""

    def __init__(self, node: Node, rule: Rule, part: int = 0, parts: int = 1) -> None:
        self.node = node
        self.part = part
        self.parameters = node.initial_parameters()[parts_of(node.shards[node.shard], parts)[part]]
        self.version = 0
        self.rule = rule
        self.state = rule.optimizer.initial
        self.seen = rule.correction.initial if rule.correction else None
        self.passes: dict[tuple[int, bool], int] = {}  # over the shard's memory, by kind of update
        self.pulled: dict[int, dict[int, Vector]] = {}  # by worker, by version: while a push may refer to it

    async def apply(
        self, pushes: Sequence[Message], over: float, weighted: bool = False
    ) -> list[Contribution]:
        """Apply the sum of the pushed updates, in the order given, divided by `over`; whose they were.

        `weighted`: each counts as many times as it holds mini-batches.
        """

        length, codec = len(self.parameters), self.rule.codec
        bodies = [await decode(self.node, push.body, codec, length) for push in pushes]  # type: ignore[arg-type]

        def work() -> Vector:
            updates = [self._corrected(push, body) for push, body in zip(pushes, bodies, strict=True)]
            if weighted:
                updates = [update * push.batches for update, push in zip(updates, pushes, strict=True)]
            step, self.state = self.rule.optimizer.step(Multiple(1 / over, sum_of(updates)), self.state)
            return self.parameters + step  # type: ignore[no-any-return]

        kind = len(pushes), weighted
        if kind not in self.passes:
            self.passes[kind] = passes_of(self.rule, *kind)
        self.parameters = await self.node.apply(work, self.passes[kind] * self.parameters.nbytes)
        contributions: list[Contribution] = []
        for push in pushes:
            contributions += push.contributions(self.version)
        self.version += 1
        return contributions

    def _corrected(self, push: Message, update: Any) -> Any:
        correction = self.rule.correction
        if correction is None:
            return update
        pulled = self.parameters
        if correction.looks_back:
            pulled = self.pulled[push.sender][push.version]
            self._forget(push)
        arrival = Arrival(self.version - push.version, self.parameters, pulled)
        update, self.seen = correction.correct(update, arrival, self.seen)
        return update

    def _forget(self, push: Message) -> None:
        """Keep what later pushes of that worker may come from."""
        kept = self.pulled.get(push.sender, {})
        self.pulled[push.sender] = {v: vector for v, vector in kept.items() if v >= push.version}

    def drop(self, push: Message) -> None:
        """Throw a push away, and tell the engine."""
        self._forget(push)
        self.node.dropped(push)

    async def update(self, pushes: Sequence[Message], over: float, weighted: bool = False) -> None:
        """Apply, and tell the engine."""
        contributions = await self.apply(pushes, over, weighted)
        await self.node.updated(self.version, self.parameters, contributions)

    async def mean_update(self, pushes: Sequence[Message]) -> None:
        """Apply the mean of the workers' updates, in the order of ranks, and tell the engine."""
        await self.update(sorted(pushes, key=lambda push: push.sender), count(pushes))

    def answer(self, worker: int) -> None:
        """Send the parameters to a worker (or a relay), without waiting for them to get there."""
        parameters = self.parameters
        if self.rule.correction is not None and self.rule.correction.looks_back:
            self.pulled.setdefault(worker, {})[self.version] = parameters
        if self.rule.optimizer.ahead is not None:
            parameters = parameters + self.rule.optimizer.ahead(self.state)
        self.node.send(worker, "parameters", parameters, version=self.version, part=self.part)


def passes_of(rule: Rule, pushes: int, weighted: bool) -> int:
    """How often an update with so many pushes reads or writes a vector as long as the shard."""
    tally = [0]
    vector: Any = Counting(tally)
    state, seen = rule.optimizer.initial, rule.correction.initial if rule.correction else None
    for _ in range(2):  # the moments are vectors from the second update on
        tally[0] = 0
        updates: list[Any] = [Counting(tally) for _ in range(pushes)]
        if rule.correction:
            arrival = Arrival(1, vector, Counting(tally))  # type: ignore[arg-type]
            for number, update in enumerate(updates):
                updates[number], seen = rule.correction.correct(update, arrival, seen)
        total: Any = sum_of([update * 2 for update in updates] if weighted else updates)
        step, state = rule.optimizer.step(Multiple(0.5, total), state)
        vector = vector + step
    return tally[0]


def sum_of(bodies: Sequence[Any]) -> Vector:
    """The sum of vectors, in the order given."""
    total = bodies[0]
    for body in bodies[1:]:
        total = total + body
    return total  # type: ignore[no-any-return]


def count(pushes: Iterable[Message]) -> int:
    """How many workers' updates are in the pushes."""
    return sum(len(push.pushed_by) for push in pushes)
