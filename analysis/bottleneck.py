"""What limits a run, in words: the resource or the activity that takes the largest share of its time."""

import re
from collections.abc import Collection
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from analysis.records import of
from analysis.words import NOTHING

if TYPE_CHECKING:
    import pandas as pd

    from analysis.records import Result

_STANDS_OUT = 1.1  # times the median gradient: a worker slower than that is named
_IN_TURN = 1.05  # both directions of a link together, when one rests while the other is busy
_ALIKE = 0.9  # times as busy as the busiest: all of a class that are so are named together
_DOES = {"server": "applying updates", "relay": "adding up updates"}  # what a processor is busy with
_PROCESSOR = re.compile(r"(server|relay) \d+")


def bottleneck(result: "Result") -> str | None:
    """Name what limits the run, and how many shards would move it elsewhere; None if the run did nothing.

    Compared are, as fractions of the run's duration: how busy the busiest link and the busiest processor
    were, and what the median worker did: computing, waiting for others, and communicating for which neither
    accounts. A link accounts for communication with both of its directions, since in synchronous training
    one rests while the other is busy, and the processor for what comes between them. Without utilisation,
    as in a real run, no link is named.
    """
    if result.span[1] <= result.span[0] or not (result.records["event"] == "gradient").any():
        return None
    compute, send, network, wait = (float(part) for part in result.breakdown.median())
    communicate = send + network
    busy = result.busy
    links = {name: share for name, share in (busy or {}).items() if "link" in name}
    processors = {name: share for name, share in (busy or {}).items() if "link" not in name}
    link, processor = _Busiest.of(links, _serving(result)), _Busiest.of(processors)
    accounted = min(communicate, link.both) if link else 0.0
    share = max(link.share, accounted) if link else 0.0
    if result.scenario.cluster.network.background:  # which may fill a link that holds no worker up
        share = min(share, communicate)
    applying = processor.share if processor else 0.0
    shares = {
        "link": share,
        "processor": applying,
        "computing": compute,
        "waiting": wait,
        "latency": communicate - accounted - applying,
    }
    kind = max(shares, key=lambda name: shares[name])  # the first of equals
    if link and kind == "link":
        together = accounted > link.share and link.opposite >= link.share / 2 and link.both <= _IN_TURN
        return link.sentence(together) + _more_shards(
            result, link, links, {"computing": compute / share, "waiting for others": wait / share}
        )
    if processor and kind == "processor":
        if result.scenario.cluster.apply_overhead:  # an update of any size takes that
            return processor.sentence(False)
        return processor.sentence(False) + _more_shards(
            result, processor, links, {"computing": compute / applying}
        )
    if kind == "computing":
        return f"computing: workers compute {compute:.0%} of their time{_for_the_slowest(result, wait)}"
    if kind == "waiting":
        return f"waiting for others {wait:.0%}: {_who_is_slow(result)}"
    if (result.records["event"] == "memory").any():
        return f"memory: workers read and add to what they share {communicate:.0%} of their time"
    if busy is None:
        return f"the network: workers wait for it {communicate:.0%} of their time"
    limited = {"link": link.share if link else 0.0, "processor": applying}
    which = " or ".join(kind for kind, busiest in limited.items() if busiest)
    most = (
        f"no {which} over {ceil(100 * max(limited.values()))}% busy" if which else "no bandwidth is limited"
    )
    return f"latency and overheads: {most}, workers wait for the network {communicate:.0%} of their time"


