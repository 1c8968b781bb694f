"""What limits a run, estimated: the resource or the activity that takes the largest share of its time.

An estimate from one run. What would shorten it is another question, which `lockstep.why` answers by trying.
Here are values; `analysis.bottleneck_words` makes words of them.
"""

import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from lockstep.analysis.records import of

if TYPE_CHECKING:
    import pandas as pd

    from lockstep.analysis.records import Result

Kind = Literal["link", "processor", "computing", "updating", "waiting", "memory", "network", "latency"]
_IN_TURN = 1.05  # both directions of a link together, when one rests while the other is busy
_ALIKE = 0.9  # times as busy as the busiest: all of a class that are so are named together
_DOES = {"server": "applying updates", "relay": "adding up updates"}  # what a processor is busy with
_PROCESSOR = re.compile(r"(server|relay) \d+")


@dataclass(frozen=True)
class Remedy:
    """So many shards of the parameters would move it `to` something else; None: load all hosts alike."""

    shards: int
    to: str | None


@dataclass(frozen=True)
class Bottleneck:
    """What limits a run.

    kind "link" or "processor": of the network, or of a server or relay. "computing", "updating" (a worker's
    own steps, sums and codecs), "waiting" (for others), "memory" (that is shared), "network" (a real run, of
    which no more is known), "latency" (and overheads: no link is to blame): what the median worker does.
    """

    kind: Kind
    who: str
    """The resource ("server 0's up-link"), or all of a kind ("the servers' up-links"), or "workers"."""
    share: float
    """Of the run's duration, for which it was busy."""
    remedy: Remedy | None = None
    worker: dict[str, float] = field(default_factory=dict)
    """What the median worker did, as shares of the duration: compute, update, communicate, wait."""
    slowest: int = -1
    """The worker whose gradients take longest."""
    slowest_times: float = 1.0
    """How many times the median worker's."""
    busiest: dict[str, float] = field(default_factory=dict)
    """How busy the busiest link and processor were, if any was; empty where that is not known."""

    def to_json(self) -> str:
        """All of it as a JSON object."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_json(text: str) -> "Bottleneck":
        """What `to_json` gave."""
        found: dict[str, Any] = json.loads(text)
        remedy = found.pop("remedy")
        return Bottleneck(**found, remedy=None if remedy is None else Remedy(**remedy))


def bottleneck(result: "Result") -> Bottleneck | None:
    """What limits the run, and how many shards would move it elsewhere; None if the run did nothing.

    Compared are, as fractions of the run's duration: how busy the busiest link and the busiest processor
    were, and what the median worker did: computing, work of its own, waiting for others, and communicating
    for which neither accounts. A link accounts for communication with both of its directions, since in
    synchronous training one rests while the other is busy, and the processor for what comes between them.
    Without utilisation, as in a real run, no link is named.
    """
    if result.span[1] <= result.span[0] or not (result.records["event"] == "gradient").any():
        return None
    median = {str(part): float(share) for part, share in result.breakdown.median().items()}
    compute, update, wait = (median[part] for part in ("compute", "update", "wait"))
    communicate = median["send"] + median["network"]
    busy = result.busy or {}
    links = {name: share for name, share in busy.items() if "link" in name}
    link = _Busiest.of(links, _serving(result))
    processor = _Busiest.of({name: share for name, share in busy.items() if "link" not in name})
    accounted = min(communicate, link.both) if link else 0.0
    share = max(link.share, accounted) if link else 0.0
    if result.scenario.cluster.network.background:  # which may fill a link that holds no worker up
        share = min(share, communicate)
    applying = processor.share if processor else 0.0
    shares: dict[Kind, float] = {
        "link": share,
        "processor": applying,
        "computing": compute,
        "updating": update,
        "waiting": wait,
        "latency": communicate - accounted - applying,
    }
    kind = max(shares, key=lambda each: shares[each])  # the first of equals
    who, remedy, most = "workers", None, shares[kind]
    other = {"computing": compute, "own updates": update}
    if link and kind == "link":
        together = accounted > link.share and link.opposite >= link.share / 2 and link.both <= _IN_TURN
        who, most = link.who(together), min(1.0, link.both) if together else link.share
        remedy = _more_shards(result, link, links, share, other | {"waiting for others": wait})
    elif processor and kind == "processor":
        who = processor.who()
        if not result.scenario.cluster.apply_overhead:  # which an update of any size takes
            remedy = _more_shards(result, processor, links, applying, other)
    elif kind == "latency":
        most = communicate
        if (result.records["event"] == "memory").any():
            kind = "memory"
        elif result.busy is None:
            kind = "network"
    return Bottleneck(
        kind,
        who,
        most,
        remedy,
        {"compute": compute, "update": update, "communicate": communicate, "wait": wait},
        *_slowest(result),
        {name: found.share for name, found in (("link", link), ("processor", processor)) if found},
    )


def typical_run(runs: "pd.DataFrame") -> "pd.Series | None":
    """Of the runs of a point, rows of a table, that with the median duration; None if none did anything."""
    if "bottleneck_data" not in runs:  # where no run has ended there are no figures at all
        return None
    known = runs[runs["bottleneck_data"].notna()].sort_values("duration_s", kind="stable")
    return None if known.empty else known.iloc[(len(known) - 1) // 2]


def typical(runs: "pd.DataFrame") -> Bottleneck | None:
    """What limits the runs of a point: that of its `typical_run`."""
    run = typical_run(runs)
    return None if run is None else Bottleneck.of_json(run["bottleneck_data"])


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

    def who(self, together: bool = False) -> str:
        """Its name, or that of all that are alike; `together` with the link's opposite direction."""
        name = in_words(self.name)
        if self.alike:
            name = class_of(self.name).replace("the ", "the serving " if self.serving else "the ", 1)
        return re.sub(r"\b(up|down)-link(s?)", r"up-link\2 and down-link\2", name) if together else name


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
    cluster, shards = result.scenario.cluster, len(result.plan.owners.ranks)
    if not cluster.servers.colocated or not result.plan.has_servers or shards >= cluster.hosts:
        return set()
    return {f"host {shard}" for shard in range(shards)}


