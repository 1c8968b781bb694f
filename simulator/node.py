"""A node in virtual time: the simulator's side of the strategy language."""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from math import nan
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep.simulator.events import Moment, pause
from lockstep.simulator.memory import WorkerMemory
from lockstep.simulator.network import Transfer
from lockstep.strategies import Collective, Contribution, Message, Source, Vector
from lockstep.strategies.codecs import Codec
from lockstep.strategies.collectives import ring
from lockstep.strategies.node import Memory
from lockstep.strategies.placement import Role

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation

T = TypeVar("T")


async def ready(value: T) -> T:
    """A value that is there already."""
    return value


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

    # No more than 30 attributes: with more, CPython's instances do not share their keys, which is felt.
    def __init__(self, simulation: "Simulation", rank: int, role: Role) -> None:
        self.simulation = simulation
        self.environment = simulation.environment
        self.network = simulation.network
        self.recorder = simulation.recorder
        self.batches = simulation.batches
        self.concatenate: Callable[[Sequence[Vector]], Vector] = simulation.concatenate
        self.add_parts: Callable[[Vector, Sequence[slice], Sequence[Any]], Vector] = simulation.add_parts
        self.rank = rank
        self.index, self.shard = role.index, role.shard
        self.workers: Sequence[int] = simulation.workers
        self.parents: Sequence[int] = role.parents
        self.children: Sequence[int] = role.children
        self.shards: Sequence[slice] = simulation.plan.shards
        self.hosts: Sequence[int] = simulation.worker_hosts
        self.rng = Random(f"{simulation.scenario.seed}/node/{rank}")
        self.step = 0
        self.epoch = simulation.epoch(rank) if role.kind == "worker" else 1
        self.budget = simulation.plan.budget
        self.loss = nan
        self.holder = simulation.owners.owner(rank)  # in the records: of the parameters it updates
        self.memory: Memory
        if simulation.owners.in_one_memory:
            self.memory = WorkerMemory(self)
        self.collectives = 0
        self.cores = simulation.cores if simulation.cores.shared(rank) else None
        self.computing: dict[int, float] = {}  # on shared cores: when the gradient of a step was begun
        self.mail: deque[Message] = deque()
        self.waiting: list[tuple[str | None, int | None, Moment]] = []
        self.interrupt: tuple[str, Moment] | None = None  # what ends a gradient that is under way
        self.applying = 0.0  # the instant until which it is busy with updates and codecs
        self.apply_s = 0.0  # how long it has been, or will have been, altogether

    @property
    def now(self) -> float:
        now: float = self.environment.now
        return now

    def initial_parameters(self) -> Vector:
        initial: Vector = self.simulation.initial
        return initial

    def vector(self, values: Sequence[float]) -> Vector:
        vector: Vector = self.simulation.vector(values)
        return vector

    async def encode(self, vector: Vector, codec: Codec) -> Vector:
        body: Vector = self.simulation.encode(vector, codec, codec.seed(self.rng))
        await self._work(self.simulation.codec_s(codec.name, False, vector.nbytes), "encode")
        return body

    async def decode(self, body: Vector, codec: Codec, length: int) -> Vector:
        vector: Vector = self.simulation.decode(body, codec, length)
        await self._work(self.simulation.codec_s(codec.name, True, vector.nbytes), "decode")
        return vector

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
        simulation, rank = self.simulation, self.rank
        rings = simulation.rings
        if rings is not None and rings.inside:
            rings.give_up()
        nbytes = 0 if body is None else body.nbytes
        message = Message(kind, rank, body, version, batches, part, weight, sources)
        return self.network.send(rank, to, nbytes, message, simulation.inboxes[to])

    def take_in(self, transfer: Transfer) -> None:
        """Hand a message that has arrived to whoever waits for it, or keep it."""
        message: Message = transfer.message
        kind, sender, now = message.kind, message.sender, self.environment._now
        self.recorder.message(sender, self.rank, transfer.start, transfer.left_at, now, kind, transfer.nbytes)
        for place, (wanted, by, arrival) in enumerate(self.waiting):
            if (wanted is None or wanted == kind) and (by is None or by == sender):
                del self.waiting[place]
                arrival.happen(message)
                return
        self.mail.append(message)
        if self.interrupt is not None and self.interrupt[0] == message.kind:
            self._stop_computing(False)

    def receive(self, kind: str | None = None, sender: int | None = None) -> Awaitable[Message]:
        if self.mail:
            for place, message in enumerate(self.mail):
                if _matches(message, kind, sender):
                    del self.mail[place]
                    return ready(message)
        arrival = Moment()
        self.waiting.append((kind, sender, arrival))
        return arrival

    def arrived(self, kind: str | None = None) -> bool:
        return any(_matches(message, kind, None) for message in self.mail)

    async def next_batch_available(self) -> bool:
        return self.batches.available(self.rank, self.step)

    async def gradient(self, parameters: Vector) -> Vector:
        step, duration = self._begin()
        if self.cores is None:
            self._record(step, duration)
            await pause(self.environment, duration)
        else:
            await self._compute(step, [duration])[0]
        return self.simulation.gradient(self, parameters, step)

    def _compute(self, step: int, milestones: list[float]) -> Sequence[Moment]:
        """Compute for the last of some numbers of seconds, on a core of its own; what happens at each."""
        if self.cores is None:
            self._record(step, milestones[-1])
            return [pause(self.environment, seconds) for seconds in milestones]
        self.computing[step] = self.now
        events = self.cores.compute(self.rank, milestones)
        events[-1].then(lambda _: self.recorder.gradient(self.rank, self.computing.pop(step), self.now, step))
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
        self.recorder.gradient(self.rank, self.computing.pop(step), self.now, step)
        if finished:
            return self.simulation.gradient(self, parameters, step)
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
                computed.append(self.simulation.gradient(self, parameters, step))
            return computed[0][part]

        takes = [duration * (1 - self.simulation.backward * part.start / len(parameters)) for part in parts]
        milestones = sorted({*takes, duration})
        events = dict(zip(milestones, self._compute(step, milestones), strict=True))
        return [Later(events[s], partial(take, part)) for s, part in zip(takes, parts, strict=True)]

    def _begin(self) -> tuple[int, float]:
        """Take a mini-batch; its number, and the seconds that its gradient takes."""
        step, simulation = self.step, self.simulation
        simulation.begin_batch(self.rank)
        self.step = step + 1
        return step, simulation.compute[self.rank].draw(self.environment._now)

    def _record(self, step: int, seconds: float) -> None:
        """Record a gradient that is begun: it counts as computing even if the run ends before it does."""
        now = self.environment._now
        self.recorder.gradient(self.rank, now, now + seconds, step)

    async def apply(self, function: Callable[[], T], nbytes: int) -> T:
        await self._work(self.simulation.apply_s(nbytes), "apply")
        return function()

    async def _work(self, seconds: float, kind: str) -> None:
        """Be busy for a while, after all that there was to do before; what a worker does is recorded."""
        if seconds:
            worker = self.rank < len(self.workers)
            if not worker:
                seconds /= self.simulation.servers_speed
            start = max(self.applying, self.now)
            self.applying = start + seconds
            self.apply_s += seconds
            if worker:
                self.recorder.work(self.rank, start, self.applying, kind)
            await pause(self.environment, self.applying - self.now)

    def applied_s(self) -> float:
        """How long it has been busy with updates and codecs so far, s."""
        return self.apply_s - max(0.0, self.applying - self.now)

    def dropped(self, push: Message) -> None:
        for source in push.pushed_by:
            self.recorder.drop(self.rank, source.worker, self.now, source.version, source.batches)

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
        self.recorder.collective(self.rank, start, self.now, number, 0)
        return total

    async def updated(self, version: int, parameters: Vector, contributions: Sequence[Contribution]) -> None:
        holder, now = self.holder, self.environment._now
        for part in contributions:
            self.recorder.update(holder, part.worker, now, version - 1, part.staleness, part.batches)
        if self.simulation.updated(self, version, parameters):
            await Moment()  # this node's part in the run is over

    def spawn(self, program: Coroutine[Any, Any, None]) -> None:
        self.simulation.start(self.rank, program)

    def sleep(self, seconds: float) -> Awaitable[None]:
        return pause(self.environment, seconds)


def _matches(message: Message, kind: str | None, sender: int | None) -> bool:
    return (kind is None or kind == message.kind) and (sender is None or sender == message.sender)
