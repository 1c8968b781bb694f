"""One process of a real run: sets up its node, runs its program, and leaves what came of it in a folder."""

import gc
import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path

import torch
import torch.distributed as dist

from lockstep.analysis.entries import AGAIN, LIFE
from lockstep.analysis.records import Recorder
from lockstep.executor import absence, checkpoint_file, native, signals, snapshot_file, sockets
from lockstep.executor.anew import ANEW, Anew, await_others, begin_anew
from lockstep.executor.barrier import barrier
from lockstep.executor.bodies import allow_descriptors
from lockstep.executor.core_time import CoreTime
from lockstep.executor.cuts import cuts_links, held_up
from lockstep.executor.device_bodies import agree
from lockstep.executor.devices import (
    Place,
    asked,
    boot,
    choose,
    computes_on,
    gpus,
    kind,
    sharing,
    use,
    visible,
)
from lockstep.executor.heartbeat import Heartbeat, repr_line
from lockstep.executor.interleaving import DurableInterleaving, Interleaving, RecordedPort
from lockstep.executor.journal import GoingOnPort, JournallingPort, journal_of
from lockstep.executor.leaving import hear_of_deaths, hear_of_leaving
from lockstep.executor.memory import SharedMemory, WorkerMemory, on_one_host
from lockstep.executor.parent import end_with_parent, print_aside
from lockstep.executor.peers import check_ends
from lockstep.executor.port import RealPort
from lockstep.executor.rehearsal import rehearse
from lockstep.executor.report import Report
from lockstep.executor.room import require_on_gpus
from lockstep.executor.running import run_to_end
from lockstep.executor.stopping import say
from lockstep.executor.stored import StoredSnapshots
from lockstep.executor.stores import FolderStore, Store, for_collectives
from lockstep.executor.testbed import Seat
from lockstep.executor.transport import Transport
from lockstep.executor.watchdog import Status
from lockstep.job.arithmetic import OnTensors
from lockstep.job.ending import Ending
from lockstep.job.incarnation import FIRST, Incarnation
from lockstep.job.node import Node
from lockstep.job.plan import Plan
from lockstep.job.segments import Segments
from lockstep.job.snapshots import Snapshots
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.strategies.node import Message
from lockstep.workloads import Reader, build, first_parameters
from lockstep.workloads.compute_time import compute_times
from lockstep.workloads.heap import give_back_freed_memory, keep_freed_memory

START = "start"  # where processes wait for each other to begin
STORE = "store"  # the folder in the run's folder by which processes of one host tell each other things
_LOOK_S = 0.05  # how often one that waits for its turn looks whether the run is over
_SOON_S = 0.002  # how often, once its turn is due
_HEAD_START_S = 0.05  # from the agreement on the instant of the start to the start
_MOST_CONNECTED = 64  # workers, each with each: two seconds on two cores, and 200 file descriptors a process


@dataclass(frozen=True)
class Control:
    """What a process of a run has besides its messages: a store, a line to the hub, and folders."""

    store: Store
    heartbeat: Heartbeat
    place: sockets.Place
    leave: Callable[[str, Path], None]  # a file, where the run is watched
    kept: Path  # the folder for its records while the run goes on
    private: Path  # the run's folder on this host
    life: Incarnation = FIRST  # what the run, or this life of it, begins with
    origin: float | None = None  # of the run's clock, if it is not its first life

    @property
    def rejoins(self) -> bool:
        """Whether it takes the place of one that has died, while the others go on."""
        return self.life.rejoins


