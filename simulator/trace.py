"""What the programs of nodes do in a mini-batch, written down once, to be done again without them.

A strategy that `repeats` does the same in every mini-batch, whatever the time. Its programs run here by the
sizes of vectors, without a clock: all go on until they wait for messages, then all messages are handed over.
What they do in the second mini-batch must be what they do in the first one; what comes before and after all
mini-batches is kept too. A server is in the mini-batch in which its workers have sent what it has received.

`Untraceable`: what a program does depends on the time, or it is not known here how long it takes.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from itertools import pairwise
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from lockstep.job.mailbox import matches
from lockstep.job.member import Member, part_of
from lockstep.job.port import Cost
from lockstep.simulator.errors import Untraceable
from lockstep.simulator.operations import (
    Compute,
    Computed,
    Operation,
    Receive,
    ReceiveAny,
    Reply,
    Send,
    Sent,
    Trace,
    Update,
    Work,
)
from lockstep.strategies.codecs import Codec
from lockstep.strategies.collectives import ring
from lockstep.strategies.node import Collective, Contribution, Group, Message, Source, Vector

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation

T = TypeVar("T")
_BATCHES = 2
_MOST = 2_000_000  # operations, some 0.5 GB and 20 s; programs that do more are quadratic, as a rule


def traces(simulation: "Simulation", rings: bool) -> list[Trace]:
    """Of all nodes, in the order of ranks; rings: those of all workers can be traced. Raises Untraceable."""
    nodes = [_Node(simulation, rank, rings) for rank in range(len(simulation.roles))]
    for node in nodes:
        node.begin(simulation.plan.program(node.rank)(node), nodes)  # type: ignore[arg-type]
    try:
        going, room = nodes, _MOST
        while going:
            for node in going:
                room -= node.go_on(room)
            going = [node for node in nodes if node.take_in()]
        found = [node.trace() for node in nodes]
    except Untraceable:
        raise
    except Exception as error:
        raise Untraceable("it fails") from error
    finally:
        for node in nodes:
            node.close()
    _check_that_all_is_received(found)
    return [each if node.is_worker else node.answering(each) for node, each in zip(nodes, found, strict=True)]


def _check_that_all_is_received(found: Sequence[Trace]) -> None:
    """In the mini-batch in which it is sent."""
    for span in ("before", "again", "after"):
        sent, received = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for rank, trace in enumerate(found):
            operations = getattr(trace, span)
            sent.update((rank, each.to) for each in operations if isinstance(each, Send))
            received.update((each.sender, rank) for each in operations if isinstance(each, Receive))
        if sent != received:
            raise Untraceable("messages are left")


class _Came(NamedTuple):
    """A message, its place among all from its sender, and the mini-batch that this was in."""

    place: int
    batch: int
    message: Message


class _ByMessages:
    """Of a port, what a collective asks for."""

    @staticmethod
    def collective(program: Collective, vector: Vector, among: Group | None = None, beside: int = 0) -> None:
        """No shorter way."""


class _Mail(Awaitable[Message]):
    """A message that is waited for. It is taken when this is awaited."""

    def __init__(self, node: "_Node", kind: str | None, sender: int | None, part: int | None) -> None:
        self._node, self._wanted = node, (kind, sender, part)

    def __await__(self) -> Generator[None, None, Message]:
        while (found := self._node.take(*self._wanted)) is None:
            yield
        return found


class _Wait(Awaitable[T]):
    """Writes down that something is waited for, which then is there."""

    def __init__(self, node: "_Node", operation: Callable[[], Operation], value: T) -> None:
        self._node, self._operation, self._value = node, operation, value

    def __await__(self) -> Generator[None, None, T]:
        self._node.write(self._operation())
        return self._value
        yield


class _Node:
    """What a program that can be traced needs of `strategies.Node`, where each member means the same."""

    goes_on, rejoins, saved, port = False, False, None, _ByMessages

    def __init__(self, simulation: "Simulation", rank: int, rings: bool) -> None:
        real = simulation.nodes[rank]
        self._cost, self.rank, self._rings = real.port.cost, rank, rings
        self.is_worker = rank in simulation.plan.workers
        self.index, self.workers, self.hosts = real.index, real.workers, real.hosts
        self.parents, self.children, self.followers = real.parents, real.children, real.followers
        self.shards, self.shard = real.shards, real.shard
        self.arithmetic = arithmetic = real.arithmetic
        self.vector = arithmetic.vector
        self.concatenate, self.to_send = arithmetic.concatenate, arithmetic.to_send
        self.add, self.add_parts = arithmetic.add, arithmetic.add_parts
        self.loss = nan
        self._operations: list[Operation] = []
        self._most = 0
        self._programs: list[Coroutine[Any, Any, None]] = []
        self._over = False
        self._others: Sequence[_Node] = ()
        self._mail: list[_Came] = []
        self._coming: list[_Came] = []
        self._began: list[int] = []  # with which operation each mini-batch does
        self._anybody: list[int] = []  # operations that are waiting for anybody's message
        self.step = self._sent = 0
        self._to, self._from = Counter[int](), Counter[int]()
        self._asks = False
        self._collectives = 0  # in which it is, one in the other
        self._met: dict[Group, int] = {}

    def begin(self, program: Coroutine[Any, Any, None], others: Sequence["_Node"]) -> None:
        """Have a program, and others by their ranks."""
        self._programs.append(program)
        self._others = others

    def go_on(self, room: int) -> int:
        """Let the program run until it waits for a message; the operations that it did, of which there may be
        so many."""
        before = len(self._operations)
        self._most = before + room
        try:
            if not self._over:
                self._programs[0].send(None)
        except StopIteration:
            self._over = True
            for program in self._programs[1:]:
                program.send(None)
        return len(self._operations) - before

    def take_in(self) -> bool:
        """Have the messages that have been sent meanwhile; whether there are any."""
        self._mail += self._coming
        came = bool(self._coming)
        self._coming.clear()
        return came

    def close(self) -> None:
        """Nothing goes on."""
        for program in self._programs:
            program.close()

    def __getattr__(self, name: str) -> NoReturn:
        raise Untraceable(name)

    def write(self, operation: Operation) -> None:
        """Write down what the program does."""
        if len(self._programs) > 1:
            self._refuse("does several things at once")
        if len(self._operations) == self._most:
            self._refuse("does too much")
        self._operations.append(operation)

    def _refuse(self, why: str) -> NoReturn:
        raise Untraceable(f"rank {self.rank} {why}")

    def trace(self) -> Trace:
        """What it has done."""
        made, places = self._operations, self._began
        if self.is_worker and not self._over:
            self._refuse("waits for ever")
        if not self.is_worker:
            places = [*places, *[len(made)] * (_BATCHES + 1 - len(places))]
        if len(places) != _BATCHES + 1:
            self._refuse("has mini-batches of its own")
        before, again, second = [made[begin:end] for begin, end in pairwise([0, *places[:-1], places[-1]])]
        gradients = [each for each in again if isinstance(each, Compute)]
        if again != second or len(gradients) != self.is_worker or (gradients and Computed(0) not in again):
            self._refuse("does not do the same in each mini-batch")
        if self._in_several_places():
            self._refuse("may do something else if messages come in another order")
        return Trace(before, again, made[places[-1] :])

    def _in_several_places(self) -> bool:
        """Whether it does something between messages of anybody in a mini-batch."""
        begin, end = self._began[0], self._began[1]
        places = [place for place in self._anybody if begin <= place < end]
        return bool(places) and places[-1] - places[0] >= len(places)

    def answering(self, trace: Trace) -> Trace:
        """The same if, before its first mini-batch, it answers each by itself, whoever comes first."""
        found: dict[int, list[Operation]] = {}
        sender = -1
        for each in trace.before:
            match each:
                case Receive(sender) if sender not in found:
                    found[sender] = [ReceiveAny()]
                case Send(to, kind, nbytes) if to == sender:
                    found[sender].append(Reply(kind, nbytes))
                case _:
                    self._refuse("does not only answer before its first mini-batch")
        answers = [*found.values()]
        if any(each != answers[0] for each in answers):
            self._refuse("does not answer all alike")
        return trace._replace(before=[each for those in answers for each in those])

    # what a program asks for

    def initial_parameters(self) -> Vector:
        initial: Vector = self.arithmetic.initial
        return initial

    async def next_batch_available(self) -> bool:
        self._began.append(len(self._operations))
        return self.step < _BATCHES

    def send(
        self,
        to: int,
        kind: str,
        body: Vector | None = None,
        *,
        version: int = 0,
        batches: int = 0,
        part: int = 0,
        weight: float = 1.0,
        sources: tuple[Source, ...] = (),
    ) -> Awaitable[None]:
        message = Message(kind, self.rank, body, version, batches, part, weight, sources)
        self.write(Send(to, kind, 0 if body is None else body.nbytes))
        self._others[to]._coming.append(_Came(self._to[to], len(self._began), message))
        self._to[to] += 1
        self._sent += 1
        number = self._sent
        return _Wait(self, lambda: Sent(self._sent - number), None)

    def receive(
        self, kind: str | None = None, sender: int | None = None, part: int | None = None
    ) -> Awaitable[Message]:
        if self._asks:
            self._refuse("waits for two messages at once")
        if sender is None and self._collectives:
            self._refuse("may do something else if messages come in another order")
        self._asks = True
        return _Mail(self, kind, sender, part)

    def take(self, kind: str | None, sender: int | None, part: int | None) -> Message | None:
        """The oldest that is there; those of one sender come in their order."""
        for at, (place, batch, message) in enumerate(self._mail):
            if matches(message, kind, sender, part):
                del self._mail[at]
                self._asks = False
                if self._from[message.sender] != place:
                    self._refuse("does not take messages in the order in which they come")
                self._from[message.sender] += 1
                while not self.is_worker and len(self._began) < batch:
                    self._began.append(len(self._operations))
                if sender is None:
                    self._anybody.append(len(self._operations))
                self.write(Receive(message.sender))
                return message
        return None

    def arrived(self, kind: str | None = None) -> bool:
        """Nothing is ever early; whoever `repeats` does the same if it is."""
        return False

    async def gradient(self, parameters: Vector) -> Vector:
        self._compute(())
        self.write(Computed(0))
        return parameters

    def backward(self, parameters: Vector, parts: Sequence[slice]) -> Sequence[Awaitable[Vector]]:
        self._compute(tuple(part.start for part in parts))
        return [_Wait(self, partial(Computed, part.start), parameters[part]) for part in parts]

    def _compute(self, parts: tuple[int, ...]) -> None:
        self.step += 1
        self.write(Compute(parts))

    def apply(self, function: Callable[[], T], nbytes: int) -> Awaitable[T]:
        return self._work(function, self._cost(nbytes), "apply")

    def encode(self, vector: Vector, codec: Codec) -> Awaitable[Vector]:
        cost = self._cost(vector.nbytes, codec.name)
        return self._work(lambda: self.arithmetic.encode(vector, codec, 0), cost, "encode")

    def decode(self, body: Vector, codec: Codec, length: int) -> Awaitable[Vector]:
        cost = self._cost(length * self.arithmetic.itemsize, codec.name, decoding=True)
        return self._work(lambda: self.arithmetic.decode(body, codec, length), cost, "decode")

    async def _work(self, function: Callable[[], T], cost: Cost, kind: str) -> T:
        if cost.seconds:
            self.write(Work(cost.seconds, kind if self.is_worker else None))
        return function()

    async def updated(self, version: int, parameters: Vector, contributions: Sequence[Contribution]) -> bool:
        self.write(Update(version - len(self._began), tuple(contributions)))
        return False

    async def collective(self, program: Collective, vector: Vector, among: Group | None = None) -> Vector:
        self._collectives += 1
        if among is not None:
            number = self._met.get(among, 0)
            self._met[among] = number + 1
            member = Member(self, among, part_of(among, number), begun=False)  # type: ignore[arg-type]
            found = await member.collective(program, vector)
        elif program is ring and not self._rings:
            self._refuse("is in rings that are computed without")
        else:
            found = await program(self, vector)  # type: ignore[arg-type]  # all it needs
        self._collectives -= 1
        return found

    def spawn(self, program: Coroutine[Any, Any, None]) -> None:
        """To answer others, of whom there are none: it may not do anything from here on."""
        self._programs.append(program)
