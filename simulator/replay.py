"""Repeats a real run in virtual time: every node's words answer as they did there.

Which message a node receives next, whether there is one, who of its activities goes on: that is the log's to
say (`Entry` in analysis/records.py). When it happens is the simulated cluster's: messages travel and
gradients take their time. A node whose log is at its end has come to where the run ended for it.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import nullcontext
from typing import Any, Never

import pandas as pd

from lockstep.analysis.records import Entry, Result
from lockstep.job.ending import Ending, Endless
from lockstep.job.events import Event
from lockstep.job.node import Node
from lockstep.job.plan import Plan
from lockstep.job.port import Arrival
from lockstep.job.through import Through
from lockstep.simulator.engine import Progress, Simulation, no_garbage
from lockstep.simulator.errors import SimulationError
from lockstep.simulator.events import Environment, Process, soon
from lockstep.strategies import Collective, Contribution, Message, Vector
from lockstep.strategies.strategy import Program
from lockstep.workloads import deterministic_threads


class Divergence(SimulationError):
    """The log is not of a run of this scenario with this code."""


class ReplayedNode(Through):
    """A simulated node as its strategy sees it: the counterpart of the executor's LoggedNode.

    One activity has the turn. In a word that has an entry it gives that up, and goes on when it is the
    entry's turn.
    """

    def __init__(self, node: Node, environment: Environment, name: str, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.done = 0  # entries that have been
        super().__init__(node)
        self._environment = environment
        self._name = name
        self._own: defaultdict[int, deque[tuple[int, Entry]]] = defaultdict(deque)  # by activity
        for place, entry in enumerate(entries):
            self._own[entry.activity].append((place, entry))
        self._activity: int | None = None  # whose turn it is
        self._spawned = 0
        self._waiting: dict[int, Event] = {}  # for the turn of an entry
        self._wanted = {(entry.kind, entry.peer) for entry in entries if entry.word == "receive"}
        self._mail: dict[tuple[str, int, int], Message] = {}  # by kind, sender and number
        self._numbers: Counter[tuple[str, int]] = Counter()
        self._awaited: tuple[tuple[str, int, int], Event] | None = None

    async def run(self, program: Coroutine[Any, Any, None], activity: int = 0) -> None:
        """Run a program in turns with the node's other activities."""
        try:
            await self._turn(await self._next(activity, "begin"))
        except BaseException:
            program.close()  # it has never come to its beginning
            raise
        await program
        self._give_up_turn()

    async def _asked(self, word: str) -> tuple[int, Entry]:
        """Let others have the turn; what the log has next for this activity."""
        assert self._activity is not None
        activity = self._activity
        self._give_up_turn()
        return await self._next(activity, word)

    async def _next(self, activity: int, word: str) -> tuple[int, Entry]:
        if not self._own[activity]:
            await Event()  # for ever: here the real run ended
        place, entry = self._own[activity].popleft()
        if entry.word != word:
            self._misfit(place, f"the strategy calls {word}")
        return place, entry

    async def _turn(self, next_: tuple[int, Entry]) -> Entry:
        """Wait for the turn of an entry."""
        place, entry = next_
        if place != self.done or self._activity is not None:
            self._waiting[place] = moment = Event()
            await moment
        self._activity = entry.activity
        self.done += 1
        return entry

    def _give_up_turn(self) -> None:
        self._activity = None
        waiting = self._waiting.pop(self.done, None)
        if waiting is not None:
            soon(self._environment, waiting)

    def _at_once(self, word: str, kind: str | None = None) -> Entry:
        """The entry of a word that does not wait."""
        assert self._activity is not None
        own = self._own[self._activity]
        if not own or own[0][0] != self.done or own[0][1].word != word or own[0][1].kind != (kind or ""):
            self._misfit(self.done, f"the strategy calls {word}")
        self.done += 1
        return own.popleft()[1]

    def _misfit(self, place: int, problem: str) -> Never:
        raise Divergence(f"{self._name}, {self._described(place)}: {problem}")

    def _described(self, place: int) -> str:
        if place >= len(self.entries):
            return "after its last entry"
        entry = self.entries[place]
        what = f"{entry.word} {entry.kind}".strip()
        if entry.word == "receive":
            what += f" number {entry.number} from rank {entry.peer}"
        return f"entry {place} ({what})"

    def stuck(self) -> str:
        """What it waits for that does not come."""
        if self._awaited is not None:
            return f"{self._name}, {self._described(self.done - 1)}: no such message comes"
        return f"{self._name}, {self._described(self.done)}: the strategy does not come to it"

    def take_in(self, arrival: Arrival) -> None:
        """Keep a message that has arrived, until it is its turn."""
        self.node.take_in(arrival)
        message = arrival.message
        key = message.kind, message.sender
        if key not in self._wanted:
            return
        number = self._numbers[key] = self._numbers[key] + 1
        self._mail[*key, number] = message
        if self._awaited is not None and self._awaited[0] == (*key, number):
            (_, there), self._awaited = self._awaited, None
            there.happen()

    @property
    def now(self) -> float:
        return self._at_once("now").answer

    async def receive(self, kind: str | None = None, sender: int | None = None) -> Message:
        entry = await self._turn(await self._asked("receive"))
        place, key = self.done - 1, (entry.kind, entry.peer, entry.number)
        if kind not in (None, entry.kind) or sender not in (None, entry.peer):
            self._misfit(place, f"the strategy wants {kind or 'any'} from {sender}")
        if key not in self._mail:
            self._awaited = key, Event()
            await self._awaited[1]
        message = self._mail.pop(key)
        self.node.mail.remove(message)
        if message.version != entry.version:
            self._misfit(place, f"its version is {message.version}, and was {entry.version}")
        return message

    def arrived(self, kind: str | None = None) -> bool:
        return bool(self._at_once("arrived", kind).answer)

    async def next_batch_available(self) -> bool:
        return bool((await self._turn(await self._asked("next_batch_available"))).answer)

    async def gradient(self, parameters: Vector) -> Vector:
        next_ = await self._asked("gradient")
        gradient = await self.node.gradient(parameters)
        await self._turn(next_)
        return gradient

    async def gradient_unless(self, parameters: Vector, kind: str) -> Vector | None:
        next_ = await self._asked("gradient_unless")
        node, gradient, (_, entry) = self.node, None, next_
        if entry.answer:
            gradient = await node.gradient(parameters)
        elif entry.number:
            await self._give_up(parameters, kind)
        await self._turn(next_)
        return gradient

    async def _give_up(self, parameters: Vector, kind: str) -> None:
        """Begin a gradient, and end it when such a message is there, at the latest when it is computed."""
        node, step, loss = self.node, self.node.step, self.node.loss
        await node.gradient_unless(parameters, kind)
        node.loss = loss
        if node.step == step:  # the message is there already
            number, work = node._begin(parameters)
            work.give_up()
            node.recorder.gradient(node.rank, work.start, work.start, number)

    def collective(self, program: Collective, vector: Vector) -> Awaitable[Vector]:
        return program(self, vector)

    async def all_reduce(self, vector: Vector) -> Vector:
        next_ = await self._asked("all_reduce")
        total = await self.node.all_reduce(vector)
        await self._turn(next_)
        return total

    async def updated(self, version: int, parameters: Vector, contributions: Sequence[Contribution]) -> None:
        entry = await self._turn(await self._asked("updated"))
        if version != entry.version:
            self._misfit(self.done - 1, f"the version is {version}, and was {entry.version}")
        await self.node.updated(version, parameters, contributions)
        if entry.answer:
            self._give_up_turn()
            await Event()  # for ever: this update was the last

    def spawn(self, program: Coroutine[Any, Any, None]) -> None:
        self._spawned += 1
        self.node.spawn(self.run(program, self._spawned))

    async def sleep(self, seconds: float) -> None:
        next_ = await self._asked("sleep")
        await self.node.sleep(seconds)
        await self._turn(next_)