def participate(plan: Plan, rank: int, control: Control) -> None:
    """Be process `rank` of the run.

    Whatever ends it leaves what was recorded on disk. `signals.Terminated` is raised only by a handler.
    """
    store = control.store
    torch.set_num_threads(1)  # as in the simulator, so that the bits are the same
    keep_freed_memory()
    allow_descriptors()
    scenario, size, workers, world = plan.scenario, plan.sizes, len(plan.workers), len(plan.roles)
    life = control.life
    if rank == 0 and not control.rejoins:
        for name, made in life.counts(plan).items():
            store.add(name, made)
    is_worker = rank < workers
    key, wanted = asked(scenario.cluster, is_worker)
    places = _exchange(store, rank, world, visible(wanted), kind(wanted))
    if wanted == "cuda" and not places[rank].gpus:
        host = places[rank].host.partition("/")[0]
        raise ScenarioError(f"{plan.roles[rank].name} sees no GPU on {host}", key=key)
    dtype = getattr(torch, getattr(scenario.workload, "element", "float32"))
    on_testbed = control.place.address is not None and control.place.keys is None
    alike, first = (places[:workers], 0) if is_worker else (places[workers:], workers)
    device, backend = choose(alike, rank - first, on_testbed)
    use(torch.device(device))
    on_gpus = any(place.gpus for place in places) and not control.rejoins
    if on_gpus:
        require_on_gpus(
            plan, store, rank, [*gpus(places[:workers]), *gpus(places[workers:])], torch.device(device)
        )
    learner, group = None, plan.group(rank)
    if not scenario.workload.learns:
        initial = torch.zeros(group.length, dtype=dtype)
    elif is_worker:
        learner = build(scenario.workload, plan.replicas, scenario.seed, device)
        initial = group.slice_of(learner.initial())
    else:  # a server has no use for a model, or for data
        initial = group.slice_of(first_parameters(scenario.workload, scenario.seed))
        gc.collect()  # what has made them may refer to itself
    give_back_freed_memory()  # the model as it was made
    assert initial.nbytes == group.length * size.itemsize, "what job/memory.py counts with"
    transport = Transport(store, rank, control.place, initial, plan.senders[rank], plan.activation)
    if on_gpus:
        transport.on_devices = agree(store, rank, places, torch.device(device))

    def join_workers() -> None:
        found = for_collectives(store, control.private)
        native.join(backend, torch.device(device), found, rank, workers)
        if len(plan.groups) > 1:  # all must make all groups
            joined = [dist.new_group([*other.workers]) for other in plan.groups]
            port.process_group = joined[plan.places[rank][0]]
        native.first_sum(port.initial, port.process_group)
        check_ends()

    emulated = is_worker and scenario.cluster.compute != "measured"
    compute = compute_times(scenario, size, life.key())[rank] if emulated else None
    noting = GoingOnPort if plan.goes_on else JournallingPort
    of_kind = noting if scenario.with_faults and is_worker else RealPort
    port = of_kind(plan, rank, initial.to(device), transport, compute, learner)
    if isinstance(port, JournallingPort):
        port.journal = journal_of(control.kept, rank)
    if is_worker and workers > 1 and plan.native:
        join_workers()
    snapshots = _snapshots(plan, rank, initial, control.kept) if scenario.workload.learns else None

    def stand() -> RecordedPort:
        """Let the node stand on the port, which goes on from the checkpoint that there is now."""
        begins = life
        if scenario.with_faults:
            begins = checkpoint_file.beginning(plan, control.kept.parent, life, rank, device)
        if control.rejoins:  # it may be later than it was to be: who has left by plan until then is not there
            begins = replace(begins, start=max(begins.start, port.now))
        recorded = RecordedPort(port, computes_on(device), _log(control, begins, scenario, rank))
        recorded.connection = transport.connection
        if snapshots is not None and control.rejoins:
            snapshot_file.restore(snapshots, control.private, rank, begins.version)
        running(port, snapshots, recorded, begins)
        return recorded

    def listen() -> None:
        port.hear, port.take_in = recorded.hearing(port.node.take_in), recorded.taking_in(port.node.take_in)
        if cuts_links(plan) and not on_testbed:
            port.take_in = held_up(port, port.take_in, 0.0 if control.rejoins else control.life.start)

    if control.rejoins:
        node = running(port, None)  # to rehearse with
    else:
        recorded, node = stand(), port.node
        listen()
    if plan.owners.in_one_memory:
        on_one_host(scenario.strategy.name, places)
        node.memory = WorkerMemory(node, port, SharedMemory(store, rank, initial))
    port.join_workers = join_workers
    port.leave = lambda name, content: _leave(control, name, lambda file: file.write_bytes(content))
    if rank in plan.stages:
        port.computing.segments = Segments(plan, learner, node.arithmetic.blank)
    if scenario.workload.readers and isinstance(learner, Reader):
        learner.read_ahead(port.replica, scenario.workload.readers, plan.micro_batches)
    start = time.monotonic()
    if learner is not None:
        port.computing.warm_up(life.steps.get(rank, 0))  # the first gradient is slow: not on the clock
    if scenario.workload.readers and isinstance(learner, Reader):  # and so is the first mini-batch
        learner.batch(port.replica, life.steps.get(rank, 0), 0, plan.micro_batches)
    rehearse(plan, node)  # and so is the first update
    port.computing.longest_s = time.monotonic() - start
    barrier(store, "addresses of inboxes", world)
    if control.rejoins:
        # Who waits for its turn gets on, for however long.
        control.heartbeat.look = lambda: Status(done=int(1e3 * time.monotonic()))
        _await_turn(port, control.origin, life.start)
        transport.begin_anew(life.number)  # what came until now may be of who is gone again
        recorded, node = stand(), port.node
        listen()
        _greet(port)
    else:
        transport.connect(_connected(plan, rank))  # not on the clock either
        same_host = len({place.host for place in places}) == 1
        port.zero = _start_together(store, rank, world, same_host, control.origin, life.start)
    if plan.goes_on and not (is_worker and plan.has_servers):
        hear_of_leaving(port, life.start, control.rejoins)
        if scenario.on_failure == "continue":
            hear_of_deaths(port)
    report = Report(port, recorded.log, control.kept)
    control.heartbeat.look, control.heartbeat.write = report.status, report.write
    if scenario.with_faults:
        flush = [report.write]
        if plan.goes_on and snapshots is not None:
            flush.append(snapshot_file.keeping(snapshots, control.private, rank))
        node.keep = checkpoint_file.keeping(plan, control.kept.parent, rank, flush)
        node.forget = partial(checkpoint_file.forget, plan, control.kept.parent)
    if isinstance(port, JournallingPort):
        node.noted = port.note
    core_time = CoreTime()
    with ExitStack() as deaf:
        try:
            try:
                while True:
                    try:
                        program = recorded.run(plan.program(rank)(port.node))
                        run_to_end(program, port, port.node.end)
                        break
                    except Anew:
                        assert isinstance(port, GoingOnPort)
                        begin_anew(port, recorded, listen)
                port.finish()
            finally:
                deaf.enter_context(signals.handled(signal.SIG_IGN, *signals.ENDING))
        finally:  # of a second try: a signal can come on the way into the first one
            report.close()
            for file in report.files:
                if file.exists():
                    control.leave(file.name, file)
            if (snapshots := port.node.snapshots) is not None:
                _leave(control, f"snapshots-{rank}.npz", lambda file: snapshot_file.write(file, snapshots))
            shared = sharing(places[:workers], rank) if is_worker else []
            overruns, cores = port.computing.overruns, core_time.taken()
            outcome = {"overruns": overruns, "rank": rank, "sharing": shared, "cores": cores}
            said = json.dumps(outcome).encode()
            _leave(control, f"outcome-{rank}.json", lambda file: file.write_bytes(said))
    if isinstance(learner, Reader):
        learner.end_reading()
    control.heartbeat.end()
    if isinstance(port, GoingOnPort):
        await_others(port, recorded)
    else:
        transport.let_go()
        barrier(store, "end", world)
    transport.close()
    if dist.is_initialized():
        dist.destroy_process_group()


