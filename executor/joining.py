"""How a process that torchrun started finds the others of its run.

Those of one host have a private folder in common, and need nothing else. Those of several hosts have a key;
from torchrun's own store, which is open to whoever can connect, they take each other's addresses and no more.
"""

import os
import socket
from argparse import ArgumentTypeError, Namespace
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from torch.distributed.rendezvous import rendezvous

from lockstep.analysis.incomplete import Incomplete
from lockstep.executor import addresses, folder, keys
from lockstep.executor.heartbeat import Heartbeat
from lockstep.executor.hub import NAME, Hub
from lockstep.executor.process import STORE, Control
from lockstep.executor.remote import RemoteStore, answers
from lockstep.executor.sockets import Place
from lockstep.executor.stores import FolderStore, HashStore, Store
from lockstep.executor.watchdog import Watchdog
from lockstep.job.version import CODE, whole_code
from lockstep.scenarios import Scenario, ScenarioError, dump

_HUB = "hub of the run"


@dataclass
class Joined:
    """This process in its run; `hub` is rank 0's."""

    rank: int
    world: int
    control: Control
    hub: Hub | None
    incomplete: Incomplete | None = None


def join(options: Namespace, stack: ExitStack, workers: int | None) -> Joined:
    """Take part, until `stack` is closed; `workers`: how many, if that is known. Raises ScenarioError."""
    rank, world, host, hosts, own, of_a_host = (
        int(os.environ[name])
        for name in ("RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    if workers is not None and workers < world == hosts * of_a_host:
        rank = placed(workers, hosts, of_a_host, host, own)
    private = folder.torchruns_folder()
    stack.callback(folder.leave, private)
    kept = private if options.out is None else options.out / _kept_name(host)
    watchdog = Watchdog(world, options.deadline)
    hub: Hub | None = None
    if hosts == 1:
        place = Place(private)
        store: Store = FolderStore(private / STORE)
        if rank == 0:
            hub = Hub(place, watchdog)
        endpoint = f"ipc://{private / NAME}"
        leave = _nowhere
    else:
        secret = keys.read(options.key)
        rendezvous_store, *_ = next(rendezvous("env://"))
        address = _address(options.interface, rendezvous_store, rank, world)
        run = "/".join(os.environ.get(f"TORCHELASTIC_{name}", "") for name in ("RUN_ID", "RESTART_COUNT"))
        if rendezvous_store.add(f"{run}/{rank}", 1) > 1:
            problem = "must be the same on all hosts where there are several servers"
            raise ScenarioError(problem, key="--nproc-per-node")
        names = [NAME, *map(str, range(world))]
        place = Place(private, address, options.ports, keys.Keys(secret, run, names))
        if rank == 0:
            hub = Hub(place, watchdog, answers(HashStore(), private, kept))
            rendezvous_store.set(_HUB, hub.endpoint)
        endpoint = rendezvous_store.get(_HUB).decode()
        store = remote = RemoteStore(rank, place, endpoint)
        stack.callback(remote.close)
        leave = remote.leave if host else remote.leave_privately
    if hub is not None:
        stack.callback(hub.close)
        for other in range(world):
            hub.expect(other)
    heartbeat = Heartbeat(rank, place, endpoint, options.deadline)
    heartbeat.begin()
    stack.callback(heartbeat.close)
    return Joined(rank, world, Control(store, heartbeat, place, leave, kept, private), hub)


def placed(workers: int, hosts: int, of_a_host: int, host: int, own: int) -> int:
    """The rank in the run of process `own` of a host: its last processes are servers, on each host as many.

    Where they do not divide, the last hosts have one more. So every host has as many workers, for its GPUs;
    and rank 0 is on the first host.
    """
    servers = hosts * of_a_host - workers
    on = [servers // hosts + (hosts - each <= servers % hosts) for each in range(hosts)]
    theirs = of_a_host - on[host]
    if own < theirs:
        return host * of_a_host - sum(on[:host]) + own
    return workers + sum(on[:host]) + own - theirs


def of_this_host(workers: int) -> list[int]:
    """The ranks in the run of the processes that torchrun has started here."""
    hosts, host, of_a_host = (
        int(os.environ[name]) for name in ("GROUP_WORLD_SIZE", "GROUP_RANK", "LOCAL_WORLD_SIZE")
    )
    return [placed(workers, hosts, of_a_host, host, own) for own in range(of_a_host)]


def agree(scenario: Scenario, store: Store) -> None:
    """Raise ScenarioError unless all processes have the same code of ours and the same scenario."""
    host = socket.gethostname()
    own = "\n".join([host, whole_code(), dump(scenario)])
    first = store.compare_set("what is run", "", own).decode()
    other, code, *theirs = first.splitlines()
    _, own_code, *ours = own.splitlines()
    if code != own_code:
        problem = f"{CODE} on {host} ({own_code}) is not that on {other} ({code}); install the same"
        raise ScenarioError(problem)
    for line, there in zip_longest(ours, theirs, fillvalue="nothing"):
        if line != there:
            raise ScenarioError(
                f"the scenario differs: {line.strip()!r} on {host}, {there.strip()!r} on {other}; "
                "give all hosts the same file and options"
            )


def begin_records(joined: Joined, scenario: Scenario, out: Path | None, stack: ExitStack) -> None:
    """One process of each host makes the folder for records; before anybody writes some.

    Raises ScenarioError if it cannot.
    """
    if out is None or os.environ["LOCAL_RANK"] != "0":
        return
    try:
        joined.incomplete = stack.enter_context(Incomplete(out, scenario, joined.control.kept.name))
    except OSError as error:
        reason = f"cannot write to {str(out)!r}: {error.strerror}; give another folder"
        raise ScenarioError(reason, key="--out") from None


def ports(text: str) -> range:
    """FIRST-LAST."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65536):
        raise ArgumentTypeError(f"give a range such as 20000-20100, not {text!r}")
    return range(int(first), int(last) + 1)


def seconds(text: str) -> float:
    """At least one."""
    if not 1 <= float(text) < float("inf"):
        raise ArgumentTypeError(f"at least 1, not {text}")
    return float(text)


def _kept_name(host: int) -> str:
    """Hosts may share a disk."""
    return f"incomplete-host-{host}" if host else "incomplete"


def _address(interface: str | None, rendezvous_store: Store, rank: int, world: int) -> str:
    if interface is None:
        return addresses.own_address(rendezvous_store, rank, world, os.environ["MASTER_ADDR"])
    address = addresses.address_of(interface)
    if address is None:
        host = socket.gethostname()
        raise ScenarioError(
            f"{host} has no network card {interface!r} with an IPv4 address", key="--interface"
        )
    return address


def _nowhere(name: str, file: Path) -> None:
    """The file is where it should be."""
