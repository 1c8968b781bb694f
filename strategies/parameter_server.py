"""Both sides of a parameter server whose parameters are cut into one shard per server.

A worker pulls all shards, and pushes its update cut the same way. A server's answer to a push is the new
parameters of its shard: when it answers is the business of its synchronisation model (consistency.py). A
one-way push wants no answer; its message is a "commit".

Push then pull of M bytes by N workers over S servers takes 2·N·M/(S·B) when the servers' links are the narrow
ones.

Failure: servers save parameters and the optimizer's state (recovery.checkpoint); after a crash a server goes
on from there, and a worker by pulling. What was on its way is lost.
"""

from collections.abc import Awaitable, Iterable, Sequence
from itertools import islice
from typing import Annotated, Any

from lockstep.strategies.capped import BytesPerSecond, Cap, CappedEncoder, Flush
from lockstep.strategies.codecs import (
    NAMES,
    Codec,
    Encoder,
    Name,
    PushFeedback,
    PushName,
    Ratio,
    Threshold,
    decode,
)
from lockstep.strategies.corrections import Arrival, UpdateRule
from lockstep.strategies.marks import Excludes
from lockstep.strategies.node import Contribution, Message, Node, Vector
from lockstep.strategies.optimizers import restored
from lockstep.strategies.outer import OuterEncoder, Products
from lockstep.strategies.parts import Part, divided, length, places, taken, together
from lockstep.strategies.rows import RowEncoder, Rows, Store
from lockstep.strategies.updates import passes_of, stepped

_WHOLE = Excludes(
    "rows", "answer_codec", {"answer_codec": NAMES[1:]}, "an answer by rows is sent as it is; leave it out"
)


