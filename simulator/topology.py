"""The links between hosts, and which of them a message crosses.

Every host has a network card with an up-link and a down-link (full duplex) or one link for both; between
racks, leaves or sites there are more links, all directed. A switch itself is never full.
"""

from collections.abc import Callable, Sequence

from lockstep.scenarios import Cluster, FatTree, Network, Racks, Sites
from lockstep.simulator.bucket import Bucket
from lockstep.simulator.links import Link
from lockstep.strategies.placement import Role, link_owners, residents
from lockstep.strategies.resource import Direction, ResourceId

Path = tuple[Link, ...]
# From a host to one of another group: the links between their cards, and the latency (s) they add.
Between = Callable[[int, int], tuple[Path, float]]


def topology(cluster: Cluster) -> "Topology":
    """Return the links of a cluster, those to servers and relays even if the strategy has none."""
    return Topology(cluster.network, residents(cluster), cluster.server_groups)


class Topology:
    """All links of a network, and the path from any host to any other."""

    def __init__(
        self, network: Network, residents: Sequence[Sequence[Role]], server_groups: Sequence[int] = ()
    ) -> None:
        """`residents[host]`: the processes there; the last hosts are those in `server_groups`."""
        self.links: list[Link] = []
        self._network = network
        everywhere = range(len(residents))
        workers = len(residents) - len(server_groups)
        self._group = [*(network.topology.group_of(host) for host in range(workers)), *server_groups]
        self._owners = link_owners(residents)
        cards = network.cards_of(workers, len(server_groups))
        self._up: list[Path] = []
        self._down: list[Path] = []
        for host in everywhere:
            owner, capacity = self._owners[host], cards[host]
            if network.duplex == "half":
                self._up.append(self._card(ResourceId("card", *owner), capacity))
                self._down.append(self._up[-1])
            else:
                self._up.append(self._card(ResourceId("card", *owner, "up"), capacity))
                self._down.append(self._card(ResourceId("card", *owner, "down"), capacity))
        inner = network.intra_host
        self._inner: dict[int, Path] = {}
        if inner is not None and inner.bandwidth is not None:
            for host in everywhere:
                if len(residents[host]) > 1:
                    self._inner[host] = self._add(Link(ResourceId("inner", "host", host), inner.bandwidth))
        self._between = self._fabric(network.topology.groups(workers))

    def path(self, source: int, target: int) -> tuple[Path, float]:
        """The links from one host to another or to itself, in order, and a message's latency (s), one way."""
        network = self._network
        if source == target:
            return self._inner.get(source, ()), network.intra_host.latency if network.intra_host else 0.0
        links: Path = ()
        latency = 0.0
        if self._group[source] != self._group[target]:
            links, latency = self._between(source, target)
        return (*self._up[source], *links, *self._down[target]), network.latency + latency

    def cards(self, source: int, target: int) -> tuple[Path, float]:
        """As `path` between two hosts at one switch; where there is one host, as if it were two."""
        return (*self._up[source], *self._down[target]), self._network.latency

    def of_host(self, host: int) -> Path:
        """Its own links."""
        return (*self._up[host], *self._down[host], *self._inner.get(host, ()))

    def _add(self, link: Link) -> Path:
        self.links.append(link)
        return (link,)

    def _cable(self, id: ResourceId, bandwidth: float | None) -> Path:
        """A link between switches; none if it is unlimited."""
        return () if bandwidth is None else self._add(Link(id, bandwidth * self._network.goodput))

    def _card(self, id: ResourceId, bandwidth: float | None) -> Path:
        burst, goodput = self._network.burst, self._network.goodput
        if bandwidth is None or burst is None:
            return self._cable(id, bandwidth)
        bucket = Bucket(burst.size * goodput, burst.line_rate * goodput, burst.train, burst.first)
        return self._add(Link(id, bandwidth * goodput, bucket))

    def _fabric(self, groups: int) -> Between:
        shape = self._network.topology
        if isinstance(shape, Racks):
            return self._racks(shape, groups)
        if isinstance(shape, FatTree):
            return self._fat_tree(shape, groups)
        if isinstance(shape, Sites):
            return self._sites(shape, groups)
        return lambda source, target: ((), 0.0)

    def _racks(self, shape: Racks, racks: int) -> Between:
        capacity = shape.capacity(self._network.bandwidth)
        up = [self._cable(ResourceId("fabric", "rack", rack, "up"), capacity) for rack in range(racks)]
        down = [self._cable(ResourceId("fabric", "rack", rack, "down"), capacity) for rack in range(racks)]
        group = self._group
        return lambda source, target: ((*up[group[source]], *down[group[target]]), shape.latency)

    def _fat_tree(self, shape: FatTree, leaves: int) -> Between:
        places = [(leaf, spine) for leaf in range(leaves) for spine in range(shape.spines)]
        up = {at: self._cable(_to_spine(*at, "up"), shape.link) for at in places}
        down = {at: self._cable(_to_spine(*at, "down"), shape.link) for at in places}

        def between(source: int, target: int) -> tuple[Path, float]:
            spine = target % shape.spines
            links = (*up[self._group[source], spine], *down[self._group[target], spine])
            return links, shape.latency

        return between

    def _sites(self, shape: Sites, sites: int) -> Between:
        wan: dict[tuple[int, int], tuple[Path, float]] = {}
        for a, b in [(a, b) for a in range(sites) for b in range(sites) if a != b]:
            bandwidth, latency = shape.wan(a, b)
            wan[a, b] = self._cable(ResourceId("fabric", "site", a, "out", b), bandwidth), latency
        return lambda source, target: wan[self._group[source], self._group[target]]


def _to_spine(leaf: int, spine: int, direction: Direction) -> ResourceId:
    return ResourceId("fabric", "leaf", leaf, direction, spine)
