"""Strategies that wait for each other in rounds, while workers crash and come back in any order there is.

A world without time: what happens next is drawn, of all that may. Messages of two processes keep their order,
and what is on its way to or from one that crashes is lost; nothing else is said about how long things take.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lockstep.strategies import d_psgd as module
from lockstep.strategies.d_psgd import d_psgd
from lockstep.strategies.graphs import neighbours
from lockstep.strategies.node import Message
from lockstep.strategies.optimizers import Age, Transformation
from lockstep.strategies.push_sum import PushSum
from lockstep.strategies.rounds import Rounds
from lockstep.strategies.sgp import osgp, sgp
from tests.support.nightly import drawn

STILL = Transformation((Age(),), lambda gradient, state, parameters: (-1 * gradient, state))
STEPS = 6


@dataclass(eq=False)
class Waits:
    """An event of this world: for a message, or for a gradient."""

    message: bool
    value: Any = None

    def __await__(self) -> Any:
        yield self
        return self.value


@dataclass(eq=False)
class Life:
    """One life of a worker, as its strategy sees it."""

    world: "World"
    rank: int
    rejoins: bool
    saved: Any
    step: int
    mail: deque[Message] = field(default_factory=deque)
    waiting: list[tuple[Coroutine[Any, Any, None], Waits]] = field(default_factory=list)
    knows: dict[int, Any] = field(default_factory=dict)  # the lives of others, to which it sends
    program: Any = None
    ended: bool = False

    @property
    def workers(self) -> range:
        return range(self.world.workers)

    @property
    def index(self) -> int:
        return self.rank

    def initial_parameters(self) -> np.ndarray:
        return np.array([float(self.rank)])

    def send(self, to: int, kind: str, body: Any = None, **more: Any) -> None:
        message, life = Message(kind, self.rank, body, **more), self.knows[to]
        self.world.senders[message] = self
        if kind == "half" and life is not None:
            self.world.halves.append((message, self, life))
        if life is not None and life is self.world.alive.get(to):
            self.world.channels[self, life].append(message)
        elif self.world.early and to in self.world.down:
            self.world.awaited.append((self, to, message))

    def arrived(self, kind: str | None = None) -> bool:
        return bool(self.mail)

    async def receive(self, kind: str | None = None, sender: int | None = None) -> Message:
        assert kind is sender is None
        return self.mail.popleft() if self.mail else await Waits(message=True)

    async def next_batch_available(self) -> bool:
        return self.step < STEPS

    async def gradient(self, parameters: np.ndarray) -> np.ndarray:
        self.step += 1
        await Waits(message=False)
        return np.zeros(1)

    async def apply(self, function: Callable[[], Any], nbytes: int) -> Any:
        return function()

    async def updated(self, version: int, parameters: np.ndarray, by: Sequence[Any]) -> bool:
        assert version == self.step
        self.world.models[self.rank] = parameters
        return version % self.world.every == 0

    async def save(self, version: int, state: Any) -> None:
        self.world.kept[self.rank] = SimpleNamespace(version=version, state=state, step=self.step)

    def spawn(self, program: Coroutine[Any, Any, None]) -> None:
        self.go_on(program)

    def go_on(self, program: Coroutine[Any, Any, None], value: Any = None) -> None:
        """Until it waits again."""
        try:
            waits = program.send(None)
        except StopIteration:
            self.ended = self.ended or program is self.program
            return
        self.waiting.append((program, waits))

    def hears(self, message: Message) -> None:
        """A message is there."""
        if self.ended:
            self.world.late.add(message)
        if message.kind == "join":
            self.knows[message.sender] = self.world.senders[message]
        for place, (program, waits) in enumerate(self.waiting):
            if waits.message:
                del self.waiting[place]
                waits.value = message
                self.go_on(program)
                return
        self.mail.append(message)


class World:
    """Workers that run a strategy; some crash."""

    def __init__(self, strategy: Any, workers: int, graph: Any, random: Random, told: bool) -> None:
        """told: whether those who are there hear that others have left."""
        self.workers, self.random, self.told = workers, random, told
        self.edges = sum(map(len, neighbours(graph, workers)))
        self.start = lambda life: strategy(life, STILL, graph=graph)
        self.late = set[Message]()
        """What came to those who had ended."""
        self.halves: list[tuple[Message, Life, Life]] = []
        self.early = random.random() < 0.3
        """As the simulator has it: others know at once who is back, which may get what was sent before."""
        self.awaited: list[tuple[Life, int, Message]] = []
        self.every = random.choice([1, 2, 4, 99])
        self.alive: dict[int, Life] = {}
        self.down: dict[int, str] = {}
        self.kept: dict[int, Any] = {}
        self.models: dict[int, np.ndarray] = {}
        self.channels: defaultdict[tuple[Life, Life], deque[Message]] = defaultdict(deque)
        self.senders: dict[Message, Life] = {}
        self.crashes = self.planned = random.randint(0, 4)
        self.forever = random.random() < 0.3 and told
        for rank in range(workers):
            self.alive[rank] = Life(self, rank, False, None, 0)
        for life in [*self.alive.values()]:
            life.knows = {**self.alive}
            self.begin(life)

    def begin(self, life: Life) -> None:
        life.program = self.start(life)
        life.go_on(life.program)

    def may_happen(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        for (_, to), messages in self.channels.items():
            if messages:
                found.append(lambda to=to, messages=messages: to.hears(messages.popleft()))  # type: ignore[misc]
        for life in self.alive.values():
            if any(not waits.message for _, waits in life.waiting):
                found.append(lambda life=life: self.computed(life))  # type: ignore[misc]
        for rank, state in self.down.items():
            if state == "gone" and self.told:
                found.append(lambda rank=rank: self.notice(rank))  # type: ignore[misc]
            if state != "for ever" and not (self.forever and state == "gone"):
                found.append(lambda rank=rank: self.back(rank))  # type: ignore[misc]
        if self.crashes and len(self.alive) and self.random.random() < 0.05:
            found.append(lambda: self.crash(self.random.choice(sorted(self.alive))))
        return found

    def computed(self, life: Life) -> None:
        place = next(place for place, (_, waits) in enumerate(life.waiting) if not waits.message)
        program, _ = life.waiting.pop(place)
        life.go_on(program)

    def crash(self, rank: int) -> None:
        self.crashes -= 1
        gone = self.alive.pop(rank)
        for program, _ in gone.waiting:
            program.close()
        self.channels = defaultdict(deque, {ends: m for ends, m in self.channels.items() if gone not in ends})
        self.awaited = [one for one in self.awaited if one[0] is not gone]
        self.down[rank] = "gone"

    def notice(self, rank: int) -> None:
        self.down[rank] = "for ever" if self.forever else "known"
        for life in [*self.alive.values()]:
            life.hears(Message("leave", rank))

    def back(self, rank: int) -> None:
        del self.down[rank]
        saved = self.kept.get(rank)
        life = self.alive[rank] = Life(self, rank, True, saved, saved.step if saved else 0)
        life.knows = dict.fromkeys(range(self.workers)) | self.alive
        for sender, to, message in self.awaited:
            if to == rank:
                self.channels[sender, life].append(message)
        self.awaited = [one for one in self.awaited if one[1] != rank]
        for other in self.alive:
            if other != rank:
                life.send(other, "join")
                if self.early:
                    self.alive[other].hears(self.channels[life, self.alive[other]].popleft())
        self.begin(life)
        for other, state in self.down.items():
            if state != "gone":
                life.hears(Message("leave", other))

    def run(self) -> None:
        while found := self.may_happen():
            self.random.choice(found)()
        assert all(life.ended and life.step == STEPS for life in self.alive.values())
        assert not self.down or self.forever


def drawn_world(strategy: Any, seed: int) -> World:
    random = Random(seed)
    graph = random.choice(GRAPHS)
    workers = 5 if isinstance(graph, list) else random.randint(2, 6)
    return World(strategy, workers, graph, random, told=random.random() < 0.7)


GRAPHS = ["ring", "torus", "exponential", "complete", [[0, 1], [1, 2], [2, 3], [2, 0], [3, 4]]]


@pytest.mark.parametrize("first", drawn(range(0, 5000, 250), one_in=20))
def test_rounds_end_and_averages_are_mutual(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that W is symmetric among those who are there; the mean is kept where nobody fails."""
    used: set[tuple[Life, int, Life]] = set()  # in which round whose model
    average = module._average

    async def noted(node: Any, row: Any, own: Any, models: list[Message]) -> Any:
        used.update((node, model.version, node.world.senders[model]) for model in models)
        return await average(node, row, own, models)

    monkeypatch.setattr(module, "_average", noted)
    for seed in range(first, first + 250):
        world = drawn_world(d_psgd, seed)
        world.run()
        there = {*world.alive.values()}
        for node, number, other in used:
            assert (other, number, node) in used or not {node, other} <= there
        if world.crashes == world.planned:
            assert len(used) == STEPS * world.edges
            assert np.mean([*world.models.values()]) == pytest.approx((world.workers - 1) / 2)
        used.clear()