def _log(control: Control, life: Incarnation, scenario: Scenario, rank: int) -> Interleaving:
    """The log of a process; that of one that may be killed begins with what its life does."""
    if not scenario.with_faults:
        return Interleaving()
    kind = AGAIN if control.rejoins else ""
    log, step = DurableInterleaving(control.kept, rank), life.steps.get(rank, 0)
    log.note(LIFE, kind, peer=life.number, number=step, version=life.version, answer=life.start)
    return log


def running(
    port: RealPort,
    snapshots: Snapshots | None,
    recorded: RecordedPort | None = None,
    life: Incarnation = FIRST,
) -> Node:
    """The node that stands on a port, perhaps a recorded one."""
    plan, rank, stopping, learner = port.plan, port.rank, port.stopping, port.learner
    count = recorded.counting(stopping.count) if recorded else stopping.count
    ending = Ending(plan, count, partial(say, port.store), life.versions(plan))
    epoch = learner.epoch(port.replica) if learner and rank in plan.workers else plan.epoch(rank)
    arithmetic = OnTensors(port.initial, port.transport.room)
    port.node = Node(plan, rank, recorded or port, Recorder(), ending, arithmetic, snapshots, epoch, life)
    port.hear = port.take_in = recorded.taking_in(port.node.take_in) if recorded else port.node.take_in
    return port.node


def _leave(control: Control, name: str, write: Callable[[Path], object]) -> None:
    """Write a file, and leave it as a whole where the run is watched."""
    part = control.private / f".{os.getpid()}-{name}"
    write(part)
    whole = part.rename(control.private / name)
    control.leave(name, whole)