class Replay(Simulation):
    """A simulation that ends where the logs do."""

    def __init__(self, plan: Plan, interleaving: pd.DataFrame) -> None:
        self.logs: defaultdict[int, list[Entry]] = defaultdict(list)
        for entry in map(Entry._make, interleaving[list(Entry._fields)].itertuples(index=False)):
            self.logs[entry.node].append(entry)
        self.replayed: list[ReplayedNode] = []
        nodes = len(plan.roles)
        if sorted(self.logs) != [*range(nodes)]:
            raise Divergence(f"it is of {len(self.logs)} nodes, and the scenario has {nodes}")
        super().__init__(plan, shortcuts=False)  # collectives by their messages, as in the log

    def begin(self, node: Node, program: Program) -> Process:
        role = self.roles[node.rank]
        name = f"{role.name} (rank {node.rank})"
        replayed = ReplayedNode(node, self.environment, name, self.logs[node.rank])
        self.replayed.append(replayed)
        self.inboxes[node.rank] = replayed.take_in
        return self.start(node.rank, replayed.run(program(replayed)))

    def _ending(self) -> Ending:
        return Endless(self.plan)

    def show(self, version: int) -> None:
        """The log says where the run ended."""

    def count_step(self) -> None:
        """Tell how much of the log has been."""
        self.steps += 1
        if self.progress is not None and self.steps % 64 == 0:
            done = sum(node.done for node in self.replayed)
            self.progress(done / sum(map(len, self.logs.values())))

    def run(self, progress: Progress | None = None) -> None:
        """Let time pass until nothing more happens. Raises Divergence if that is not the end of the log."""
        self.progress = progress
        with no_garbage():
            self.environment.run()
        stuck = [node.stuck() for node in self.replayed if node.done < len(node.entries)]
        if stuck:
            raise Divergence("; ".join(stuck[:3]))


def replay(plan: Plan, interleaving: pd.DataFrame, progress: Progress | None = None) -> Result:
    """Repeat the real run that left this log (a row an `Entry`); raises Divergence if it cannot."""
    with deterministic_threads() if plan.scenario.workload.learns else nullcontext():
        simulation = Replay(plan, interleaving)
        simulation.run(progress)
        return simulation.result()
