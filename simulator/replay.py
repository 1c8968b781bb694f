"""Repeats a real run in virtual time: every node is told what it was told there, in the same order.

What happens next at a node is the log's to say (`Entry` in analysis/entries.py). When it happens is the
simulated cluster's: messages travel and gradients take their time. An activity for which the log has no more
entries has come to where the run ended for it.

A job that failed and went on has lives, one after the other, whose logs each begin with an entry `life`.
Each life begins with the checkpoint that the replay of those before has come to.
"""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, Never

import pandas as pd

from lockstep.analysis.entries import HAPPENS, LIFE, TOLD, Entry
from lockstep.analysis.records import join
from lockstep.analysis.result import Result
from lockstep.job.ending import Ending
from lockstep.job.events import Event, Retired, passed_on
from lockstep.job.incarnation import FIRST, Incarnation, Saved, cut, for_everyone
from lockstep.job.node import Node
from lockstep.job.plan import Plan
from lockstep.job.port import Arrival, PassOf, Port, Work
from lockstep.simulator.engine import Progress, Simulation, no_garbage
from lockstep.simulator.errors import SimulationError
from lockstep.simulator.events import Process, Scheduled
from lockstep.strategies.collectives import RING
from lockstep.strategies.node import Collective, Group, Message, Vector
from lockstep.strategies.strategy import Program
from lockstep.workloads import learning


class Divergence(SimulationError):
    """The log is not of a run of this scenario with this code."""


class LogEnds(BaseException):
    """A node was killed here."""