def _owner(link: str) -> str:
    """Whose link it is: "host 0"."""
    return link.partition("'")[0]


def _undirected(link: str) -> str:
    """What the names of both directions of a link have in common."""
    return re.sub(r"\b(up|down)\b( to| from)?", "", link)


def _more_shards(
    result: "Result", busiest: _Busiest, links: dict[str, float], share: float, others: dict[str, float]
) -> Remedy | None:
    """How many shards would make something else the bottleneck; None where more of them would not.

    With S′ instead of S shards each carries S/S′ of the bytes a gradient, while the workers' links carry and
    the workers compute as much as before; how fast the run is then scales all of them alike. `others`: the
    shares of other activities; `share`: that of the busiest resource.
    """
    shards = len(result.plan.owners.ranks)
    servers = result.scenario.cluster.servers
    if not result.plan.has_servers or servers.hierarchy is not None or servers.shares is not None:
        return None  # no server, or more of them would change more than their number
    if servers.colocated:
        return Remedy(result.scenario.cluster.hosts, None) if busiest.serving else None
    if not busiest.name.startswith("server "):
        return None
    needed = {what: share / other for what, other in others.items() if other > 0}  # times as many shards
    for name, other in links.items():
        if other > 0 and not name.startswith("server "):
            class_ = class_of(name)
            needed[class_] = min(needed.get(class_, np.inf), busiest.share / other)
    if not needed:
        return None
    following = min(needed, key=lambda what: needed[what])
    count = int(shards * needed[following] * (1 + 1e-9)) + 1  # strictly more: as many would be a tie
    return Remedy(count, following)


def _slowest(result: "Result") -> tuple[int, float]:
    """The worker whose mean gradient takes longest, and how many times the median worker's."""
    gradients = of(result.records, "gradient", ["node", "start", "end"])
    means = (gradients["end"] - gradients["start"]).groupby(gradients["node"]).mean()
    median, slowest = float(means.median()), int(means.to_numpy().argmax())
    times = float(means.iloc[slowest]) / median if median > 0 else 1.0
    return int(means.index[slowest]), times
