"""How hosts are connected: `cluster.network.topology`. Bandwidths are bytes/s, times seconds.

A topology deals the workers' hosts, which are numbered from 0, into groups of consecutive hosts: the racks,
the leaves of a fat tree, or the sites. A message inside a group crosses the two hosts' cards and nothing
else. What a scenario does not give is unlimited, or takes no time.
"""

from bisect import bisect_right
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from lockstep.scenarios.section import Factor, Section, nearest, one_of
from lockstep.scenarios.units import Bandwidth, Duration, fail, shown

_Hosts = Annotated[int, Field(ge=1)]


class _Topology(Section):
    def groups(self, hosts: int) -> int:
        """How many groups `hosts` workers' hosts make."""
        return self.group_of(hosts - 1) + 1

    def group_of(self, host: int) -> int:
        """The group of a worker's host, from 0."""
        raise NotImplementedError

    def unlimited(self) -> "_Topology":
        """The same groups, but nothing between them costs anything."""
        raise NotImplementedError

    def given(self, card: float | None) -> dict[str, float | None]:
        """The bandwidths (bytes/s; None: unlimited) between groups by key, with cards of that bandwidth."""
        return {}

    @property
    def longest(self) -> float:
        """The most that is added to a message's latency, s."""
        return 0.0


class Star(_Topology):
    """One switch that is never full: only the hosts' cards limit anything. All hosts are one group."""

    shorthand: ClassVar[str] = "kind"
    kind: Literal["star"]

    def group_of(self, host: int) -> int:
        """0."""
        return 0

    def unlimited(self) -> Self:
        """Itself."""
        return self


class Racks(_Topology):
    """Racks of hosts, each with one link up to a switch that is never full and one down from it.

    Their capacity is `uplink`, or `hosts_per_rack` × the cards' bandwidth / `oversubscription`.
    """

    kind: Literal["racks"]
    hosts_per_rack: _Hosts = Field(description="how many hosts a rack has, such as 'hosts_per_rack: 8'")
    oversubscription: Factor | None = Field(None, description="such as 4: the cards' sum over the up-link")
    uplink: Bandwidth | None = None
    latency: Duration = Field(
        0.0, description="added one way to messages that leave the rack, such as '5 us'"
    )

    def group_of(self, host: int) -> int:
        """The host's rack."""
        return host // self.hosts_per_rack

    def capacity(self, card: float | None) -> float | None:
        """What a rack's link carries each way (bytes/s; None: unlimited), with cards of that bandwidth."""
        if self.oversubscription is None or card is None:
            return self.uplink
        return self.hosts_per_rack * card / self.oversubscription

    def given(self, card: float | None) -> dict[str, float | None]:
        """A rack's link."""
        key = "uplink" if self.oversubscription is None else "oversubscription"
        return {key: self.capacity(card)}

    @property
    def longest(self) -> float:
        """The latency between racks."""
        return self.latency

    def unlimited(self) -> "Racks":
        """The same racks, with nothing between them that costs anything."""
        return Racks(kind="racks", hosts_per_rack=self.hosts_per_rack)

    @model_validator(mode="after")
    def _one_capacity(self) -> Self:
        if self.oversubscription is not None and self.uplink is not None:
            fail("give either oversubscription or uplink, not both: one follows from the other", "uplink")
        return self


class FatTree(_Topology):
    """Two levels: every leaf switch has a link up to and one down from every spine switch, each of `link`.

    Traffic to a host goes through the spine of its number modulo `spines` (D-mod-k: Zahavi 2010).
    """

    kind: Literal["fat-tree"]
    hosts_per_leaf: _Hosts = Field(description="how many hosts a leaf has, such as 'hosts_per_leaf: 8'")
    spines: int = Field(1, ge=1, le=256, description="how many spine switches there are, such as 2")
    link: Bandwidth | None = None
    latency: Duration = Field(
        0.0, description="added one way to messages that leave the leaf, such as '5 us'"
    )

    def group_of(self, host: int) -> int:
        """The host's leaf."""
        return host // self.hosts_per_leaf

    def given(self, card: float | None) -> dict[str, float | None]:
        """A link between switches."""
        return {"link": self.link}

    @property
    def longest(self) -> float:
        """The latency between leaves."""
        return self.latency

    def unlimited(self) -> "FatTree":
        """The same leaves, with nothing between them that costs anything."""
        return FatTree(kind="fat-tree", hosts_per_leaf=self.hosts_per_leaf)