class ReplayedPort:
    """See `job.port.Port` for what each member means: the counterpart of the executor's RecordedPort."""

    def __init__(self, port: Port, name: str, entries: Sequence[Entry], killed: bool = False) -> None:
        """killed: whether the log may end anywhere."""
        self.entries, self.killed = entries, killed
        self.done = 0  # entries that have been
        self.unbegun: set[Coroutine[Any, Any, None]] = set()  # programs that never had a turn
        self.take_in: Callable[[Arrival], None]  # the node's
        self._port, self.clock, self._name = port, port.clock, name
        self._started = 0  # activities beside the program
        self._going_on = False  # whether an activity does
        self._waiting: dict[int, tuple[Event | None, Event]] = {}  # activities: for what, and for their turn
        self._events: list[tuple[str, Event]] = []  # that this port gave the node
        self._due: dict[int, Any] = {}  # those that may happen, and their values
        self._wanted = {(entry.kind, entry.peer) for entry in entries if entry.word == "message"}
        self._mail: dict[tuple[str, int, int], Arrival] = {}  # by kind, sender and number
        self._numbers: Counter[tuple[str, int]] = Counter()

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
        while not self._going_on and self.done < len(self.entries):
            place, entry = self.done, self.entries[self.done]
            if entry.word == "message":
                arrival = self._mail.pop((entry.kind, entry.peer, entry.number), None)
                if arrival is None:
                    return
                self.done += 1
                if arrival.message.version != entry.version:
                    self._misfit(place, f"its version is {arrival.message.version}, and was {entry.version}")
                self.take_in(arrival)
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
        if entry is None and self.killed:
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

    def keep(self, arrival: Arrival) -> None:
        """Keep a message until it is its turn.

        One of a ring that the log does not know is a native collective's. Others that it does not know came
        after the end of the real run.
        """
        key = arrival.message.kind, arrival.message.sender
        if key not in self._wanted and arrival.message.kind == RING:
            self.take_in(arrival)
            return
        self._numbers[key] += 1
        self._mail[*key, self._numbers[key]] = arrival
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
        return self._port.post(to, message)

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

    def cost(self, nbytes: int, codec: str = "", decoding: bool = False) -> float:
        return self._port.cost(nbytes, codec, decoding)

    def collective(
        self, program: Collective, vector: Vector, among: Group | None = None
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


@dataclass
class Life:
    """Of a job: what it began with, and the log of each of its nodes."""

    begins: Incarnation
    logs: defaultdict[int, list[Entry]] = field(default_factory=lambda: defaultdict(list))


def lives_of(interleaving: pd.DataFrame) -> list[Life]:
    """The lives of the job, each with its number: one, if it was not made to fail."""
    found: dict[int, Life] = {}
    now: dict[int, Life] = {}  # of each node
    for entry in map(Entry._make, interleaving[list(Entry._fields)].itertuples(index=False)):
        if entry.word == LIFE:
            begins = Incarnation(entry.peer, entry.answer, entry.version)
            life = now[entry.node] = found.setdefault(entry.peer, Life(begins))
            steps = {**life.begins.steps, entry.node: entry.number}
            life.begins = replace(life.begins, steps=steps)
        else:
            life = now.setdefault(entry.node, found.setdefault(0, Life(FIRST)))
            life.logs[entry.node].append(entry)
    return [found[number] for number in sorted(found)]


class Replay(Simulation):
    """A life of the job: a simulation that ends where the logs do."""

    def __init__(self, plan: Plan, life: Life, begins: Incarnation, next_version: int | None) -> None:
        """next_version: of the checkpoint that the next life goes on from; None: this is the last one."""
        self.logs, self._next_version = life.logs, next_version
        self.saved: dict[int, Saved] = {}
        """What nodes have written of that checkpoint."""
        self.replayed: list[ReplayedPort] = []
        super().__init__(plan, shortcuts=False, incarnation=begins)

    def stands_on(self, rank: int) -> tuple[Port, Ending]:
        name = f"{self.roles[rank].name} (rank {rank})"
        killed = self._next_version is not None
        port = ReplayedPort(super().stands_on(rank)[0], name, self.logs[rank], killed)
        self.replayed.append(port)
        return port, Ending(self.plan, port.count, lambda: None, self.incarnation.versions(self.plan))

    def _node(self, rank: int, incarnation: Incarnation | None = None) -> Node:
        node = super()._node(rank, incarnation)
        node.keep = lambda saved: lambda: self._keep(rank, saved)
        return node

    def _keep(self, rank: int, saved: Saved) -> None:
        if saved.version == self._next_version:
            self.saved[rank] = saved

    def begin(self, node: Node, program: Program) -> Process:
        port = self.replayed[node.rank]
        port.take_in, self.inboxes[node.rank] = node.take_in, port.keep
        return self.start(node.rank, port.run(program(node)), node.end)

    def count_step(self) -> None:
        """Tell how much of the log has been."""
        self.steps += 1
        if self.progress is not None and self.steps % 64 == 0:
            done = sum(port.done for port in self.replayed)
            self.progress(done / sum(map(len, self.logs.values())))

    def run(self, progress: Progress | None = None) -> None:
        """Let time pass until nothing more happens. Raises Divergence if that is not the end of the log."""
        self.progress = progress
        try:
            with no_garbage():
                self.environment.run()
        finally:
            for program in [program for port in self.replayed for program in port.unbegun]:
                program.close()
        stuck = [port for port in self.replayed if port.done < len(port.entries)]
        if stuck:  # who has the most left first: nearer to the cause than those who only wait for it
            stuck.sort(key=lambda port: port.done - len(port.entries))
            more = f"; and {len(stuck) - 3} more nodes" if len(stuck) > 3 else ""
            raise Divergence("; ".join(port.stuck() for port in stuck[:3]) + more)

    def checkpoint(self) -> dict[int, Saved]:
        """Of each rank, what the next life goes on from. Raises Divergence if it has not been written."""
        if missing := sorted({*self.plan.savers} - {*self.saved}):
            name = self.roles[missing[0]].name
            raise Divergence(f"{name} does not write the checkpoint of version {self._next_version}")
        return for_everyone(self.plan, self.saved)


def replay(plan: Plan, interleaving: pd.DataFrame, progress: Progress | None = None) -> Result:
    """Repeat the real run that left this log (a row an `Entry`); raises Divergence if it cannot."""
    nodes = interleaving["node"].nunique()
    if nodes != len(plan.roles) or interleaving["node"].max() >= nodes:
        raise Divergence(f"it is of {nodes} nodes, and the scenario has {len(plan.roles)}")
    lives = lives_of(interleaving)
    frames, saved = list[pd.DataFrame](), dict[int, Saved]()
    with learning() if plan.scenario.workload.learns else nullcontext():
        for number, life in enumerate(lives):
            following = lives[number + 1].begins.version if number + 1 < len(lives) else None
            simulation = Replay(plan, life, replace(life.begins, saved=saved), following)
            simulation.run(progress and partial(_part, progress, number, len(lives)))
            result = simulation.result()
            if following is None:
                break
            if following > life.begins.version:
                saved = simulation.checkpoint()
            now = simulation.environment.now
            gone = [(owner, following, inf) for owner in plan.owners.ranks]
            frames.append(cut(result.records, [(rank, now) for rank in simulation.nodes], gone))
    if not frames:
        return result
    records = join([*frames, result.records])
    return replace(result, records=records, utilisation=None)


def _part(progress: Progress, number: int, lives: int, done: float) -> None:
    progress((number + done) / lives)