def shard_of(vector: Vector, index: int, count: int) -> Vector:
    """Part `index` of `count` nearly equal, contiguous parts of a vector."""
    n = len(vector)
    return vector[n * index // count : n * (index + 1) // count]


class ParameterServer:
    """A worker's view of the servers: all parameters, and the version of each part it last pulled.

    Each shard travels in `parts` messages. What is pushed goes through a codec, which with error feedback
    adds to each push what it left out of the last one. With an `answer_codec` a server sends, encoded, what
    is missing from what this worker holds: what one answer leaves out is in the next (`Shard.answer`).
    """

    def __init__(
        self,
        node: Node,
        *,
        codec: Annotated[PushName, _WHOLE] = "none",
        codec_ratio: Ratio = 0.01,
        codec_threshold: Threshold = 0.5,
        codec_bytes_per_s: BytesPerSecond = 5e6,
        codec_flush: Flush = None,
        error_feedback: PushFeedback = True,
        answer_codec: Name = "none",
    ) -> None:
        self.node = node
        self.codec = Codec(codec, codec_ratio, codec_threshold)
        self.cap = Cap(codec_bytes_per_s, codec_flush)
        self.answer_codec = Codec(answer_codec, codec_ratio, codec_threshold)
        self.error_feedback = error_feedback
        self.batches_pushed = node.step
        self.encoders: dict[tuple[int, int], Encoder] = {}
        self.answers_are_parts = codec != "rows" and answer_codec == "none"  # as they come
        self.asked: set[int] = set()  # servers of whose shard a `fetch` is under way
        self.cut(1)

    def cut(self, parts: int) -> None:
        """Let each shard travel in so many messages from now on."""
        self.cut_into([divided(shard, parts) for shard in self.node.shards])

    def cut_into(self, shards: Sequence[Sequence[Part]]) -> None:
        """Let each shard travel in these parts of the whole vector from now on, a message each."""
        self.parts = [part for parts in shards for part in parts]
        self.places = places(self.parts)
        self.addresses = [
            (server, part)
            for server, parts in zip(self.node.parents, shards, strict=True)
            for part in range(len(parts))
        ]
        self.numbers = {address: number for number, address in enumerate(self.addresses)}
        self.versions = [0] * len(self.parts)
        self.held: dict[int, Vector] = {}  # by part: where the servers know, if answers are encoded

    def of(self, vector: Vector, number: int) -> Vector:
        """One of the parts of a vector of shape (n,)."""
        part: Vector = taken(vector, self.parts[number], self.node.concatenate)
        return part

    def whole(self, bodies: Sequence[Any]) -> Vector:
        """The vector of shape (n,) that has these parts."""
        vector: Vector = together(bodies, self.places, self.node.concatenate)
        return vector

    def pull(self) -> Awaitable[Vector]:
        """Ask every server for its shard; all parameters, shape (n,)."""
        for server in self.node.parents:
            self.node.send(server, "pull")
        return self.answers()

    def pull_parts(self) -> None:
        """Ask for each part by itself, and say how long it is."""
        for (server, part), each in zip(self.addresses, self.parts, strict=True):
            self.node.send(server, "pull", part=part, batches=length(each))

    async def push_pull(self, update: Vector) -> Vector:
        """Push an update of shape (n,) and wait for the new parameters, shape (n,)."""
        await self.push(update)
        del update  # no memory for it while the answer comes
        return await self.answers()

    async def push(self, update: Vector, kind: str = "push") -> list[Awaitable[None]]:
        """Push an update of shape (n,); awaiting what this gives waits until it has left."""
        batches, node, found = self.batches(), self.node, []
        for number, part in enumerate(self.parts):
            body = taken(update, part, node.concatenate)
            if self.codec.name == "none":  # as `push_part`, without a coroutine
                found.append(self._send(number, body, batches, kind))
            else:
                found.append(await self.push_part(number, body, batches, kind))
        return found

    async def push_one_way(self, update: Vector) -> None:
        """Push an update of shape (n,) to which no answer is wanted."""
        await self.push(update, "commit")

    def backward(self, parameters: Vector) -> list[list[Awaitable[Vector]]]:
        """Compute a gradient, part by part: of each the runs that it consists of."""
        runs = iter(self.node.backward(parameters, [run for part in self.parts for run in part]))
        return [list(islice(runs, len(part))) for part in self.parts]

    def batches(self) -> int:
        """The mini-batches computed since this was last asked."""
        new = self.node.step - self.batches_pushed
        self.batches_pushed = self.node.step
        return new

    async def push_part(
        self, number: int, update: Vector, batches: int, kind: str = "push"
    ) -> Awaitable[None]:
        """Encode and push one of the parts; awaiting what this gives waits until it has left."""
        if self.codec.name != "none":
            update = await self._encoded(*self.addresses[number], number, update)
        return self._send(number, update, batches, kind)

    def _send(self, number: int, body: Vector, batches: int, kind: str) -> Awaitable[None]:
        server, part = self.addresses[number]
        return self.node.send(server, kind, body, version=self.versions[number], batches=batches, part=part)

    def _encoded(self, server: int, part: int, number: int, update: Vector) -> Awaitable[Vector]:
        if (server, part) not in self.encoders:
            self.encoders[server, part] = self._encoder(self.parts[number])
        return self.encoders[server, part].encode(update)

    def _encoder(self, part: Part) -> Encoder:
        if self.codec.name == "outer":
            return OuterEncoder(self.node, part)
        if self.codec.name == "rows":
            return RowEncoder(self.node, Rows(self.node, part))
        if self.codec.name != "capped":
            return Encoder(self.node, self.codec, self.error_feedback)
        share = length(part) / max(1, sum(map(length, self.parts)))
        return CappedEncoder(self.node, self.cap, share, self.error_feedback)

    async def answers(self) -> Vector:
        """Wait for one answer from every server; all parameters, shape (n,)."""
        bodies: list[Any] = [None] * len(self.parts)
        for server, _ in self.addresses:
            answer = await self.node.receive("parameters", server)  # as `answer`, without a coroutine
            number = self._number(answer)
            bodies[number] = answer.body if self.answers_are_parts else await self._decoded(number, answer)
        return self.whole(bodies)

    async def answer(self, server: int | None = None, part: int | None = None) -> tuple[int, Vector, int]:
        """Wait for one answer, of any server if none is given: the part's number, the part, its clock."""
        answer = await self.node.receive("parameters", server, part)
        number = self._number(answer)
        body: Any = answer.body if self.answers_are_parts else await self._decoded(number, answer)
        return number, body, answer.batches

    def _number(self, answer: Message) -> int:
        """The part that an answer has; its version is known from now on."""
        number = self.numbers[answer.sender, answer.part]
        self.versions[number] = answer.version
        return number

    def fetch(self) -> None:
        """Ask for those shards for which nobody has asked, or that have come since."""
        for server in self.node.parents:
            if server not in self.asked:
                self.asked.add(server)
                self.node.send(server, "pull")

    async def fetched(self, parameters: Vector) -> Vector:
        """These parameters, of shape (n,), with those shards anew that have come since; does not wait."""
        if not self.node.arrived("parameters"):
            return parameters
        shards = [self.of(parameters, number) for number in range(len(self.parts))]
        while self.node.arrived("parameters"):
            number, shards[number], _ = await self.answer()
            self.asked.discard(self.addresses[number][0])
        return self.whole(shards)

    async def drain(self) -> None:
        """Wait for what was asked for and is no longer needed."""
        for server in sorted(self.asked):
            await self.answer(server)

    async def _decoded(self, number: int, answer: Message) -> Vector:
        body: Any = answer.body
        if self.codec.name == "rows":
            return self._with_rows(number, body)
        if self.answers_are_parts:
            return body  # type: ignore[no-any-return]
        held = self.held.get(number)
        held = self.of(self.node.initial_parameters(), number) if held is None else held
        self.held[number] = held + await decode(self.node, body, self.answer_codec, len(held))
        return self.held[number]

    def _with_rows(self, number: int, body: Any) -> Vector:
        known = self.held.get(number)  # the first answer has all rows
        if known is not None:
            encoder = self.encoders[self.addresses[number]]
            assert isinstance(encoder, RowEncoder), "it is answered by rows after a push by rows"
            body, _ = encoder.rows.put(body, known)
        self.held[number] = body
        return body  # type: ignore[no-any-return]

    async def push_pull_along(self, update: Vector, along: Sequence[Vector]) -> list[Vector]:
        """As `push_pull`, with other vectors of shape (n,) that servers sum likewise; all of them anew."""
        batches = self.batches()
        answers: list[list[Any]] = [[None] * len(self.parts) for _ in range(1 + len(along))]
        for number, server in enumerate(self.node.parents):
            for part, vector in enumerate(along, 1):
                body = await self._encoded(server, part, number, self.of(vector, number))
                self.node.send(server, "push", body, version=self.versions[number], part=part)
            await self.push_part(number, self.of(update, number), batches)
        for number, server in enumerate(self.node.parents):
            for _ in answers:
                answer = await self.node.receive("parameters", server)
                answers[answer.part][number] = answer.body
                if answer.part == 0:
                    answers[0][number] = await self._decoded(number, answer)
                    self.versions[number] = answer.version
        return [self.whole(bodies) for bodies in answers]

    def enlist(self) -> None:
        """Tell the servers how many mini-batches a pass over the own samples has; wait for no answer."""
        for server in self.node.parents:
            self.node.send(server, "pull", batches=self.node.epoch)

    async def called(self) -> tuple[Vector, int] | None:
        """Wait until the (only) server chooses this worker: the parameters, and how many steps to make.

        None: it will not be chosen any more.
        """
        (server,) = self.node.parents
        call = await self.node.receive(sender=server)
        if call.body is None:
            return None
        self.versions[0] = call.version
        return await self._decoded(0, call), call.batches

    def leave(self) -> None:
        """Tell the servers that nothing more will come, so that they do not wait for it."""
        for server in self.node.parents:
            self.node.send(server, "leave")


class Shard:
    """A server's part of the parameters, or a part of that, its version, and the rule that updates it."""

    def __init__(
        self, node: Node, rule: UpdateRule, part: int = 0, parts: int = 1, place: Part | None = None
    ) -> None:
        """place: the part of the whole vector, if the shard is not cut evenly."""
        self.node = node
        self.part = part
        place = place or divided(node.shards[node.shard], parts)[part]
        self.parameters: Vector = taken(node.initial_parameters(), place, node.concatenate)
        self.version = 0
        self.rule = rule
        self.state = rule.optimizer.initial
        self.seen = rule.correction.initial if rule.correction else None
        self.passes: dict[tuple[int, bool], int] = {}  # over the shard's memory, by kind of update
        self.pulled: dict[int, dict[int, Vector]] = {}  # by worker, by version: while a push may refer to it
        self.held: dict[int, Any] = dict.fromkeys(node.children, self.parameters)  # if answers are encoded
        if node.saved is not None and part < len(node.saved.state):
            self.version, (self.parameters, state) = node.saved.version, node.saved.state[part]
            self.state = restored(state)
        self.parameters = node.to_send(self.parameters)
        self.store = Store(node, place, self.parameters) if rule.codec.name == "rows" else None
        self.products = Products(node, place) if rule.codec.name == "outer" else None
        self.encoded: tuple[Any, ...] = ()  # the last: from what, to what, the body, what is held with it

    async def apply(
        self, pushes: Sequence[Message], over: float, weights: Sequence[float] | None = None
    ) -> list[Contribution]:
        """Apply the sum of the pushed updates, in the order given, divided by `over`; whose they were.

        With `weights` each counts so many times.
        """

        bodies: list[Any] = [push.body for push in pushes]
        if self.rule.codec.name != "none":
            bodies = [await self._decoded(push) for push in pushes]

        def work() -> Vector:
            updates = bodies
            if self.rule.correction is not None:
                updates = [self._corrected(push, body) for push, body in zip(pushes, bodies, strict=True)]
            step, self.state = stepped(self.rule, updates, bodies, weights, over, self.state, self.parameters)
            return self.node.add(self.parameters, step)

        kind = len(pushes), weights is not None
        if kind not in self.passes:
            self.passes[kind] = passes_of(self.rule, *kind)
        self.parameters = await self.node.apply(work, self.passes[kind] * self.parameters.nbytes)
        self.version += 1
        return [part for push in pushes for part in push.contributions(self.version - 1)]

    async def _decoded(self, push: Message) -> Vector:
        if self.store is not None:
            return self.store.take_in(push)
        body: Any = push.body
        if self.products is not None:
            return await self.products.take_in(body)
        codec = self.rule.codec.of(body, self.parameters)
        return await decode(self.node, body, codec, len(self.parameters))

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
        if self.store is not None:
            self.store.take_in(push)  # what it asks for
        self.node.dropped(push)

    async def update(
        self, pushes: Sequence[Message], over: float, weights: Sequence[float] | None = None
    ) -> None:
        """Apply, and tell the engine."""
        contributions = await self.apply(pushes, over, weights)
        if await self.node.updated(self.version, self.parameters, contributions):
            await self.node.save(self.version, (self.kept,))

    @property
    def kept(self) -> tuple[Any, ...]:
        """What a checkpoint has of it."""
        return self.parameters, self.state

    async def mean_update(self, pushes: Sequence[Message]) -> None:
        """Apply the mean of the workers' updates, in the order of ranks, and tell the engine."""
        await self.update(sorted(pushes, key=lambda push: push.sender), count(pushes))

    async def answer(self, worker: int, count: int = 0) -> None:
        """Send the parameters to a worker (or a relay), without waiting for them to get there.

        `count`: the clock that they are of, or how many mini-batches the worker is to make of them, where one
        of these is the server's to say.
        Encoded answers say how the parameters differ from what that worker holds, of which the server keeps
        count: so nothing is lost, only late, whatever the codec.
        """
        pulled = body = self.parameters
        if self.rule.optimizer.ahead is not None:
            body = body + self.rule.optimizer.ahead(self.state)
        if self.rule.answer_codec.name != "none":
            body, pulled = await self._encoded(worker, body)
        if self.store is not None:
            body = self.store.answer(worker, body)
        if self.rule.correction is not None and self.rule.correction.looks_back:
            self.pulled.setdefault(worker, {})[self.version] = pulled
        self.node.send(worker, "parameters", body, version=self.version, batches=count, part=self.part)

    async def _encoded(self, worker: int, parameters: Vector) -> tuple[Vector, Vector]:
        """What to send, and what the worker then holds. Once for all who hold the same."""
        held, codec = self.held[worker], self.rule.answer_codec
        if not self.encoded or self.encoded[0] is not held or self.encoded[1] is not parameters:
            body = await self.node.encode(parameters - held, codec)
            now = held + await decode(self.node, body, codec, len(parameters))
            self.encoded = held, parameters, body, now
        self.held[worker] = self.encoded[3]
        return self.encoded[2:]


def count(pushes: Iterable[Message]) -> int:
    """How many workers' updates are in the pushes."""
    return sum(len(push.pushed_by) for push in pushes)