@pytest.mark.parametrize("first", drawn(range(0, 5000, 250), one_in=20))
def test_halves_are_merged_once(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that two who stay have sent each other, unless one had ended; so that Σx and Σw are kept."""
    last: dict[Any, int] = {}  # each worker's last round
    parts: dict[Any, PushSum] = {}
    times = Counter[Message]()
    begin, merge = Rounds.begin, PushSum.merge

    async def begun(self: Any) -> int:
        last[self._node] = number = await begin(self)
        return number

    async def merging(self: PushSum, halves: Sequence[Message], number: int) -> None:
        parts[self.node] = self
        times.update(halves)
        await merge(self, halves, number)

    monkeypatch.setattr(Rounds, "begin", begun)
    monkeypatch.setattr(PushSum, "merge", merging)
    for seed in range(first, first + 250):
        strategy = sgp if seed % 3 == 0 else partial(osgp, overlap=seed % 4)
        world = drawn_world(strategy, seed)
        world.run()
        there = {*world.alive.values()}
        for half, sender, receiver in world.halves:
            assert times[half] <= 1
            usable = half not in world.late and half.version <= last.get(receiver, -1)
            if usable and {sender, receiver} <= there:
                assert times[half] == 1
        if world.crashes == world.planned:
            weights = np.array([parts[life].weight for life in world.alive.values()])
            models = np.array([world.models[rank][0] for rank in range(world.workers)])
            assert weights.sum() == pytest.approx(world.workers)
            assert (weights * models).sum() == pytest.approx(sum(range(world.workers)))
