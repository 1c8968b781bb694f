"""What a node stands on in virtual time (job/port.py): SimPy's clock, the simulated network, drawn times."""

from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any

from lockstep.job.events import Event
from lockstep.job.port import Work
from lockstep.simulator.events import timeout
from lockstep.strategies.collectives import ring
from lockstep.strategies.node import Collective, Message, Vector

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation


def _nothing() -> None:
    """What never started needs no end."""


class VirtualPort:
    """See `job.port.Port` for what each member means."""

    __slots__ = (
        "_cores",
        "_draw",
        "_environment",
        "_inboxes",
        "_rings",
        "_send",
        "_speed",
        "rank",
        "simulation",
    )

    def __init__(self, simulation: "Simulation", rank: int) -> None:
        self.simulation, self.rank = simulation, rank
        self._environment, self._send = simulation.environment, simulation.network.send
        self._rings, self._inboxes = simulation.rings, simulation.inboxes
        is_worker = rank in simulation.plan.workers
        self._draw = simulation.compute[rank].draw if is_worker else None
        self._speed = 1.0 if is_worker else simulation.plan.scenario.cluster.servers.speed
        self._cores = simulation.cores if simulation.cores.shared(rank) else None

    @property
    def now(self) -> float:
        now: float = self._environment._now
        return now

    def post(self, to: int, message: Message) -> Awaitable[None]:
        body, rings = message.body, self._rings
        if rings is not None and rings.inside:
            rings.give_up()
        nbytes = 0 if body is None else body.nbytes
        return self._send(self.rank, to, nbytes, message, self._inboxes[to])

    def collect(self) -> None:
        """Messages come by themselves."""

    def wait(self, seconds: float) -> Event:
        return timeout(self._environment, seconds)

    def compute(self, parameters: Vector, step: int, down_to: Sequence[int] = ()) -> Work:
        simulation, environment = self.simulation, self._environment
        simulation.count_step()
        now = environment._now
        assert self._draw is not None
        duration = self._draw(now)
        gradient = partial(self._gradient, parameters, step)
        if self._cores is None and not down_to:
            return Work(now, now + duration, timeout(environment, duration), (), gradient, _nothing)
        share = simulation.backward
        instants = [duration * (1 - share * element / len(parameters)) for element in down_to]
        milestones = sorted({*instants, duration})
        if self._cores is None:
            happening = [timeout(environment, seconds) for seconds in milestones]
        else:
            happening = self._cores.compute(self.rank, milestones)
        events = dict(zip(milestones, happening, strict=True))
        end = now + duration if self._cores is None else None
        return Work(now, end, happening[-1], [events[at] for at in instants], gradient, self._give_up)

    def _gradient(self, parameters: Any, step: int) -> tuple[Vector, float]:
        """The gradient itself and the loss, or its size alone: off the clock."""
        learner = self.simulation.learner
        if learner is None:
            return parameters, nan
        return learner.gradient(parameters, self.rank, step), learner.loss

    def _give_up(self) -> None:
        if self._cores is not None:
            self._cores.give_up(self.rank)

    def cost(self, nbytes: int, codec: str = "", decoding: bool = False) -> float:
        simulation = self.simulation
        seconds = simulation.codec_s(codec, decoding, nbytes) if codec else simulation.apply_s(nbytes)
        return seconds / self._speed

    def collective(self, program: Collective, vector: Vector) -> Awaitable[Vector] | None:
        rings = self.simulation.rings
        if program is ring and rings is not None and rings.lanes is not None:
            return rings.enter(self.simulation.nodes[self.rank], vector)
        return None

    async def all_reduce(self, vector: Vector) -> tuple[Vector, int]:
        # NCCL and gloo run a ring at the sizes that matter.
        return await self.simulation.nodes[self.rank].collective(ring, vector), 0

    def show(self, version: int, part: Vector) -> None:
        self.simulation.show(version)

    def start(self, program: Coroutine[Any, Any, None]) -> None:
        self.simulation.start(self.rank, program)
