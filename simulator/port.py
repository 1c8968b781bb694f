"""What a node stands on in virtual time (job/port.py): SimPy's clock, the simulated network, drawn times."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any

from lockstep.job.events import Event, both
from lockstep.job.port import Cost, PassOf, Work
from lockstep.job.segments import PassTimes, predicted
from lockstep.simulator.cores import InTurn
from lockstep.simulator.events import Scheduled, soon, timeout
from lockstep.simulator.folding import NEXT_TO_NOTHING
from lockstep.simulator.ring import Disturbed
from lockstep.strategies.collectives import RING, all_gather, ring
from lockstep.strategies.node import Collective, Group, Message, Vector

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation


_RINGS = (RING, "all-gather", "reduce-scatter")  # kinds of messages: to the next, from the one before


def _nothing() -> None:
    """What never started needs no end."""


class VirtualPort:
    """See `job.port.Port` for what each member means."""

    __slots__ = (
        "_bare",
        "_cores",
        "_inboxes",
        "_network",
        "_replica",
        "_rings",
        "_speed",
        "_time",
        "_times",
        "_work",
        "clock",
        "rank",
        "simulation",
    )

    def __init__(self, simulation: "Simulation", rank: int) -> None:
        self.simulation, self.rank = simulation, rank
        self.clock, self._network = simulation.environment, simulation.network
        self._rings, self._inboxes = simulation.rings, simulation.inboxes
        is_worker = rank in simulation.plan.workers
        self._time = simulation.compute[rank] if is_worker else None
        in_passes = rank in simulation.plan.stages
        self._times = PassTimes(simulation.plan, rank, simulation.compute[rank]) if in_passes else None
        self._replica = simulation.plan.replica(rank)
        self._speed = 1.0 if is_worker else simulation.plan.scenario.cluster.servers.speed
        sharing = simulation.sharing
        self._cores = sharing.gradients if sharing.gradients.shared(rank) else None
        self._bare = self._cores is None and sharing.machine is None  # nobody can hold a gradient up
        for_work = sharing.work_of(rank)
        self._work = None if for_work is None else InTurn(for_work, rank)

    def tell_time(self) -> float:
        now: float = self.clock.now
        return now

    def post(self, to: int, message: Message) -> Awaitable[None]:
        body, rings = message.body, self._rings
        if rings is not None and rings.watchful:
            rings.meet(self.rank, to)
        nbytes = 0 if body is None else body.nbytes
        return self._network.send(self.rank, to, nbytes, message, self._inboxes[to])

    def wait(self, seconds: float, working: bool = False) -> Event:
        return timeout(self.clock, seconds)

    def compute(
        self, parameters: Vector, step: int, down_to: Sequence[int] = (), of: PassOf | None = None
    ) -> Work:
        if of is not None:
            return self._pass(parameters, step, of)
        simulation, environment, ahead = self.simulation, self.clock, self.simulation.ahead
        simulation.count_step()
        now = environment.now
        assert self._time is not None
        duration = self._time.draw(now)

        gradient: Callable[[], tuple[Any, float]]  # off the clock
        if ahead is None:  # it is known by its size, that of the parameters
            gradient = lambda: (parameters, nan)  # noqa: E731
        else:
            gradient = ahead.begin(parameters, self._replica, step)
        if self._bare and not down_to:
            work = Work.__new__(Work)  # every gradient of most runs: a call of __init__ would be felt
            work.start, work.end, work.done = now, now + duration, timeout(environment, duration)
            work.parts, work.gradient, work.give_up = (), gradient, _nothing
            work.kept = int
            return work
        share, waited = simulation.backward, self._time.waited
        computing = duration - waited
        instants = [waited + computing * (1 - share * element / len(parameters)) for element in down_to]
        milestones = sorted({*instants, duration})
        if self._cores is None:
            happening = [timeout(environment, seconds) for seconds in milestones]
        else:
            happening = self._cores.compute(self.rank, milestones)
        if (machine := simulation.sharing.machine) is not None:
            done = [max(0.0, at - waited) / computing if computing else 1.0 for at in milestones]
            computed = machine.compute(self.rank, [simulation.sharing.gradient_s * part for part in done])
            happening = list(map(both, happening, computed))
        events = dict(zip(milestones, happening, strict=True))
        end = now + duration if self._bare else None
        return Work(now, end, events[duration], [events[at] for at in instants], gradient, self._give_up)

    def _pass(self, parameters: Vector, step: int, of: PassOf) -> Work:
        """A share of the time that is drawn once for the mini-batch."""
        simulation, environment = self.simulation, self.clock
        now, rank = environment.now, self.rank
        assert self._times is not None
        assert simulation.segments is not None
        if of.kind == "forward" and not of.micro and not of.chunk:
            simulation.count_step()
        duration = self._times.seconds(now, step, of)
        result = partial(simulation.segments.do, rank, parameters, step, of)
        kept = partial(predicted, simulation.plan, rank, of)
        if self._cores is None:
            done = timeout(environment, duration)
            return Work(now, now + duration, done, (), result, _nothing, kept)
        (done,) = self._cores.compute(rank, [duration])
        return Work(now, None, done, (), result, self._give_up, kept)

    def _give_up(self) -> None:
        for cores in (self._cores, self.simulation.sharing.machine):
            if cores is not None:
                cores.give_up(self.rank)

    def leave_cores(self) -> None:
        """The process is no more: others have what it had of the cores."""
        self._give_up()
        if self._work is not None:
            self._work.give_up()

    def cost(self, nbytes: int, codec: str = "", decoding: bool = False) -> Cost:
        simulation = self.simulation
        key = nbytes, codec, decoding, self._speed
        found = simulation.costs.get(key)  # many are alike
        if found is None:
            seconds = simulation.codec_s(codec, decoding, nbytes) if codec else simulation.apply_s(nbytes)
            found = simulation.costs[key] = Cost(seconds / self._speed)
        if self._work is None:
            return found
        seconds = found.seconds
        waiting = 0.0 if codec else simulation.sharing.update_waits_s / self._speed
        return Cost(seconds, partial(self._share, self._work, seconds, seconds - waiting))

    def _share(self, work: InTurn, seconds: float, core_s: float) -> tuple[Event, Event]:
        begun, done = Scheduled(), Scheduled()
        work.do(seconds, core_s, partial(soon, self.clock, begun), partial(soon, self.clock, done))
        return begun, done

    def collective(
        self, program: Collective, vector: Vector, among: Group | None = None, beside: int = 0
    ) -> Awaitable[Vector] | None:
        if program is not ring or self._rings is None:
            return None
        return self._rings.enter(self.simulation.nodes[self.rank], vector, among, beside)

    async def all_reduce(self, vector: Vector) -> tuple[Vector, int]:
        # NCCL and gloo run a ring at the sizes that matter.
        return await self.simulation.nodes[self.rank].collective(ring, vector), 0

    def show(self, version: int, part: Vector) -> None:
        self.simulation.show(version)

    def start(self, program: Coroutine[Any, Any, None]) -> None:
        self.simulation.start(self.rank, program)


class FoldedPort(VirtualPort):
    """The first device's of a stage, which stands for all: see folding.py."""

    __slots__ = ()

    def post(self, to: int, message: Message) -> Awaitable[None]:
        folding = self.simulation.folding
        assert folding is not None
        first = folding.first_of(to)
        if first == to:
            return super().post(to, message)
        if message.kind not in _RINGS or message.body is None:
            raise Disturbed
        turned = folding.turned(message, to)
        return self._network.send(self.rank, to, message.body.nbytes, turned, self._inboxes[first])

    def collective(
        self, program: Collective, vector: Vector, among: Group | None = None, beside: int = 0
    ) -> Awaitable[Vector] | None:
        """Devices with chunks that differ by an element count as alike, if that is next to nothing."""
        if beside:  # what else goes on may meet it
            return None
        simulation, node = self.simulation, self.simulation.nodes[self.rank]
        members = len(among.ranks if among else node.workers)
        if program is all_gather or members == 1:
            return simulation.alone.exchange(node, program, vector, among)
        length = len(vector)
        if length % members:
            if members > NEXT_TO_NOTHING * length:
                raise Disturbed
            itemsize = vector.nbytes // length  # a codec has its own
            even: Any = node.arithmetic.blank(round(length / members) * members * itemsize)
            return self._evened(program, vector, even, among)
        return simulation.alone.exchange(node, program, vector, among)

    async def _evened(self, program: Collective, vector: Vector, even: Vector, among: Group | None) -> Vector:
        node = self.simulation.nodes[self.rank]
        found = await node.collective(program, even, among)
        return vector if program is ring else found
