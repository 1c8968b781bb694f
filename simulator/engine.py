"""Runs a scenario in virtual time.

A process per node (events.py) drives the strategy's coroutine. SimPy's queue breaks ties by priority and by
the order of scheduling, all random numbers come from streams seeded by the scenario, and nothing depends
on a clock: a run is a pure function of (scenario, seed). (Who computes gradients does, which changes no bit.)
"""

import gc
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, NoReturn

import simpy
from simpy.core import StopSimulation
from simpy.events import URGENT

from lockstep.analysis.columns import COPIES
from lockstep.analysis.records import Recorder
from lockstep.analysis.result import Result
from lockstep.job.arithmetic import Arithmetic, OnSizes, OnTensors
from lockstep.job.ending import Ending, counting
from lockstep.job.incarnation import FIRST, Incarnation, Saved
from lockstep.job.node import Node
from lockstep.job.plan import Plan
from lockstep.job.port import Arrival, Cost, Port
from lockstep.job.quota import Quota
from lockstep.job.segments import Segments
from lockstep.job.sized import About, Sized
from lockstep.job.snapshots import Snapshots, once, together
from lockstep.scenarios import CodecCost, ScenarioError
from lockstep.simulator import folding
from lockstep.simulator.alone import Alone
from lockstep.simulator.errors import SimulationError
from lockstep.simulator.events import Aside, Environment, Process, Timeout
from lockstep.simulator.latencies import latencies
from lockstep.simulator.loops import loop
from lockstep.simulator.memory import Race, WorkerMemory
from lockstep.simulator.network import Network
from lockstep.simulator.outcome import outcome
from lockstep.simulator.port import FoldedPort, VirtualPort
from lockstep.simulator.ring import Disturbed
from lockstep.simulator.rings import Rings
from lockstep.simulator.sharing import Sharing
from lockstep.simulator.topology import topology
from lockstep.simulator.traffic import compete, vary
from lockstep.simulator.usage import Usage
from lockstep.strategies.strategy import Program
from lockstep.workloads import Learner, build, learning
from lockstep.workloads.compute_time import compute_times
from lockstep.workloads.memory import require

if TYPE_CHECKING:
    from lockstep.simulator.ahead import Ahead

Progress = Callable[[float], None]
_LOOK_EVERY = 1 << 16  # steps, after which there is to be room for the records
_MANY = 1 << 17  # of Python's objects, among which to look for garbage at once