class Pair(Section):
    """What is different between two sites, both ways; what is not given is as between the others."""

    between: tuple[int, ...] = Field(strict=False, description="two sites, such as 'between: [0, 1]'")
    bandwidth: Bandwidth | None = None
    latency: Duration | None = None

    @model_validator(mode="after")
    def _two_sites(self) -> Self:
        if len(set(self.between)) != 2 or len(self.between) != 2:
            fail(f"must be two different sites, such as [0, 1], not {list(self.between)!r:.60}", "between")
        return self


class Sites(_Topology):
    """Places far apart: `hosts[i]` workers' hosts at site i; every ordered pair has a WAN link of its own."""

    kind: Literal["sites"]
    hosts: tuple[_Hosts, ...] = Field(
        strict=False, min_length=1, max_length=100,
        description="how many of the workers' hosts each site has, such as 'hosts: [4, 4]'",
    )  # fmt: skip
    bandwidth: Bandwidth | None = None
    latency: Duration = Field(0.0, description="added one way to messages between sites, such as '30 ms'")
    pairs: tuple[Pair, ...] = Field((), strict=False)

    def group_of(self, host: int) -> int:
        """The host's site."""
        return bisect_right(list(accumulate(self.hosts)), host)

    def given(self, card: float | None) -> dict[str, float | None]:
        """The WAN links."""
        pairs = {f"pairs[{index}].bandwidth": pair.bandwidth for index, pair in enumerate(self.pairs)}
        return {"bandwidth": self.bandwidth, **pairs}

    @property
    def longest(self) -> float:
        """The greatest latency between two sites."""
        return max([self.latency, *(pair.latency or 0.0 for pair in self.pairs)])

    def unlimited(self) -> "Sites":
        """The same sites, with nothing between them that costs anything."""
        return Sites(kind="sites", hosts=self.hosts)

    def wan(self, source: int, target: int) -> tuple[float | None, float]:
        """The bandwidth (bytes/s; None: unlimited) and the latency (s) from one site to another."""
        pair = next((pair for pair in self.pairs if {source, target} == set(pair.between)), None)
        if pair is None:
            return self.bandwidth, self.latency
        return (
            self.bandwidth if pair.bandwidth is None else pair.bandwidth,
            self.latency if pair.latency is None else pair.latency,
        )

    @model_validator(mode="after")
    def _pairs_exist(self) -> Self:
        seen: list[set[int]] = []
        for index, pair in enumerate(self.pairs):
            for place, site in enumerate(pair.between):
                if not 0 <= site < len(self.hosts):
                    problem = f"must be from 0 to {len(self.hosts) - 1}, the last site, not {site}"
                    fail(problem, "pairs", index, "between", place)
            if set(pair.between) in seen:
                fail(f"the pair {list(pair.between)} is listed twice; keep one", "pairs", index, "between")
            seen.append(set(pair.between))
        return self


_Kinds = Star | Racks | FatTree | Sites
_KINDS: dict[str, type[_Topology]] = {
    get_args(kind.model_fields["kind"].annotation)[0]: kind for kind in get_args(_Kinds)
}


def _topology(data: Any) -> type[Section]:
    if not isinstance(data, str | dict):
        fail(f"must be star, or such as {{kind: racks, hosts_per_rack: 8}}, not {shown(data)}")
    kind = data if isinstance(data, str) else data.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        at = ("kind",) if isinstance(data, dict) else ()
        fail(f"{shown(kind)} is not a topology{nearest(kind, _KINDS)}", *at)
    return _KINDS[kind]


Topology = Annotated[_Kinds, one_of(_topology)]
