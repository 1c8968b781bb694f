"""Which rank does what: workers, servers that hold a shard each, and relays between the two.

Ranks count the workers first, then the servers, then the relays. With a hierarchy every shard has a tree of
its own: the server at its root, and below it one relay for each group of workers, which are consecutive. The
relays hang below one another like a heap: relay k (from 1) below relay (k − 1) // fan-out, where 0 is the
server. A fan-out of the number of groups makes two levels (Rudra: Gupta, Zhang and Wang 2016), of 1 a chain.

Or there are several groups of servers, each with a copy of all parameters (SINGA's server groups).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.strategies.parts import Part, cut, dealt
from lockstep.strategies.resource import ResourceId


@dataclass(frozen=True, repr=False)
class Role:
    """One rank: its `index` among its kind, and the ranks it pushes to (one a shard) or is pushed to by.

    Of servers that hold copies of one shard one is the master; it is the parent of the others, its followers.
    """

    kind: str  # worker, server or relay
    index: int
    parents: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    shard: int = 0  # which one a server holds, or a relay relays
    followers: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What people read, such as "worker 0"."""
        return f"{self.kind} {self.index}"

    @property
    def processor(self) -> ResourceId:
        """What it adds up and applies with, as utilisation has it."""
        return ResourceId("processor", self.kind, self.index, "")


def roles(
    workers: int, shards: int, groups: int = 0, fan_out: int | None = None, copies: int = 1
) -> list[Role]:
    """The role of every rank: `shards` servers (or none), and `groups` relays for each of them.

    At most `fan_out` relays hang below any other or the server; None: all below the server. With several
    `copies` there are no relays, but as many groups of servers, each with its consecutive workers.
    """
    if not shards:
        return [Role("worker", index) for index in range(workers)]
    if copies > 1:
        return _in_copies(workers, shards, copies)
    width = fan_out or max(groups, 1)

    def rank(relay: int, shard: int) -> int:
        return workers + relay * shards + shard  # relay 0 is the server itself

    served: list[list[int]] = [[] for _ in range(groups + 1)]
    for worker in range(workers):
        served[1 + worker * groups // workers if groups else 0].append(worker)
    below: list[list[int]] = [[] for _ in range(groups + 1)]
    for relay in range(1, groups + 1):
        below[(relay - 1) // width].append(relay)

    found = []
    for relay, members in enumerate(served):
        for worker in members:
            found.append(Role("worker", worker, tuple(rank(relay, shard) for shard in range(shards))))
    for relay in range(groups + 1):
        for shard in range(shards):
            children = (*served[relay], *(rank(lower, shard) for lower in below[relay]))
            parents = (rank((relay - 1) // width, shard),) if relay else ()
            kind, index = ("relay", (relay - 1) * shards + shard) if relay else ("server", shard)
            found.append(Role(kind, index, parents, children, shard))
    return found


def _in_copies(workers: int, shards: int, copies: int) -> list[Role]:
    def rank(copy: int, shard: int) -> int:
        return workers + copy * shards + shard

    of = [worker * copies // workers for worker in range(workers)]
    found = [
        Role("worker", worker, tuple(rank(copy, shard) for shard in range(shards)))
        for worker, copy in enumerate(of)
    ]
    for copy in range(copies):
        served = tuple(worker for worker in range(workers) if of[worker] == copy)
        for shard in range(shards):
            master = rank(shard % copies, shard)
            others = tuple(rank(other, shard) for other in range(copies) if other != shard % copies)
            ways = ((), others) if rank(copy, shard) == master else ((master,), ())
            found.append(Role("server", copy * shards + shard, ways[0], served, shard, ways[1]))
    return found


def roles_of(cluster: Any, has_servers: bool) -> list[Role]:
    """The role of every rank on the `cluster` of a scenario."""
    servers, hierarchy = cluster.servers, cluster.servers.hierarchy
    if not has_servers:
        return roles(cluster.workers, 0)
    if hierarchy is None:
        return roles(cluster.workers, servers.count, copies=servers.copies)
    return roles(cluster.workers, servers.count, hierarchy.groups, hierarchy.fan_out)


def shards_of(
    cluster: Any, has_servers: bool, length: int, variables: Sequence[slice] | None = None
) -> list[Part]:
    """The part of the parameters that each server holds; without servers, everyone holds them all.

    With `variables` servers get these in turn, whole (TensorFlow's `replica_device_setter`), but of those of
    more than `split_above` elements all as much (MXNet's `MXNET_KVSTORE_BIGARRAY_BOUND`).
    """
    servers = cluster.servers
    if has_servers and variables is not None:
        return dealt(variables, servers.count, servers.split_above)
    shares = (servers.shares or [1] * servers.count) if has_servers else [1]
    return [(part,) for part in cut(length, shares)]


def hosts(workers: int, per_host: int, everyone: Sequence[Role], colocated: bool) -> list[int]:
    """The host of every rank: workers fill their hosts one after the other, `per_host` to each.

    Every server and relay has a host of its own after those. Co-located, server s is on worker host s (of its
    copy's workers), and a relay on the host of the first worker that it or a relay below it serves.
    """
    own = [worker // per_host for worker in range(workers)]
    if not colocated:
        return own + list(range(own[-1] + 1, own[-1] + 1 + len(everyone) - workers))

    def served(rank: int) -> int:
        return rank if rank < workers else min(served(child) for child in everyone[rank].children)

    def serving(role: Role) -> int:
        first, last = (
            (role.children[0], role.children[-1]) if role.parents or role.followers else (0, workers - 1)
        )
        return own[first] + role.shard % (own[last] - own[first] + 1)

    return own + [
        serving(everyone[rank]) if everyone[rank].kind == "server" else own[served(rank)]
        for rank in range(workers, len(everyone))
    ]


def residents(cluster: Any) -> list[list[Role]]:
    """The processes on every host of the `cluster` of a scenario.

    Servers and relays are there even if the strategy has none: names and numbers stay the same.
    """
    everyone = roles_of(cluster, has_servers=True)
    found: list[list[Role]] = [[] for _ in range(cluster.hosts + cluster.servers.hosts)]
    placed = hosts(cluster.workers, cluster.workers_per_host, everyone, cluster.servers.colocated)
    for role, host in zip(everyone, placed, strict=True):
        found[host].append(role)
    return found


def link_owners(residents: Sequence[Sequence[Role]]) -> list[tuple[str, int]]:
    """Whose every host's links are: the one process's there, or, if there are several, ("host", 0)'s."""
    return [
        (who[0].kind, who[0].index) if len(who) == 1 else ("host", host) for host, who in enumerate(residents)
    ]


def as_if_on_one_host(cluster: Any) -> list[str]:
    """A warning for workers that share one memory, should the scenario have them on several hosts."""
    if cluster.workers_per_host >= cluster.workers:
        return []
    hosts = f"{cluster.hosts} (cluster.workers_per_host)"
    return [f"its workers share one memory, as if all were on one host, not on {hosts}"]