class Simulation:
    """The state of one run that its nodes share."""

    def __init__(self, plan: Plan, shortcuts: bool = True, incarnation: Incarnation = FIRST) -> None:
        """shortcuts: compute rings, and replicas that are alike, once for all where that is exact.

        incarnation: what it begins with, and when.
        """
        self.incarnation, self.shortcuts = incarnation, shortcuts
        scenario, cluster = plan.scenario, plan.scenario.cluster
        self.plan, self.scenario, self.sizes = plan, scenario, plan.sizes
        self.learner: Learner | None = None
        self.ahead: Ahead | None = None
        self.folding = folding.fold(plan) if shortcuts else None
        itemsize = self.sizes.itemsize
        kind = Sized if self.folding is None else About
        self.arithmetics: list[Arithmetic] = [OnSizes(group.length, itemsize, kind) for group in plan.groups]
        if scenario.workload.learns:
            from lockstep.simulator import ahead  # with all that makes processes

            self.learner = build(scenario.workload, plan.replicas, scenario.seed)
            self.ahead = ahead.Ahead(self.learner, plan.replicas)
            initial = self.learner.initial()
            self.arithmetics = [OnTensors(group.slice_of(initial)) for group in plan.groups]
            evaluate = self.learner.evaluate  # for the curve, and before for a target
            self.evaluate = evaluate if scenario.stop.goal is None else once(evaluate)

        self.roles, self.workers, self.owners = plan.roles, plan.workers, plan.owners

        network = cluster.network
        if self.folding is not None:
            narrow = folding.narrowed(network, self.folding.places)
            cluster = cluster.model_copy(update={"network": narrow})
        overheads = network.message_overhead, network.receive_overhead
        self.environment = Environment(incarnation.start)
        drawn = (
            partial(latencies, network.jitter, scenario.seed, incarnation.key()) if network.jitter else None
        )
        self.network = Network(
            self.environment, topology(cluster), plan.hosts, *overheads, network.queue, drawn, network.tcp
        )
        vary(self.network, network.varying)
        compete(self.network, network.background, network.goodput, scenario.seed)
        costs = network.processing
        self.sharing = Sharing(self.environment, plan.hosts, cluster)
        if costs is not None and self.sharing.messages is not None:
            self.network.share(self.sharing.messages, costs)
        uneven = network.burst or network.receive_overhead or network.jitter or network.tcp or costs
        unsteady = network.varying or network.background or uneven
        by_ring = shortcuts and not unsteady and len(plan.groups) == 1 and self.folding is None
        self._apply_overhead, self._memory_bandwidth = cluster.apply_overhead, cluster.memory_bandwidth or inf
        self._codecs: dict[Any, CodecCost] = cluster.codecs
        self.costs: dict[tuple[int, str, bool, float], Cost] = {}  # of work: bytes, codec, decoding, speed
        if self.work_takes_time and any(map(self.sharing.work_of, range(len(plan.roles)))):
            by_ring = False  # nobody knows beforehand how long an addition takes
        self.rings = Rings(self) if by_ring else None
        self.alone = Alone(self)
        self.segments = Segments(plan, self.learner, self.arithmetics[0].blank) if plan.stages else None
        self.compute = compute_times(scenario, self.sizes, incarnation.key())
        self.additions = 0  # to shared memory, that have been completed
        in_memory = self.owners.in_one_memory and self.learner is not None
        self.race = Race(self.initial(0).numpy()) if in_memory else None
        self.backward = getattr(cluster.compute, "backward", None) or 0.0
        count = counting(incarnation.counts(plan))
        tell = lambda: Timeout(self.environment, 0.0, self._look, URGENT)  # noqa: E731
        self.ending = Ending(plan, count, tell, incarnation.versions(plan))
        self.recorder = Recorder()
        nbytes, apart = self.owners.copies * self.sizes.nbytes, self.owners.apart
        self.snapshots = {
            rank: Snapshots(nbytes, self.initial(rank) if apart else None) for rank in self.owners.evaluated
        }
        self.absent = set[int]()  # owners that are gone for good
        self.back: list[tuple[int, int, float]] = []  # those that went back to a version, and when
        self._endless = plan.quota == Quota(None, None)  # but for a time, or a number of updates
        self.steps = self._steps_before = 0
        self._came_to = 0.0, 0  # an instant, and the updates made by then where they bring the end closer
        self.progress: Progress | None = None
        self.inboxes: dict[int, Callable[[Arrival], None]] = {}
        present: Sequence[int] = self.folding.first if self.folding else range(len(self.roles))
        self.nodes = {rank: self._node(rank) for rank in present}
        self.inboxes |= {rank: node.take_in for rank, node in self.nodes.items()}
        begun = {rank: self.begin(node, plan.program(rank)) for rank, node in self.nodes.items()}
        self.programs = {rank: process for rank, process in begun.items() if rank in self.workers}
        stand_ins = {}
        if self.folding is not None:
            self.folding.connect(self.network, plan.hosts)
            stand_ins = folding.stand_ins(self.folding, plan, self.network.topology)
        places = 1 if self.folding is None else self.folding.places
        self.usage = Usage(self.network.flows, self.network.topology.links, stand_ins, places)
        if self.work_takes_time:
            for rank, node in self.nodes.items():
                if rank not in self.workers:
                    self.usage.add(self.roles[rank].processor, partial(node.busy.so_far_s, node))

    @property
    def work_takes_time(self) -> bool:
        """Whether updates or codecs do."""
        return bool(self.apply_s(1) or self._codecs)

    @property
    def undisturbed(self) -> bool:
        """Whether times are known beforehand, nothing is learned, and nothing disturbs the network."""
        if self.rings is None or self.plan.stages or self.scenario.with_faults:
            return False
        if self.learner is not None or self.scenario.stop.updates is not None:
            return False
        together = any(self.sharing.gradients.shared(rank) for rank in self.workers)
        return not together and all(time.steady for time in self.compute)

    @property
    def copies(self) -> int:
        """Workers for which each of those stands that are simulated."""
        return len(self.workers) // len(self.programs)

    def arithmetic(self, rank: int) -> Arithmetic:
        """On the slice of the parameters that a rank holds."""
        return self.arithmetics[self.plan.places[rank][0]]

    def initial(self, rank: int) -> Any:
        """The first parameters that a rank holds, or their size."""
        return self.arithmetic(rank).initial

    def stands_on(self, rank: int) -> tuple[Port, Ending]:
        """What a node of the run is made with."""
        port = VirtualPort if self.folding is None else FoldedPort
        return port(self, rank), self.ending

    def _node(self, rank: int, incarnation: Incarnation | None = None) -> Node:
        """incarnation: the node's, if it is not that of all."""
        plan, learner = self.plan, self.learner
        snapshots = self.shown_by(rank) if learner is not None else None
        epoch = plan.epoch(rank)
        if learner is not None and rank in plan.workers:
            epoch = learner.epoch(plan.replica(rank))
        port, ending = self.stands_on(rank)
        life = incarnation or self.incarnation
        node = Node(plan, rank, port, self.recorder, ending, self.arithmetic(rank), snapshots, epoch, life)
        if self.owners.in_one_memory:
            node.memory = WorkerMemory(self, node)
        return node

    def shown_by(self, rank: int) -> Snapshots | None:
        """Where the parameters are kept that a rank shows; None: it shows none."""
        return self.snapshots.get(self.owners.owner(rank))

    def begin(self, node: Node, program: Program) -> Process:
        """Let a node run its program."""
        return self.start(node.rank, program(node), node.end)

    def start(
        self, rank: int, program: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None
    ) -> Process:
        """Let a program run; its failure ends the simulation."""

        def failed(error: BaseException) -> NoReturn:
            ours = isinstance(error, SimulationError | ScenarioError)
            if ours or not isinstance(error, Exception):  # such as Ctrl-C
                raise error
            who = f"{self.roles[rank].kind} {self.roles[rank].index}"
            lines = traceback.format_exception(error)
            raise SimulationError(
                f"{who} (rank {rank}) failed: {type(error).__name__}: {error}", "".join(lines)
            ) from error

        return Process(self.environment, program, failed, ended)

    def codec_s(self, name: str, decoding: bool, nbytes: int) -> float:
        """Seconds that a codec takes to encode, or decode, a vector of `nbytes` bytes."""
        cost = self._codecs.get(name)
        rate = cost and (cost.decode if decoding else cost.encode)
        return nbytes / rate if rate else 0.0

    def memory_s(self, nbytes: int) -> float:
        """Seconds that it takes to load or store `nbytes` bytes of memory."""
        return nbytes / self._memory_bandwidth

    def apply_s(self, nbytes: int) -> float:
        """Seconds that work on `nbytes` bytes of memory takes."""
        return self._apply_overhead + nbytes / self._memory_bandwidth

    def show(self, version: int) -> None:
        """A snapshot has been kept: see whether the target is reached, if all parts are there."""
        if self.learner is None or not self.ending.matters(version):
            return
        parts = [kept.taken.get(version) for rank, kept in self.snapshots.items() if rank not in self.absent]
        if all(parts):
            vector = together([part for _, part in parts], self.owners)  # type: ignore[misc]
            self.ending.evaluated(version, self.evaluate(vector))

    def leave(self, saved: Saved | None, version: int, at: float) -> None:
        """All who hold parameters are gone: what they wrote at that version is left, or the initial ones."""
        self.back.append((self.owners.ranks[0], version, at))
        for kept in self.snapshots.values():
            kept.go_back(version, saved.shown if saved else None)

    def in_memory(self) -> Any:
        """A copy of what is in shared memory now; at the end of the run's time, just before."""
        assert self.race is not None
        now, until = self.environment.now, self.scenario.stop.time
        at = now if until is None or now < until else nextafter(until, 0)
        return self.initial(0).new_tensor(self.race.advance(at))

    def run(self, progress: Progress | None = None) -> None:
        """Let time pass until the run is over. Raises Disturbed if it must be made without shortcuts."""
        environment, until = self.environment, self.scenario.stop.time
        self.progress = progress
        if self.ahead is not None:
            self.ahead.allow(self.scenario.workload)
        if until is not None:
            Aside(environment, max(0.0, until - environment.now), self._look, URGENT)
        with no_garbage():
            try:
                looped = loop(self) if self.shortcuts else None
            except BaseException:  # of which Python would say that programs have not begun
                environment.give_up()
                raise
            try:
                (looped or environment).run()
                self.finish()
            except BaseException:
                if self.ahead is not None:
                    self.ahead.end()
                raise

    def finish(self) -> None:
        """See whether the run has come to its end. Raises Disturbed, or SimulationError."""
        if self.ending.over:
            self._record_unfinished()
            if self.rings is not None:
                self.rings.end()
            return
        stuck = [
            rank for rank, program in self.programs.items() if program.alive and not self.ending.retired(rank)
        ]
        if stuck and self.folding is not None:  # for what others would have sent
            raise Disturbed
        if stuck:
            waits = "; ".join(self._waits(rank) for rank in stuck[:4])
            raise SimulationError(f"the nodes wait for each other for ever: {waits}")
        if self.network.bytes_arrived != self.network.bytes_sent:
            raise SimulationError("bytes were sent that never arrived")

    def _record_unfinished(self) -> None:
        """On shared cores it is unknown when gradients and work would end: they are recorded until now."""
        for node in self.nodes.values():
            for step, start in node.computing.items():
                self.recorder.gradient(node.rank, start, node.clock.now, step)
            node.busy.record(node)

    def _look(self, _: simpy.Event) -> None:
        if self.ending.at(self.environment.now):
            raise StopSimulation(None)

    def _check_that_time_passes(self) -> None:
        """Where nothing takes any time, a run may neither come to the instant nor the update that ends it."""
        come_to = self.environment.now, self.ending.made
        if come_to > self._came_to:
            self._came_to, self._steps_before = come_to, self.steps
        if self.steps - self._steps_before > 1000 * len(self.workers):
            raise SimulationError(
                f"virtual time stands still at {self._came_to[0]:g} s, and the run does not end: "
                "give gradients or messages a time, or stop.steps"
            )

    def count_step(self) -> None:
        """A gradient is begun; now and then tell who wants to know what is done."""
        self.steps += 1
        if self._endless:
            self._check_that_time_passes()
        if self.steps % _LOOK_EVERY == 0:
            self._require_memory()
        if self.progress is not None and self.steps % 64 == 0:
            self.progress(self.fraction(self.steps))

    def count_steps(self, steps: int) -> None:
        """So many gradients have been begun."""
        if self.steps // _LOOK_EVERY < (self.steps + steps) // _LOOK_EVERY:
            self._require_memory()
        self.steps += steps
        if self.progress is not None:
            self.progress(self.fraction(self.steps))

    def _require_memory(self) -> None:
        instead = "give a nearer stop, or fewer workers"
        require(COPIES * self.copies * self.recorder.nbytes, "what has been recorded", "stop", instead)

    def fraction(self, steps: float) -> float:
        """How much of the run is done, from 0 to 1, by the nearest bound of `stop`, with so many steps."""
        limits, stop = self.plan.quota, self.scenario.stop
        parts = [0.0 if stop.time is None else self.environment.now / stop.time]
        if limits.each is not None:
            parts.append(steps / (limits.each * len(self.programs)))
        if limits.together is not None:
            parts.append(steps / (limits.together * self.scenario.split.devices))
        if stop.updates is not None:
            parts.append(min(self.ending.versions.values(), default=0) / stop.updates)
        return min(1.0, max(parts))

    def _waits(self, rank: int) -> str:
        wanted = [
            f"{kind or 'any'} from {'anyone' if s is None else s}"
            for kind, s, _, _ in self.nodes[rank].mailbox.waiting
        ]
        return f"rank {rank} waits for {', '.join(wanted) or 'an event'}"

    def result(self) -> Result:
        """What the run left; parameters are evaluated now, off the clock."""
        return outcome(self)


@contextmanager
def no_garbage() -> Iterator[None]:
    """Keep Python from looking for cycles, which a run does not make: with many workers it looks long."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def simulate(plan: Plan, progress: Progress | None = None) -> Result:
    """Predict a run of the job; `progress` is told the fraction done now and then.

    Raises SimulationError if the nodes deadlock, a conservation law is broken, or a fault ends the run.
    """
    if plan.scenario.with_faults:
        from lockstep.simulator.lives import simulate_with_faults

        return simulate_with_faults(plan, progress)
    with learning() if plan.scenario.workload.learns else no_garbage():  # of users' code there may be some
        result = _simulated(plan, progress)
        left = gc.get_count()[0]
    if left > _MANY:  # what is left of the run, before anything else is put where it lies
        gc.collect()
    return result


def _simulated(plan: Plan, progress: Progress | None) -> Result:
    simulation = Simulation(plan)
    try:
        simulation.run(progress)
    except Disturbed:
        simulation = Simulation(plan, shortcuts=False)
        simulation.run(progress)
    return simulation.result()