def typical(runs: "pd.DataFrame") -> str | None:
    """What limits the runs of a point, rows of their table: that of the run with the median duration."""
    if "bottleneck" not in runs:  # where no run has ended there are no figures at all
        return None
    known = runs[runs["bottleneck"].notna()].sort_values("duration_s", kind="stable")
    return None if known.empty else str(known["bottleneck"].iloc[(len(known) - 1) // 2])


def in_short(sentence: str | None) -> str:
    """A bottleneck as the cell of a table: "servers' down-links"; a dash for nothing."""
    if sentence is None:
        return NOTHING
    what = re.split(r": |, |; | \d+%| \(", sentence)[0].removeprefix("the ")
    return re.sub(r"(up|down)-link(s?) and (up|down)-links?", r"link\2", what)


class _Busiest(NamedTuple):
    """The busiest of some resources, and the others of its class that are as busy."""

    name: str
    share: float  # of the run's duration that it was busy
    opposite: float  # of the duration that the opposite direction of the link was
    alike: bool  # all of its class are about as busy, and there are several
    serving: bool = False  # its class is the links of those hosts that have servers, which not all have

    @staticmethod
    def of(resources: dict[str, float], serving: Collection[str] = ()) -> "_Busiest | None":
        """`serving`: the hosts with servers, where others have none; these are then a class of their own."""
        if not any(resources.values()):
            return None
        name = max(resources, key=lambda resource: resources[resource])
        share, card = resources[name], _undirected(name)
        opposite = sum(s for other, s in resources.items() if other != name and _undirected(other) == card)
        serves = _owner(name) in serving
        class_ = [
            s
            for other, s in resources.items()
            if class_of(other) == class_of(name) and serves == (_owner(other) in serving)
        ]
        return _Busiest(name, share, opposite, len(class_) > 1 and min(class_) >= _ALIKE * share, serves)

    @property
    def both(self) -> float:
        """How busy both directions were, one after the other."""
        return self.share + self.opposite

    @property
    def who(self) -> str:
        if not self.alike:
            return in_words(self.name)
        return class_of(self.name).replace("the ", "the serving " if self.serving else "the ", 1)

    def sentence(self, together: bool) -> str:
        """How busy it was; `together` with the link's opposite direction."""
        if not together:
            return f"{self.who}, {self.share:.0%} busy"
        both = re.sub(r"\b(up|down)-link(s?)", r"up-link\2 and down-link\2", self.who)
        return f"{both}, together {min(1.0, self.both):.0%} busy"


def in_words(name: str) -> str:
    """A resource in a sentence: "server 0" is its processor."""
    found = _PROCESSOR.fullmatch(name)
    return f"{name}'s processor ({_DOES[found[1]]})" if found else name


def class_of(name: str) -> str:
    """All that do the same as a resource: "the workers' up-links"; of a name that is not known, the name."""
    if found := _PROCESSOR.fullmatch(name):
        return f"the {found[1]}s' processors ({_DOES[found[1]]})"
    if re.fullmatch(r"the link from site \d+ to site \d+", name):
        return "the links between the sites"
    found = re.fullmatch(r"(\w+) \d+'s (.*)", name)
    if found is None:
        return name
    owners = {"leaf": "leaves"}.get(found[1], found[1] + "s")
    return f"the {owners}' " + re.sub(r" \d+$", "s", re.sub("link$|link(?= )", "links", found[2]))


def _serving(result: "Result") -> set[str]:
    """The hosts that have servers beside workers, if others have none."""
    cluster, shards = result.scenario.cluster, len(result.holders)
    if not cluster.servers.colocated or result.holders[0] < cluster.workers or shards >= cluster.hosts:
        return set()
    return {f"host {shard}" for shard in range(shards)}


def _owner(link: str) -> str:
    """Whose link it is: "host 0"."""
    return link.partition("'")[0]


def _undirected(link: str) -> str:
    """What the names of both directions of a link have in common."""
    return re.sub(r"\b(up|down)\b( to| from)?", "", link)


def _more_shards(
    result: "Result", busiest: _Busiest, links: dict[str, float], others: dict[str, float]
) -> str:
    """How many shards would make something else the bottleneck; nothing where more of them would not.

    With S′ instead of S shards each carries S/S′ of the bytes a gradient, while the workers' links carry and
    the workers compute as much as before; how fast the run is then scales all of them alike. `others`: how
    large the shares of other activities are, relative to that of the busiest resource.
    """
    shards, workers = len(result.holders), result.scenario.cluster.workers
    servers = result.scenario.cluster.servers
    if result.holders[0] < workers or servers.hierarchy is not None or servers.shares is not None:
        return ""  # no server, or more of them would change more than their number
    if servers.colocated:
        return f"; {result.scenario.cluster.hosts} shards would spread it over all hosts" * busiest.serving
    if not busiest.name.startswith("server "):
        return ""
    needed = {what: 1 / other for what, other in others.items() if other > 0}  # times as many shards
    for name, other in links.items():
        if other > 0 and not name.startswith("server "):
            class_ = class_of(name)
            needed[class_] = min(needed.get(class_, np.inf), busiest.share / other)
    if not needed:
        return ""
    following = min(needed, key=lambda what: needed[what])
    count = int(shards * needed[following] * (1 + 1e-9)) + 1  # strictly more: as many would be a tie
    return f"; {count:,} shards would move it to {following}"


def _slowest(result: "Result") -> tuple[int, float]:
    """The worker whose mean gradient takes longest, and how many times the median worker's."""
    gradients = of(result.records, "gradient", ["node", "start", "end"])
    means = (gradients["end"] - gradients["start"]).groupby(gradients["node"]).mean()
    median, slowest = float(means.median()), int(means.to_numpy().argmax())
    times = float(means.iloc[slowest]) / median if median > 0 else 1.0
    return int(means.index[slowest]), times


def _who_is_slow(result: "Result") -> str:
    worker, times = _slowest(result)
    if times < _STANDS_OUT:
        return "no worker stands out, their gradients take different times"
    return f"worker {worker} is the slowest ({times:.1f} times the median gradient)"


def _for_the_slowest(result: "Result", wait: float) -> str:
    """More about workers that compute most of their time, but also wait for a straggler."""
    if wait < 0.2:
        return ""
    return f", and wait for others {wait:.0%}: {_who_is_slow(result)}"
