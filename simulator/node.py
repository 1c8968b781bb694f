"""A node in virtual time: the simulator's side of the strategy language."""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from simulator.events import Moment, pause
from simulator.network import Transfer
from strategies import Contribution, Message, Vector
from strategies.all_reduce import ring

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


class SimulatedNode:
    """See `strategies.Node` for what each member means."""

    def __init__(self, simulation: "Simulation", rank: int) -> None:
        self.simulation = simulation
        self.environment = simulation.environment
        self.rank = rank
        self.workers: Sequence[int] = simulation.workers
        self.servers: Sequence[int] = simulation.servers
        self.index = rank if rank < len(self.workers) else rank - len(self.workers)
        self.rng = Random(f"{simulation.scenario.seed}/node/{rank}")
        self.step = 0
        self.collectives = 0
        self.mail: deque[Message] = deque()
        self.waiting: list[tuple[str | None, int | None, Moment]] = []

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
        self, to: int, kind: str, body: Vector | None = None, *, version: int = 0, batches: int = 0
    ) -> Awaitable[None]:
        simulation, rank = self.simulation, self.rank
        nbytes = 0 if body is None else body.nbytes
        message = Message(kind, rank, body, version, batches)
        return simulation.network.send(rank, to, nbytes, message, simulation.nodes[to].take_in)

    def take_in(self, transfer: Transfer) -> None:
        """Hand a message that has arrived to whoever waits for it, or keep it."""
        message: Message = transfer.message
        sent_kind, sent_by = message.kind, message.sender
        self.simulation.recorder.message(
            sent_by, self.rank, transfer.start, self.environment.now, sent_kind, transfer.nbytes
        )
        for place, (kind, sender, arrival) in enumerate(self.waiting):
            if (kind is None or kind == sent_kind) and (sender is None or sender == sent_by):
                del self.waiting[place]
                arrival.happen(message)
                return
        self.mail.append(message)

    def receive(self, kind: str | None = None, sender: int | None = None) -> Awaitable[Message]:
        for place, message in enumerate(self.mail):
            if _matches(message, kind, sender):
                del self.mail[place]
                return Ready(message)
        arrival = Moment()
        self.waiting.append((kind, sender, arrival))
        return arrival

    def next_batch_available(self) -> Awaitable[bool]:
        return Ready(self.simulation.batches.available(self.rank, self.step))

    async def gradient(self, parameters: Vector) -> Vector:
        simulation, rank, start, step = self.simulation, self.rank, self.environment.now, self.step
        simulation.batches.take(rank)
        simulation.step()
        self.step += 1
        duration = simulation.compute[rank].draw()
        # Recorded now: it counts as computing even if the run ends before it does.
        simulation.recorder.gradient(rank, start, start + duration, step)
        await pause(self.environment, duration)
        return simulation.gradient(parameters, rank, step)

    def apply(self, function: Callable[[], T], nbytes: int) -> Awaitable[T]:
        return Ready(function())

    async def all_reduce(self, vector: Vector) -> Vector:
        # NCCL and gloo run a ring at the sizes that matter.
        start, number = self.now, self.collectives
        self.collectives += 1
        total = await ring(self, vector)
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
