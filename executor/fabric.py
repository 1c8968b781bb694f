"""What a testbed is made of, in numbers: hosts, switches, cables between them, and the way of each frame.

Hosts are numbered from 0 as in the scenario, switches after them. Every host's card is plugged into the
switch of its rack, leaf or site (in a star, of all); `scenarios/topology.py` says what is between these.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lockstep.scenarios import Cluster, FatTree, Racks, Sites

Way = tuple[int, int]  # one direction of a cable: from a host or switch to its neighbour


@dataclass(frozen=True)
class Fabric:
    """`rates[way]` is what a direction of a cable carries, in bytes/s; None: as much as the machine can.

    `home[host]` is the switch that a host is plugged into; `towards(at, host)` is the neighbour of a host or
    switch that is next on the way to another host.
    """

    hosts: range
    switches: range
    home: Sequence[int]
    rates: dict[Way, float | None]
    towards: Callable[[int, int], int]

    def route(self, source: int, target: int) -> list[Way]:
        """The ways that a frame takes from one host to another, in order."""
        ways, at = [], source
        while at != target:
            ways.append((at, self.towards(at, target)))
            at = ways[-1][1]
        return ways

    @property
    def slowest(self) -> float | None:
        """The least rate of any cable, in bytes/s; None if none is limited."""
        return min((rate for rate in self.rates.values() if rate is not None), default=None)

    def crossing(self) -> dict[Way, list[tuple[int, int]]]:
        """The pairs of hosts (from, to) whose frames take each way."""
        pairs: dict[Way, list[tuple[int, int]]] = {way: [] for way in self.rates}
        for source in self.hosts:
            for target in self.hosts:
                for way in self.route(source, target):
                    pairs[way].append((source, target))
        return pairs


def fabric(cluster: Cluster, count: int) -> Fabric:
    """The fabric of the first `count` hosts of a cluster: of the workers' hosts, or of all."""
    network, shape = cluster.network, cluster.network.topology
    group = [*(shape.group_of(host) for host in range(cluster.hosts)), *cluster.server_groups][:count]
    leaves = range(count, count + shape.groups(cluster.hosts))  # the switches that hosts are plugged into
    home = [leaves[g] for g in group]
    cables = {(host, home[host]): card for host, card in enumerate(cards(cluster)[:count])}
    core = range(leaves.stop, leaves.stop)  # the switches between those
    via: Callable[[int], int] = home.__getitem__  # a leaf's way to a host that is not plugged into it
    if isinstance(shape, Racks):
        core = range(leaves.stop, leaves.stop + 1)
        cables |= {(rack, core[0]): shape.capacity(network.bandwidth) for rack in leaves}
        via = lambda target: core[0]  # noqa: E731
    elif isinstance(shape, FatTree):
        core = range(leaves.stop, leaves.stop + shape.spines)
        cables |= {(leaf, spine): shape.link for leaf in leaves for spine in core}
        via = lambda target: core[target % len(core)]  # noqa: E731
    elif isinstance(shape, Sites):
        cables |= {(leaves[a], leaves[b]): shape.wan(a, b)[0] for b in range(len(leaves)) for a in range(b)}

    def towards(at: int, target: int) -> int:
        if at == home[target]:
            return target
        if at in leaves:
            return via(target)
        return home[at] if at < count else home[target]

    rates = {way: rate for (a, b), rate in cables.items() for way in ((a, b), (b, a))}
    return Fabric(range(count), range(count, core.stop), home, rates, towards)


def cards(cluster: Cluster) -> list[float | None]:
    """The bandwidth of the card of every host, in bytes/s; None: not given."""
    return cluster.network.cards_of(cluster.hosts, cluster.servers.hosts)
