"""One process of a real run: sets up its node, runs its program, and leaves what it recorded in the store."""

import os
import pickle
import signal
import socket
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
import torch.distributed as dist

from executor import signals
from executor.devices import Place, choose, computes_on
from executor.heap import keep_freed_memory
from executor.interleaving import LoggedNode
from executor.meeting import meet
from executor.memory import SharedMemory, WorkerMemory, on_one_host
from executor.node import RealNode, run_to_end
from executor.parent import end_with_parent
from executor.store import put
from executor.testbed import Seat
from executor.transport import Transport
from scenarios import Scenario
from strategies import Strategy, find
from strategies.placement import Role, evaluated, roles_of, shards_of
from workloads import build, sizes
from workloads.compute_time import compute_times
from workloads.quota import quota
from workloads.snapshots import Snapshots

_HEAD_START_S = 0.05  # from the agreement on the instant of the start to the start
_MOST_CONNECTED = 64  # workers, each with each: two seconds on two cores, and 200 file descriptors a process


@dataclass(frozen=True)
class Outcome:
    """What one process leaves behind."""

    records: pd.DataFrame
    snapshots: Snapshots | None
    overruns: list[float]
    interleaving: pd.DataFrame


class StoreGone(RuntimeError):
    """The store cannot be reached any more. `outcome`: what this process would have left there."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__("the store in which the processes meet is gone")
        self.outcome = outcome


def everyone(scenario: Scenario) -> list[Role]:
    """The role of every process of a run of the scenario."""
    strategy = find(scenario.strategy.name, scenario.strategy.parameters)
    return roles_of(scenario.cluster, strategy.has_servers)


def participate(scenario: Scenario, rank: int, store: dist.Store, seat: Seat) -> None:
    """Be process `rank` of the run, which others reach at the address of its seat.

    Whatever ends it leaves what was recorded in the store; raises StoreGone with that if it cannot.
    `signals.Terminated` is raised only by a handler.
    """
    torch.set_num_threads(1)  # as in the simulator, so that the bits are the same
    keep_freed_memory()
    roles, workers = everyone(scenario), scenario.cluster.workers
    world = len(roles)
    strategy = find(scenario.strategy.name, scenario.strategy.parameters)
    places = _exchange(store, rank, world)
    size = sizes(scenario.workload)
    dtype = getattr(torch, getattr(scenario.workload, "dtype", "float32"))
    is_worker = rank < workers
    device, backend = choose(places[:workers], rank, seat.namespace is not None) if is_worker else ("cpu", "")
    learner = build(scenario.workload, workers, scenario.seed, device) if scenario.workload.learns else None
    initial = learner.initial() if learner else torch.zeros(size.parameters, dtype=dtype)
    transport = Transport(store, rank, seat.address, initial.dtype)
    if is_worker and workers > 1:
        if backend == "nccl":
            torch.cuda.set_device(device)
        group = dist.PrefixStore("collectives", store)
        dist.init_process_group(backend, store=group, rank=rank, world_size=workers)
    emulated = is_worker and scenario.cluster.compute != "measured"
    node = RealNode(
        scenario,
        rank,
        roles,
        shards_of(scenario.cluster, strategy.has_servers, size.parameters),
        initial.to(device),
        transport,
        compute_times(scenario, size)[rank] if emulated else None,
        learner,
        quota(scenario, size.samples, strategy.equal_steps),
        _snapshots(strategy, roles, rank, size.nbytes, initial),
    )
    if strategy.models == "shared":
        on_one_host(scenario.strategy.name, places)
        node.memory = WorkerMemory(node, SharedMemory(store, rank, initial))
    if learner and is_worker:
        learner.gradient(node.initial, rank, 0)  # the first one is slow: not on the clock
    meet(store, "addresses of inboxes", world)
    transport.connect(_peers(roles, rank, strategy))  # not on the clock either
    node.zero = _start_together(store, rank, world, same_host=len({p.host for p in places}) == 1)
    logged = LoggedNode(node, computes_on(device))
    program = strategy.program(roles[rank].kind, scenario.strategy.parameters)(logged)
    with ExitStack() as deaf:
        try:
            try:
                run_to_end(logged.run(program))
                node.finish()
            finally:
                deaf.enter_context(signals.handled(signal.SIG_IGN, *signals.ENDING))
        finally:  # of a second try: a signal can come on the way into the first one
            if node.snapshots is not None:
                _to_cpu(node.snapshots)
            outcome = Outcome(node.recorder.frame(), node.snapshots, node.overruns, logged.log.frame())
            try:
                put(store, f"outcome/{rank}", pickle.dumps(outcome))
            except dist.DistError as error:
                raise StoreGone(outcome) from error
    meet(store, "end", world)
    transport.close()
    if dist.is_initialized():
        dist.destroy_process_group()


def _peers(roles: Sequence[Role], rank: int, strategy: Strategy) -> list[int]:
    """Whom a process is connected to before the start: those above and below it, or all other workers.

    Not the workers of a large run: they make the connections that they need with their first messages.
    """
    if strategy.has_servers:
        return [*roles[rank].parents, *roles[rank].children]
    if strategy.models == "shared" or len(roles) > _MOST_CONNECTED:
        return []
    return [other for other in range(len(roles)) if other != rank]


def _snapshots(
    strategy: Strategy, roles: Sequence[Role], rank: int, nbytes: int, initial: torch.Tensor
) -> Snapshots | None:
    """What keeps the snapshots of a process, if its parameters are evaluated; shared ones are by all."""
    ranks = evaluated(roles, strategy.models)
    if rank not in ranks and strategy.models != "shared":
        return None
    own = strategy.models == "own"
    return Snapshots(len(ranks) * nbytes if own else nbytes, initial if own else None)


def _to_cpu(snapshots: Snapshots) -> None:
    for version, (at, part) in snapshots.taken.items():
        snapshots.taken[version] = (at, part.cpu())
    if snapshots.last is not None:
        version, at, part = snapshots.last
        snapshots.last = (version, at, part.cpu())


def _exchange(store: dist.Store, rank: int, world: int) -> list[Place]:
    """Tell the others where this process runs, and learn where they do."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()  # two hosts may have the same name
    store.set(f"place/{rank}", f"{socket.gethostname()}/{boot} {torch.cuda.device_count()}")
    meet(store, "places", world)
    told = [store.get(f"place/{other}").decode().split() for other in range(world)]
    return [Place(host, int(gpus)) for host, gpus in told]


