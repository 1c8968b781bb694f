"""A port of a replayed run, which follows a node's log (`Entry` in analysis/entries.py).

What happens next at a node is the log's to say. When it happens is the simulated cluster's: messages travel
and gradients take their time. An activity for which the log has no more entries has come to where the run
ended for it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isnan
from typing import Any, Never

from lockstep.analysis.entries import HAPPENS, TOLD, Entry
from lockstep.job.events import Event, Retired, passed_on
from lockstep.job.incarnation import Incarnation
from lockstep.job.port import Arrival, Cost, PassOf, Work
from lockstep.simulator.errors import SimulationError
from lockstep.simulator.events import Scheduled
from lockstep.simulator.faults import Told
from lockstep.simulator.port import VirtualPort
from lockstep.strategies.collectives import RING
from lockstep.strategies.node import Collective, Group, Message, Vector


class Divergence(SimulationError):
    """The log is not of a run of this scenario with this code."""


class LogEnds(BaseException):
    """A node was killed here."""


class Mail:
    """What has arrived at a node, whatever life of it, and is not taken in yet."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int, int, int], Arrival] = {}
        self._numbers: Counter[tuple[str, int, int]] = Counter()

    def keep(self, connection: int, arrival: Arrival) -> None:
        """It is the next of its kind, sender and connection."""
        key = arrival.message.kind, arrival.message.sender, connection
        self._numbers[key] += 1
        self._kept[*key, self._numbers[key]] = arrival

    def take(self, kind: str, sender: int, connection: int, number: int) -> Arrival | None:
        """That message, if it is there."""
        return self._kept.pop((kind, sender, connection, number), None)


class ConnectedPort(VirtualPort):
    """Of a node whose messages say by which of its connections they go."""

    __slots__ = ()

    def post_by(self, connection: int, to: int, message: Message) -> Awaitable[None]:
        """As `post`."""
        replay: Any = self.simulation
        nbytes = 0 if message.body is None else message.body.nbytes
        arrived = partial(replay.arrived, to, connection)
        return self._network.send(self.rank, to, nbytes, message, arrived)


@dataclass
class Span:
    """One life of a node: what its log says of it."""

    begins: Incarnation
    entries: list[Entry] = field(default_factory=list)
    killed: bool = False
    """Whether the log may end anywhere."""
    gone: bool = False
    """Whether it is none: nobody takes the place of the one before."""
    anew: bool = False
    """Whether the process is the same, whose server has begun anew: it knows which mini-batch is its."""
    follow: Callable[[], None] | None = None
    """What comes after it."""