def _connected(plan: Plan, rank: int) -> Sequence[int]:
    """Whom a process is connected to before the start.

    Not the workers of a large run: they make the connections that they need with their first messages.
    """
    alone = plan.owners.in_one_memory or (not plan.has_servers and len(plan.roles) > _MOST_CONNECTED)
    return [] if alone else plan.neighbours(rank)


def _snapshots(plan: Plan, rank: int, initial: torch.Tensor, folder: Path) -> Snapshots | None:
    """What keeps the snapshots of a process, if its parameters are evaluated."""
    if not plan.owners.keeps(rank):
        return None
    own = initial if plan.owners.apart else None
    return StoredSnapshots(plan.owners.copies * plan.sizes.nbytes, own, folder)


def _exchange(store: Store, rank: int, world: int, gpus: tuple[str, ...], kind: str) -> list[Place]:
    """Tell the others where this process runs and what it sees, and learn the same of them."""
    # two hosts may have the same name
    store.set(f"place/{rank}", json.dumps([f"{socket.gethostname()}/{boot()}", gpus, kind]))
    barrier(store, "places", world)
    told = [json.loads(store.get(f"place/{other}").decode()) for other in range(world)]
    return [Place(host, tuple(gpus), kind) for host, gpus, kind in told]


def _start_together(
    store: Store, rank: int, world: int, same_host: bool, origin: float | None, start: float
) -> float:
    """Wait for everybody, then for one common instant; its reading of the monotonic clock.

    With an `origin` of the run's clock they wait until that reads `start`, if it does not yet.

    Between hosts monotonic clocks do not compare: there everyone starts when told, which is off by the
    time the store takes to tell.
    """
    barrier(store, START, world)
    if origin is not None:
        time.sleep(max(0.0, origin + start - time.monotonic()))
        return origin
    if rank == 0:
        store.set("zero", repr(time.monotonic() + _HEAD_START_S))
    zero = float(store.get("zero"))
    if not same_host:
        zero = time.monotonic() + _HEAD_START_S
    time.sleep(max(0.0, zero - time.monotonic()))
    return zero


def _await_turn(port: RealPort, origin: float | None, start: float) -> None:
    """Wait until one that has died is to be back, unless the run is over before."""
    assert origin is not None
    port.zero = origin
    end = port.plan.scenario.stop.time or inf
    while not port.stopping.said():
        left_s = start - port.now
        if left_s <= 0 and (absence.over(port.store, port.rank) or port.now >= end):
            break
        time.sleep(min(max(left_s, _SOON_S), _LOOK_S))


def _greet(port: RealPort) -> None:
    """Tell the others that one is back.

    Others may have begun anew meanwhile, who would not hear what goes to their lives before.
    """
    port.transport.hear_of_lives(port.plan.neighbours(port.rank))
    for other in port.plan.told_of(port.rank) if port.node.rejoins else ():
        port.node.port.post(other, Message("join", port.rank))
    for child in port.node.children:
        port.post(child, Message(ANEW, port.rank))


@dataclass(frozen=True)
class Contact:
    """How a process that `launch` started finds the others."""

    folder: Path  # the run's private one
    kept: Path
    hub: str  # endpoint
    deadline_s: float | None
    life: Incarnation = FIRST
    origin: float | None = None

    def control(self, rank: int, seat: Seat) -> Control:
        """Take part."""
        place = sockets.Place(self.folder, seat.address)
        heartbeat = Heartbeat(rank, sockets.Place(self.folder), self.hub, self.deadline_s)
        store = FolderStore(self.folder / STORE)
        return Control(store, heartbeat, place, _nowhere, self.kept, self.folder, self.life, self.origin)


def _nowhere(name: str, file: Path) -> None:
    """The file is where it should be."""


def main(scenario: Scenario, rank: int, contact: Contact, seat: Seat) -> None:
    """Be a process that `launch` started: report a failure to it, and never outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it says SIGTERM
    signal.signal(signal.SIGTERM, signals.terminate)
    end_with_parent()
    print_aside()
    control = contact.control(rank, seat)
    control.heartbeat.begin()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # else gloo listens where the host's name leads to
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.ENDING)  # the fork server does not hear them
        seat.take()
        participate(Plan.of(scenario), rank, control)
        control.heartbeat.close()
    except signals.Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException as error:
        told = isinstance(error, ScenarioError)  # which says where by itself
        control.heartbeat.fail(*((str(error), "") if told else (repr_line(error), traceback.format_exc())))
        os._exit(1)  # at once: threads and sockets must not hold a dead run up