def _start_together(store: dist.Store, rank: int, world: int, same_host: bool) -> float:
    """Wait for everybody, then for one common instant; its reading of the monotonic clock.

    Between hosts monotonic clocks do not compare: there everyone starts when told, which is off by the
    time the store takes to tell.
    """
    meet(store, "start", world)
    if rank == 0:
        store.set("zero", repr(time.monotonic() + _HEAD_START_S))
    zero = float(store.get("zero"))
    if not same_host:
        zero = time.monotonic() + _HEAD_START_S
    time.sleep(max(0.0, zero - time.monotonic()))
    return zero


def main(scenario: Scenario, rank: int, port: int, seat: Seat) -> None:
    """Be a process that `launch` started: report a failure in the store, and never outlive the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it says SIGTERM
    signal.signal(signal.SIGTERM, signals.terminate)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.ENDING)  # the fork server does not hear them
    end_with_parent()
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    try:
        seat.take()
        participate(scenario, rank, store, seat)
    except signals.Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException as error:
        failure = (time.monotonic(), repr_line(error), traceback.format_exc())
        with suppress(RuntimeError):  # the store is gone if the parent is
            store.set(f"failure/{rank}", pickle.dumps(failure))
        os._exit(1)  # at once: threads and sockets must not hold a dead run up


def repr_line(error: BaseException) -> str:
    """An error in one line: its type and what it says."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
