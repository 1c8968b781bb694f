"""Runs in which processes fail, in virtual time: who stands still, what is lost, and how the job goes on.

A failure that ends the job's life begins another (job/incarnation.py): a simulation of its own, on the same
clock, from the last checkpoint on. Where the job goes on with those who are there, a process that is back is
a new node in the same simulation; the failure detector sends `leave` on behalf of who is gone.

Not modelled: a message that a cut holds up still takes its share of the links meanwhile; a device whose
process stands still for a while, and is not missed, finishes what it was given.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, nan
from typing import Any

from simpy.core import StopSimulation

from lockstep.analysis.records import Recorder
from lockstep.job.ending import Ending
from lockstep.job.events import Event
from lockstep.job.faults import Crash, Cut, Fault, Hang, there_at
from lockstep.job.incarnation import Checkpoints, Incarnation, Saved, nbytes_of, saver
from lockstep.job.node import Node
from lockstep.job.plan import Plan
from lockstep.job.port import Arrival, PassOf, Port, Work
from lockstep.job.recovery import (
    Faults,
    does_not_come_back,
    killed,
    noticed,
    says,
)
from lockstep.simulator.engine import Simulation
from lockstep.simulator.errors import SimulationError
from lockstep.simulator.events import Aside, Process, Timeout
from lockstep.simulator.port import VirtualPort
from lockstep.strategies.node import Message
from lockstep.workloads.compute_time import compute_times

_MANY = 64  # activities of a node, of which most have ended


@dataclass(slots=True)
class Told:
    """A message that crosses no network: the failure detector's."""

    message: Message
    start: float
    left_at: float = nan
    nbytes: int = 0


class FaultyPort(VirtualPort):
    """Of a node that may fail, or whose messages may be held up."""

    __slots__ = ("computes_until",)

    def __init__(self, simulation: "FaultySimulation", rank: int) -> None:
        super().__init__(simulation, rank)
        self.computes_until = 0.0  # inf: not known when it will be done

    def post(self, to: int, message: Message) -> Awaitable[None]:
        """As from any port; it is lost if either end fails before it is there, or the receiver is gone."""
        simulation: Any = self.simulation
        lives = simulation.lives[self.rank], simulation.life_of(to)
        nbytes = 0 if message.body is None else message.body.nbytes
        arrived = partial(simulation.arrived, self.rank, to, lives)
        return self._network.send(self.rank, to, nbytes, message, arrived)

    def compute(
        self, parameters: Any, step: int, down_to: Sequence[int] = (), of: PassOf | None = None
    ) -> Work:
        """As any port's; who fails meanwhile has not finished it."""
        work = super().compute(parameters, step, down_to, of)
        self.computes_until = inf if work.end is None else work.end
        if work.end is None:
            work.done.then(self._computes_no_more)
        give_up = work.give_up

        def given_up() -> None:
            self._computes_no_more()
            give_up()

        work.give_up = given_up
        return work

    def _computes_no_more(self, _: object = None) -> None:
        self.computes_until = self.clock.now


