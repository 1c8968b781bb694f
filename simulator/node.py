"""A node in virtual time: the simulator's side of the strategy language."""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from simulator.events import Moment, pause
from simulator.network import Transfer
from strategies import Collective, Contribution, Message, Source, Vector
from strategies.collectives import ring
from strategies.placement import Role

if TYPE_CHECKING:
    from simulator.engine import Simulation

T = TypeVar("T")


class Ready(Awaitable[T]):
    """A value that is there already."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, Any, T]:
        return self.value
        yield


class Later(Awaitable[T]):
    """What `make` returns, but not before a moment."""

    __slots__ = ("make", "moment")

    def __init__(self, moment: Moment, make: Callable[[], T]) -> None:
        self.moment = moment
        self.make = make

    def __await__(self) -> Generator[Any, Any, T]:
        if self.moment.callbacks is not None:
            yield self.moment
        return self.make()


class SimulatedNode:
    """See `strategies.Node` for what each member means."""

    def __init__(self, simulation: "Simulation", rank: int, role: Role) -> None:
        self.simulation = simulation
        self.environment = simulation.environment
        self.rank = rank
        self.index, self.shard = role.index, role.shard
        self.workers: Sequence[int] = simulation.workers
        self.parents: Sequence[int] = role.parents
        self.children: Sequence[int] = role.children
        self.shards: Sequence[slice] = simulation.shards
        self.hosts: Sequence[int] = simulation.worker_hosts
        self.rng = Random(f"{simulation.scenario.seed}/node/{rank}")
        self.step = 0
        self.collectives = 0
        self.cores = simulation.cores if simulation.cores.shared(rank) else None
        self.computing: dict[int, float] = {}  # on shared cores: when the gradient of a step was begun
        self.mail: deque[Message] = deque()
        self.waiting: list[tuple[str | None, int | None, Moment]] = []
        self.interrupt: tuple[str, Moment] | None = None  # what ends a gradient that is under way
        self.applying = 0.0  # the instant until which it is busy with updates
        self.apply_s = 0.0  # how long it has been, or will have been, altogether

    @property
    def now(self) -> float:
        now: float = self.environment.now
        return now

    def initial_parameters(self) -> Vector:
        initial: Vector = self.simulation.initial
        return initial

    def concatenate(self, parts: Sequence[Vector]) -> Vector:
        joined: Vector = self.simulation.concatenate(parts)
        return joined

    def send(
        self,
        to: int,
        kind: str,
        body: Vector | None = None,
        *,
        version: int = 0,
        batches: int = 0,
        part: int = 0,
        sources: tuple[Source, ...] = (),
    ) -> Awaitable[None]:
        simulation, rank = self.simulation, self.rank
        if simulation.rings is not None and simulation.rings.inside:
            simulation.rings.give_up()
        nbytes = 0 if body is None else body.nbytes
        message = Message(kind, rank, body, version, batches, part, sources)
        return simulation.network.send(rank, to, nbytes, message, simulation.nodes[to].take_in)

    def take_in(self, transfer: Transfer) -> None:
        """Hand a message that has arrived to whoever waits for it, or keep it."""
        message: Message = transfer.message
        sent_kind, sent_by = message.kind, message.sender
        times = transfer.start, transfer.left_at, self.environment.now
        self.simulation.recorder.message(sent_by, self.rank, *times, sent_kind, transfer.nbytes)
        for place, (kind, sender, arrival) in enumerate(self.waiting):
            if (kind is None or kind == sent_kind) and (sender is None or sender == sent_by):
                del self.waiting[place]
                arrival.happen(message)
                return
        self.mail.append(message)
        if self.interrupt is not None and self.interrupt[0] == message.kind:
            self._stop_computing(False)

    def receive(self, kind: str | None = None, sender: int | None = None) -> Awaitable[Message]:
        for place, message in enumerate(self.mail):
            if _matches(message, kind, sender):
                del self.mail[place]
                return Ready(message)
        arrival = Moment()
        self.waiting.append((kind, sender, arrival))
        return arrival

    def arrived(self, kind: str | None = None) -> bool:
        return any(_matches(message, kind, None) for message in self.mail)

    def next_batch_available(self) -> Awaitable[bool]:
        return Ready(self.simulation.batches.available(self.rank, self.step))

    async def gradient(self, parameters: Vector) -> Vector:
        step, duration = self._begin()
        (done,) = self._compute(step, [duration])
        await done
        return self.simulation.gradient(parameters, self.rank, step)

    def _compute(self, step: int, milestones: list[float]) -> Sequence[Moment]:
        """Compute for the last of some numbers of seconds, on a core of its own; what happens at each."""
        recorder, environment = self.simulation.recorder, self.environment
        if self.cores is None:
            # Recorded now: it counts as computing even if the run ends before it does.
            recorder.gradient(self.rank, self.now, self.now + milestones[-1], step)
            return [pause(environment, seconds) for seconds in milestones]
        self.computing[step] = self.now
        events = self.cores.compute(self.rank, milestones)
        events[-1].then(lambda _: recorder.gradient(self.rank, self.computing.pop(step), self.now, step))
        return events

    async def gradient_unless(self, parameters: Vector, kind: str) -> Vector | None:
        if self.arrived(kind):
            return None
        step, duration = self._begin()
        self.computing[step] = self.now
        self.interrupt = (kind, stopped := Moment())
        if self.cores is None:
            done = pause(self.environment, duration)
        else:
            (done,) = self.cores.compute(self.rank, [duration])
        done.then(lambda _: self._stop_computing(True) if self.interrupt == (kind, stopped) else None)
        finished = await stopped
        self.simulation.recorder.gradient(self.rank, self.computing.pop(step), self.now, step)
        if finished:
            return self.simulation.gradient(parameters, self.rank, step)
        if self.cores is not None:
            self.cores.give_up(self.rank)
        return None

    def _stop_computing(self, finished: bool) -> None:
        assert self.interrupt is not None
        (_, stopped), self.interrupt = self.interrupt, None
        stopped.soon(self.environment, finished)

    def backward(self, parameters: Vector, parts: Sequence[slice]) -> Sequence[Awaitable[Vector]]:
        step, duration = self._begin()
        computed: list[Vector] = []

        def take(part: slice) -> Vector:
            if not computed:
                computed.append(self.simulation.gradient(parameters, self.rank, step))
            return computed[0][part]

        takes = [duration * (1 - self.simulation.backward * part.start / len(parameters)) for part in parts]
        milestones = sorted({*takes, duration})
        events = dict(zip(milestones, self._compute(step, milestones), strict=True))
        return [Later(events[s], partial(take, part)) for s, part in zip(takes, parts, strict=True)]

    def _begin(self) -> tuple[int, float]:
        """Take a mini-batch; its number, and the seconds that its gradient takes."""
        step = self.step
        self.simulation.batches.take(self.rank)
        self.simulation.step()
        self.step += 1
        return step, self.simulation.compute[self.rank].draw(self.now)

    def apply(self, function: Callable[[], T], nbytes: int) -> Awaitable[T]:
        seconds = self.simulation.apply_s(nbytes)
        return self._apply(function, seconds) if seconds else Ready(function())

    async def _apply(self, function: Callable[[], T], seconds: float) -> T:
        self.applying = max(self.applying, self.now) + seconds
        self.apply_s += seconds
        await pause(self.environment, self.applying - self.now)
        return function()

    def applied_s(self) -> float:
        """How long it has been busy with updates so far, s."""
        return self.apply_s - max(0.0, self.applying - self.now)

    def dropped(self, push: Message) -> None:
        for source in push.pushed_by:
            self.simulation.recorder.drop(self.rank, source.worker, self.now, source.version, source.batches)

    def collective(self, program: Collective, vector: Vector) -> Awaitable[Vector]:
        rings = self.simulation.rings
        if program is ring and rings is not None and rings.lanes is not None:
            return rings.enter(self, vector)
        return program(self, vector)

    async def all_reduce(self, vector: Vector) -> Vector:
        # NCCL and gloo run a ring at the sizes that matter.
        start, number = self.now, self.collectives
        self.collectives += 1
        total = await self.collective(ring, vector)
        self.simulation.recorder.collective(self.rank, start, self.now, number, 0)
        return total

    async def updated(self, version: int, parameters: Vector, contributions: Sequence[Contribution]) -> None:
        for part in contributions:
            self.simulation.recorder.update(
                self.rank, part.worker, self.now, version - 1, part.staleness, part.batches
            )
        if self.simulation.updated(self, version, parameters):
            await Moment()  # this node's part in the run is over

    def spawn(self, program: Coroutine[Any, Any, None]) -> None:
        self.simulation.start(self.rank, program)

    def sleep(self, seconds: float) -> Awaitable[None]:
        return pause(self.environment, seconds)


def _matches(message: Message, kind: str | None, sender: int | None) -> bool:
    return (kind is None or kind == message.kind) and (sender is None or sender == message.sender)