class ReplayedPort:
    """See `job.port.Port` for what each member means: the counterpart of the executor's RecordedPort."""

    def __init__(self, port: ConnectedPort, name: str, span: Span, mail: Mail) -> None:
        self.entries, self._ends_anywhere, self._follow = span.entries, span.killed, span.follow
        self.done = 0  # entries that have been
        self.unbegun: set[Coroutine[Any, Any, None]] = set()  # programs that never had a turn
        self.take_in: Callable[[Arrival], None]  # the node's
        self._port, self.clock, self._name = port, port.clock, name
        self._started = 0  # activities beside the program
        self._going_on = False  # whether an activity does
        self._waiting: dict[int, tuple[Event | None, Event]] = {}  # activities: for what, and for their turn
        self._events: list[tuple[str, Event]] = []  # that this port gave the node
        self._due: dict[int, Any] = {}  # those that may happen, and their values
        self._wanted = {(entry.kind, entry.peer) for entry in self.entries if entry.word == "message"}
        self._mail = mail
        self._connections: dict[int, int] = {}

    # ---------------------------------------------------------------- the log's order

    async def run(self, program: Coroutine[Any, Any, None], activity: int = 0) -> None:
        """Run a program; it goes on when the log says so."""
        awaited: Event | None = None
        self.unbegun.add(program)
        try:
            while True:
                self._waiting[activity] = awaited, turn = awaited, Event()
                self._look_soon()
                retires = await turn
                self.unbegun.discard(program)
                awaited = program.throw(Retired()) if retires else program.send(None)
                while isinstance(awaited, Scheduled):  # the real run took its time there, without waiting
                    await passed_on(awaited)
                    awaited = program.send(None)
                self._going_on = False
        except (StopIteration, Retired, LogEnds):
            self._going_on = False
            self._look_soon()

    def _look_soon(self) -> None:
        self._port.wait(0.0).then(lambda _: self._go_on())

    def _go_on(self) -> None:
        """Let happen what the log has next, as far as it may."""
        self._go_on_with_the_log()
        if self.done == len(self.entries) and not self._going_on and self._follow is not None:
            follow, self._follow = self._follow, None
            follow()

    def _go_on_with_the_log(self) -> None:
        while not self._going_on and self.done < len(self.entries):
            place, entry = self.done, self.entries[self.done]
            if entry.word == "message":
                connection = 0 if isnan(entry.answer) else int(entry.answer)
                arrival = self._mail.take(entry.kind, entry.peer, connection, entry.number)
                if arrival is None:
                    return
                self.done += 1
                if arrival.message.version != entry.version:
                    self._misfit(place, f"its version is {arrival.message.version}, and was {entry.version}")
                self.take_in(arrival)
            elif entry.word == "heard":
                self.done += 1
                self.take_in(Told(Message(entry.kind, entry.peer), self.clock.now))
            elif entry.word == "leave":
                self.done += 1
                self.post(entry.peer, Message("leave", self._port.rank))
            elif entry.word in HAPPENS:
                if entry.number < len(self._events) and self._events[entry.number][0] != entry.word:
                    self._misfit(place, f"here this event is a {self._events[entry.number][0]}")
                if entry.number not in self._due:
                    return
                self.done += 1
                self._events[entry.number][1].happen(self._due.pop(entry.number))
            elif entry.word in TOLD:
                self._misfit(place, "the strategy does not ask for it")
            else:
                awaited, turn = self._waiting.get(entry.activity, (None, None))
                if turn is None or (entry.word == "go on" and awaited and awaited.callbacks is not None):
                    return
                del self._waiting[entry.activity]
                self.done += 1
                self._going_on = True
                turn.happen(entry.word == "retire")

    def _answer(self, word: str, kind: str = "") -> Entry:
        """The entry of what a node is told while an activity goes on."""
        entry = self.entries[self.done] if self.done < len(self.entries) else None
        if entry is None and self._ends_anywhere:
            raise LogEnds
        if entry is None or entry.word != word or entry.kind != kind:
            self._misfit(self.done, f"the strategy asks for a {word}")
        self.done += 1
        return entry

    def _misfit(self, place: int, problem: str) -> Never:
        raise Divergence(f"{self._name}, {self._described(place)}: {problem}")

    def _described(self, place: int) -> str:
        if place >= len(self.entries):
            return "after its last entry"
        entry = self.entries[place]
        what = f"{entry.word} {entry.kind}".strip()
        what += f" number {entry.number}" if entry.number >= 0 else ""
        what += f" from rank {entry.peer}" if entry.peer >= 0 else ""
        what += f" of activity {entry.activity}" if entry.activity >= 0 else ""
        return f"entry {place} ({what})"

    def stuck(self) -> str:
        """What the log has next that does not come."""
        waits = self.entries[self.done].word == "message" and not self._going_on
        problem = "no such message comes" if waits else "the strategy does not come to it"
        return f"{self._name}, {self._described(self.done)}: {problem}"

    # ---------------------------------------------------------------- what the node is told

    def keep(self, connection: int, arrival: Arrival) -> None:
        """Keep a message until it is its turn.

        One of a ring that the log does not know is a native collective's. Others that it does not know came
        after the end of the real run.
        """
        key = arrival.message.kind, arrival.message.sender
        if key not in self._wanted and arrival.message.kind == RING:
            self.take_in(arrival)
            return
        self._mail.keep(connection, arrival)
        self._go_on()

    def count(self, name: str) -> int:
        """See `job.ending.Count`."""
        return self._answer("count", name).number

    def _in_order(self, event: Event, word: str) -> Event:
        """What happens after an event of the simulator, and when it is its turn."""
        number, found = len(self._events), Event()

        def due(_: Event) -> None:
            self._due[number] = self._port.clock.now
            self._go_on()

        self._events.append((word, found))
        event.then(due)
        return found

    def tell_time(self) -> float:
        return self._answer("time").answer

    def post(self, to: int, message: Message) -> Awaitable[None]:
        entry = self.entries[self.done] if self.done < len(self.entries) else None
        if entry is not None and entry.word == "connection" and entry.peer == to:
            self.done += 1
            self._connections[to] = entry.number
        return self._port.post_by(self._connections.get(to, 0), to, message)

    def wait(self, seconds: float, working: bool = False) -> Event:
        event = self._port.wait(seconds, working)
        return event if working else self._in_order(event, "wait")

    def compute(
        self, parameters: Any, step: int, down_to: Sequence[int] = (), of: PassOf | None = None
    ) -> Work:
        work = self._port.compute(parameters, step, down_to, of)
        done = self._in_order(work.done, "compute")
        parts = [self._in_order(part, "part") for part in work.parts]
        return Work(work.start, None, done, parts, work.gradient, work.give_up, work.kept)

    def cost(self, nbytes: int, codec: str = "", decoding: bool = False) -> Cost:
        return self._port.cost(nbytes, codec, decoding)

    def collective(
        self, program: Collective, vector: Vector, among: Group | None = None, beside: int = 0
    ) -> Awaitable[Vector] | None:
        return None  # by its messages, as in the log

    async def all_reduce(self, vector: Vector) -> tuple[Vector, int]:
        summed = Event()

        async def sum_() -> None:
            summed.happen(await self._port.all_reduce(vector))
            self._go_on()

        self._port.start(sum_())
        total: tuple[Vector, int] = await summed
        self._answer("all_reduce")
        return total

    def show(self, version: int, part: Vector) -> None:
        """The log says where the run ended."""

    def start(self, program: Coroutine[Any, Any, None]) -> None:
        self._started += 1
        self._port.start(self.run(program, self._started))