class FaultySimulation(Simulation):
    """One life of a job; `failed` is what ended it, if a failure did."""

    def __init__(self, plan: Plan, life: Incarnation, faults: Faults, checkpoints: Checkpoints) -> None:
        self.faults, self.checkpoints = faults, checkpoints
        self.failed: Fault | None = None
        self.kills: list[tuple[int, float]] = []
        self.lives: Counter[int] = Counter()  # of each rank, in this life of the job
        self._down: dict[int, Fault] = {}  # rank → why it is, or stands still until it counts as that
        self._dead: set[int] = set()  # those of them whose life has ended
        self._unfinished: set[int] = set()  # those killed while they computed
        self._activities: dict[int, list[Process]] = {}
        self._ports: dict[int, FaultyPort] = {}
        self._cuts: list[Cut] = []
        self._handed: dict[tuple[int, int], float] = {}  # sender, to → when the last held-up message is there
        self._policy = plan.scenario.on_failure
        storage = plan.scenario.cluster.storage
        self._read = storage.read if storage else None
        super().__init__(plan, shortcuts=False, incarnation=life)
        self._await_next()

    # ---------------------------------------------------------------- nodes that may fail

    def stands_on(self, rank: int) -> tuple[Port, Ending]:
        """A port that can fail."""
        port = self._ports[rank] = FaultyPort(self, rank)
        return port, self.ending

    def _node(self, rank: int, incarnation: Incarnation | None = None) -> Node:
        node = super()._node(rank, incarnation)
        node.keep = lambda saved: lambda: self.checkpoints.add(rank, saved)
        node.forget = self.checkpoints.forget
        return node

    def start(
        self, rank: int, program: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None
    ) -> Process:
        """Let a program run until it ends, or its node fails."""
        process = super().start(rank, program, ended)
        own = self._activities.setdefault(rank, [])
        if len(own) > _MANY:
            own[:] = [each for each in own if each.alive]
        own.append(process)
        return process

    def life_of(self, rank: int) -> int:
        """To which of its lives a message goes that is sent to it now: if it is gone, to the one before."""
        return self.lives[rank] - (rank in self._dead)

    def arrived(self, sender: int, to: int, lives: tuple[int, int], transfer: Arrival) -> None:
        """A message would be there, but for cuts; it keeps its place behind those that they hold up."""
        now, hosts = self.environment.now, self.plan.hosts
        at = there_at(self._cuts, transfer.start, now, hosts[sender], hosts[to])
        at = max(at, self._handed.get((sender, to), now))
        if at > now:
            self._handed[sender, to] = at
            self._later(at, lambda: self._hand(sender, to, lives, transfer))
        else:
            self._hand(sender, to, lives, transfer)

    def _hand(self, sender: int, to: int, lives: tuple[int, int], transfer: Arrival) -> None:
        if lives == (self.lives[sender], self.lives[to]):  # else an end of the connection has failed
            self.inboxes[to](transfer)

    # ---------------------------------------------------------------- what befalls them

    def _later(self, at: float, do: Callable[[], None]) -> None:
        Timeout(self.environment, max(0.0, at - self.environment.now), lambda _: do())

    def _await_next(self) -> None:
        if (fault := self.faults.next) is not None:
            Aside(self.environment, max(0.0, fault.at - self.environment.now), self._happens)

    def _happens(self, _: Any) -> None:
        if not self.network.under_way():  # the run has ended, or waits for ever: nothing is left to go wrong
            return
        fault = self.faults.pop()
        ranks = tuple(rank for rank in fault.ranks if rank not in self._down and not self._ended(rank))
        if ranks:
            self.faults.befell(fault, ranks)
        if ranks or isinstance(fault, Cut):
            self._befalls(fault, ranks)
        self._await_next()

    def _ended(self, rank: int) -> bool:
        """Whether a worker has come to its end, where nobody asks it for anything then."""
        return rank in self.workers and self.plan.has_servers and not self.programs[rank].alive

    def _befalls(self, fault: Fault, ranks: tuple[int, ...]) -> None:
        known = noticed(self.scenario, fault)
        if isinstance(fault, Crash) and (gone := killed(self.scenario, fault)) > fault.at:
            self._stand_still(ranks, fault)
            self._later(gone, lambda: self._kill(ranks, fault))
        elif isinstance(fault, Crash):
            self._kill(ranks, fault)
        elif isinstance(fault, Hang) and known == inf:
            self._hold(ranks, fault.until)
        elif isinstance(fault, Hang):
            self._stand_still(ranks, fault)
        elif isinstance(fault, Cut):
            self._cuts.append(fault)
        if known < inf:
            self._later(known, lambda: self._notice(fault, ranks))

    def _kill(self, ranks: Sequence[int], fault: Fault) -> None:
        now = self.environment.now
        for rank in ranks:
            if rank not in self._down:
                self._break_off(rank)
            self._end_life(rank)
            self._down[rank] = fault
            self._dead.add(rank)
        if not self.plan.goes_on:
            return
        for rank in ranks if not self.plan.has_servers else ():
            if self.plan.goes_back(rank):
                self._lose(rank, fault)
        if fault.until < inf:
            self._later(max(now, fault.until), lambda: self._return(ranks, fault))

    def _break_off(self, rank: int) -> None:
        """What it computes comes to no end."""
        now, node = self.environment.now, self.nodes[rank]
        self.kills.append((rank, now))
        self._unfinished.discard(rank)
        if node.under_way or self._ports[rank].computes_until > now:
            self._unfinished.add(rank)
        for step, start in node.under_way.items():
            self.recorder.gradient(rank, start, now + 1, step)  # it would have ended later: see `cut`
        node.busy.record(node, now + 1)
        node.computing, node.recorder = {}, Recorder()  # what the dead do is not recorded

    def _end_life(self, rank: int) -> None:
        self.lives[rank] += 1
        self._ports[rank].leave_cores()
        for process in self._activities.pop(rank, []):
            process.kill()

    def _stand_still(self, ranks: tuple[int, ...], fault: Fault) -> None:
        """Until their lives end."""
        self._hold(ranks, inf)
        for rank in ranks:
            self._break_off(rank)
            self._down[rank] = fault

    def _hold(self, ranks: tuple[int, ...], until: float) -> None:
        awake = Event()
        held = [(rank, each) for rank in ranks for each in self._activities.get(rank, []) if each.alive]
        for _, process in held:
            process.hold(awake)

        def wake() -> None:
            for rank, process in held:
                if process.alive and rank not in self._down:
                    process.let_go()
            awake.happen()

        if until < inf:
            self._later(until, wake)

    def _notice(self, fault: Fault, ranks: tuple[int, ...]) -> None:
        """It is known who has failed: the job does what it is to do then."""
        if isinstance(fault, Cut):  # who is down has another reason to be
            ranks = tuple(rank for rank in ranks if rank not in self._down and not self._ended(rank))
        else:
            ranks = tuple(rank for rank in ranks if self._down.get(rank) is fault)
        if not ranks:  # back before anybody has noticed
            return
        if self._policy == "stop":
            raise SimulationError(says(self.plan, fault, ranks))
        if self._policy in ("restart", "spare"):
            for rank in ranks:
                self._down[rank] = fault
            self.failed = fault
            raise StopSimulation(None)
        servers = any(rank not in self.workers for rank in ranks)
        if fault.until == inf and (self._policy == "wait" or servers):
            raise SimulationError(does_not_come_back(self.plan, fault, ranks))
        if not isinstance(fault, Crash):  # what it still does counts no longer
            self._kill(ranks, fault)
        if self._policy == "continue":
            for rank in ranks:
                self._tell("leave", rank)

    def _tell(self, kind: str, rank: int) -> None:
        """The failure detector says it to those who wait for the rank's messages."""
        for other in self.plan.told_of(rank):
            if other not in self._down:
                self._hears(other, kind, rank)

    def _hears(self, rank: int, kind: str, of: int) -> None:
        self.inboxes[rank](Told(Message(kind, of), self.environment.now))

    # ---------------------------------------------------------------- who is back

    def _return(self, ranks: Sequence[int], fault: Fault) -> None:
        for rank in ranks:
            saved = self._last_saved(rank)
            seconds = nbytes_of(saved.state) / self._read if saved and self._read else 0.0
            if self._down.get(rank) is fault:
                self._later(self.environment.now + seconds, partial(self._take_place, rank, fault))

    def _take_place(self, rank: int, fault: Fault) -> None:
        del self._down[rank]
        self._dead.discard(rank)
        known = min(noticed(self.scenario, fault), self.environment.now)
        self.recorder.note("recovery", rank, known, self.environment.now, -1)
        if rank in self.workers and self.plan.has_servers:
            self._rejoin(rank)
            return
        if rank in self.workers:
            self._tell("join", rank)
            saved, step = self._last_saved(rank), self._next_step(rank)
            if self.plan.goes_back(rank):
                step = saved.step if saved else 0
            self.programs[rank] = self._new(rank, step, saved)
            for other in self._down if self._policy == "continue" else ():
                self._hears(rank, "leave", other)
            return
        self._new(rank, 0, self._goes_back(rank))
        for worker in self.roles[rank].children:  # their connections are broken: they begin again from it
            ended = worker not in self._down and not self.programs[worker].alive
            if ended or (worker in self._down and self._policy == "continue"):
                self._hears(rank, "leave", worker)
            elif worker not in self._down and self.plan.has_joined(worker, self.environment.now):
                self._break_off(worker)
                self._end_life(worker)
                self._rejoin(worker)

    def _last_saved(self, rank: int) -> Saved | None:
        """The last that it has written, or who holds the same."""
        by = rank if self.plan.has_servers else saver(self.plan, rank)
        return None if by is None else self.checkpoints.latest.get(by)

    def _goes_back(self, owner: int) -> Saved | None:
        """What an owner of parameters has made since its last checkpoint is lost: what it goes on from."""
        saved = self.checkpoints.latest.get(owner)
        version = saved.version if saved else 0
        self.back.append((owner, version, self.environment.now))
        self.ending.goes_back(owner, version)
        if (kept := self.snapshots.get(owner)) is not None:
            kept.go_back(version, saved.shown if saved else None)
        return saved

    def _lose(self, worker: int, fault: Fault) -> None:
        """A worker is gone with parameters of its own."""
        saved = self._goes_back(worker)
        self.ending.again(worker, self.nodes[worker].step, saved.step if saved else 0)
        if fault.until == inf:
            self.absent.add(worker)
            self.ending.lost(worker)

    def _rejoin(self, worker: int) -> None:
        """A worker takes its next mini-batch anew: the one that it was at."""
        self._tell("join", worker)
        self.programs[worker] = self._new(worker, self._next_step(worker), None)

    def _next_step(self, worker: int) -> int:
        return self.nodes[worker].step - (worker in self._unfinished)

    def _new(self, rank: int, step: int, saved: Saved | None) -> Process:
        number = self.incarnation.number + self.lives[rank]
        begins_with = {} if saved is None else {rank: saved}
        life = Incarnation(number, self.environment.now, 0, {rank: step}, begins_with, rejoins=True)
        if rank in self.workers:
            self.compute[rank] = compute_times(self.scenario, self.sizes, life.key())[rank]
        node = self.nodes[rank] = self._node(rank, life)
        self.inboxes[rank] = node.take_in
        return self.begin(node, self.plan.program(rank))

    # ---------------------------------------------------------------- the end of a life

    def finish(self) -> None:
        """A life that a failure has ended is over as it is."""
        if self.failed is None:
            super().finish()
            if self.plan.goes_on and self.owners.shown_by_all and self._down.keys() >= {*self.workers}:
                self._leave_what_is_saved()

    def _leave_what_is_saved(self) -> None:
        """Of what all held who are gone, the last checkpoint is left."""
        saved = self.checkpoints.newest
        self.leave(saved, saved.version if saved else 0, self.environment.now)

    @property
    def under_way(self) -> Sequence[Fault]:
        """Why processes are not there, or do not reach each other."""
        now = self.environment.now
        return [*self._down.values(), *(cut for cut in self._cuts if cut.until > now)]

    def follow(self, version: int) -> None:
        """What a failure has left: all updates from a version on are lost, and nobody goes on."""
        now = self.environment.now
        self.kills += [(rank, now) for rank in self.nodes if rank not in self._down]
        self.back += [(owner, version, now) for owner in self.owners.ranks]
