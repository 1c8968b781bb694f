"""What limits a run, estimated: the resource or the activity that takes the largest share of its time.

An estimate from one run. What would shorten it is another question, which `lockstep.why` answers by trying.
Here are values; `analysis.bottleneck_words` makes words of them.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from lockstep.analysis.breakdown import PARTS, stopped
from lockstep.analysis.computations import gradient_seconds
from lockstep.analysis.given import given
from lockstep.analysis.median import median
from lockstep.analysis.records import has
from lockstep.analysis.utilisation import busy_resources
from lockstep.strategies.resource import ResourceId

if TYPE_CHECKING:
    import pandas as pd

    from lockstep.analysis.result import Result

Activity = Literal["computing", "updating", "waiting", "memory", "network", "latency"]
Kind = Literal["link", "processor"] | Activity
_IN_TURN = 1.05  # both directions of a link together, when one rests while the other is busy
STANDS_OUT = 1.1  # times the median: what takes longer is named
_ALIKE = 0.9  # times as busy as the busiest: all of a class that are so are named together


@dataclass(frozen=True)
class Remedy:
    """So many shards of the parameters would move it `to` something else; None: load all hosts alike."""

    shards: int
    to: ResourceId | Activity | None
    """All links that do the same, or what the workers do."""


@dataclass(frozen=True)
class Bottleneck:
    """What limits a run.

    kind "link" or "processor": of the network, or of a server or relay. "computing", "updating" (a worker's
    own steps, sums and codecs), "waiting" (for others), "memory" (that is shared), "network" (a real run, of
    which no more is known), "latency" (and overheads: no link is to blame): what the median worker does.
    """

    kind: Kind
    who: ResourceId | None
    """The link or processor, or all that do the same (its `number` is None); None: the workers."""
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
    together: bool = False
    """Both directions of the link, of which one rests while the other is busy."""
    serving: bool = False
    """All those links that do the same and are of hosts with servers, which not all hosts have."""
    stages: int = 1
    """Of a pipeline, which wait for one another."""
    stopped: bool = False
    """Most of the waiting is for who has failed, or for a checkpoint."""
    largest: int = -1
    """The stage of `slowest`, if it takes so long because it holds the largest part of the model; else -1."""

    def to_json(self) -> str:
        """All of it as a JSON object."""
        return json.dumps(self, default=vars)

    @staticmethod
    def of_json(text: str) -> "Bottleneck":
        """What `to_json` gave."""
        from lockstep.analysis import before

        found: dict[str, Any] = before.with_fields(json.loads(text))
        who, remedy = found.pop("who"), found.pop("remedy")
        if remedy is not None:
            to = remedy["to"]
            remedy = Remedy(remedy["shards"], ResourceId.of(to) if isinstance(to, dict) else to)
        return Bottleneck(**found, who=who and ResourceId.of(who), remedy=remedy)


def bottleneck(result: "Result") -> Bottleneck | None:
    """What limits the run, and how many shards would move it elsewhere; None if the run did nothing.

    Compared are, as fractions of the run's duration: how busy the busiest link and the busiest processor
    were, and what the median worker did: computing, work of its own, waiting for others, and communicating
    for which neither accounts. A link accounts for communication with both of its directions, since in
    synchronous training one rests while the other is busy, and the processor for what comes between them.
    Without utilisation, as in a real run, no link is named.
    """
    records = given(result, "records")
    if result.span[1] <= result.span[0] or not has(records, "gradient"):
        return None
    medians = dict(zip(PARTS, median(result.shares).tolist(), strict=True))
    compute, update, wait = (medians[part] for part in ("compute", "update", "wait"))
    communicate = medians["send"] + medians["network"]
    busy = busy_resources(result)
    links = {id: share for id, share in busy.items() if id.kind != "processor"}
    link = _Busiest.of(links, _serving(result))
    processor = _Busiest.of({id: share for id, share in busy.items() if id.kind == "processor"})
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
    who, remedy, most, together, serving = None, None, shares[kind], False, False
    other: dict[Activity, float] = {"computing": compute, "updating": update}
    if link and kind == "link":
        together = accounted > link.share and link.opposite >= link.share / 2 and link.both <= _IN_TURN
        who, serving = link.who, link.alike and link.serving
        most = min(1.0, link.both) if together else link.share
        remedy = _more_shards(result, link, links, share, {**other, "waiting": wait})
    elif processor and kind == "processor":
        who = processor.who
        if not result.scenario.cluster.apply_overhead:  # which an update of any size takes
            remedy = _more_shards(result, processor, links, applying, other)
    elif kind == "latency":
        most = communicate
        if has(records, "memory"):
            kind = "memory"
        elif result.busy is None:
            kind = "network"
    slowest, slowest_times = _slowest(result)
    return Bottleneck(
        kind,
        who,
        most,
        remedy,
        {"compute": compute, "update": update, "communicate": communicate, "wait": wait},
        slowest,
        slowest_times,
        {name: found.share for name, found in (("link", link), ("processor", processor)) if found},
        together,
        serving,
        result.scenario.split.pipeline,
        bool(
            result.scenario.with_faults
            and stopped(records, *result.span) > wait * np.diff(result.span)[0] / 2
        ),
        _largest(result, slowest, slowest_times),
    )


def typical_run(runs: "pd.DataFrame") -> "pd.Series | None":
    """Of the runs of a point, rows of a table, that with the median duration; None if none did anything."""
    if "bottleneck_data" not in runs:  # where no run has ended there are no metrics at all
        return None
    known = runs[runs["bottleneck_data"].notna()].sort_values("duration_s", kind="stable")
    return None if known.empty else known.iloc[(len(known) - 1) // 2]


def typical(runs: "pd.DataFrame") -> Bottleneck | None:
    """What limits the runs of a point: that of its `typical_run`."""
    run = typical_run(runs)
    return None if run is None else of_row(run)


def of_row(run: "Mapping[str, Any] | pd.Series") -> Bottleneck | None:
    """What limits a run, a row of a table; None if it did nothing."""
    text = run.get("bottleneck_data")
    return Bottleneck.of_json(text) if isinstance(text, str) else None


class _Busiest(NamedTuple):
    """The busiest of some resources, and the others of its class that are as busy."""

    id: ResourceId
    share: float  # of the run's duration that it was busy
    opposite: float  # of the duration that the opposite direction of the link was
    alike: bool  # all of its class are about as busy, and there are several
    serving: bool = False  # its class is the links of those hosts that have servers, which not all have

    @staticmethod
    def of(resources: dict[ResourceId, float], serving: Collection[int] = ()) -> "_Busiest | None":
        """`serving`: the hosts with servers, where others have none; these are then a class of their own."""
        if not any(resources.values()):
            return None

        def serves(each: ResourceId) -> bool:
            return each.owner == "host" and each.number in serving

        id = max(resources, key=lambda resource: resources[resource])
        share, cable = resources[id], id.towards("both")
        opposite = sum(s for other, s in resources.items() if other != id and other.towards("both") == cable)
        class_ = [s for o, s in resources.items() if o.all == id.all and serves(o) == serves(id)]
        return _Busiest(id, share, opposite, len(class_) > 1 and min(class_) >= _ALIKE * share, serves(id))

    @property
    def both(self) -> float:
        """How busy both directions were, one after the other."""
        return self.share + self.opposite

    @property
    def who(self) -> ResourceId:
        """It, or all that are alike."""
        return self.id.all if self.alike else self.id


def _serving(result: "Result") -> Collection[int]:
    """The hosts that have servers beside workers, if others have none."""
    plan, cluster = result.plan, result.scenario.cluster
    serving = {plan.hosts[rank] for rank in plan.owners.ranks}
    if not cluster.servers.colocated or not plan.has_servers or len(serving) >= cluster.hosts:
        return ()
    return serving


def _more_shards(
    result: "Result",
    busiest: _Busiest,
    links: dict[ResourceId, float],
    share: float,
    others: dict[Activity, float],
) -> Remedy | None:
    """How many shards would make something else the bottleneck; None where more of them would not.

    With S′ instead of S shards each carries S/S′ of the bytes a gradient, while the workers' links carry and
    the workers compute as much as before; how fast the run is then scales all of them alike. `others`: the
    shares of other activities; `share`: that of the busiest resource.
    """
    shards = len(result.plan.groups[0].shards)  # of each slice of the parameters
    servers = result.scenario.cluster.servers
    if not result.plan.has_servers or servers.hierarchy or servers.copies > 1 or not servers.even:
        return None  # no server, or more of them would change more than their number
    if servers.colocated:
        return Remedy(result.scenario.cluster.hosts, None) if busiest.serving else None
    if busiest.id.owner != "server":
        return None
    needed: dict[ResourceId | Activity, float] = {  # times as many shards
        what: share / other for what, other in others.items() if other > 0
    }
    for id, other in links.items():
        if other > 0 and id.owner != "server":
            needed[id.all] = min(needed.get(id.all, np.inf), busiest.share / other)
    if not needed:
        return None
    following = min(needed, key=lambda what: needed[what])
    count = int(shards * needed[following] * (1 + 1e-9)) + 1  # strictly more: as many would be a tie
    return Remedy(count, following)


def _slowest(result: "Result") -> tuple[int, float]:
    """The worker whose mean gradient takes longest, and how many times the median worker's."""
    ranks, means = gradient_seconds(given(result, "records"))
    usual, slowest = float(median(means)), int(means.argmax())
    times = float(means[slowest]) / usual if usual > 0 else 1.0
    return int(ranks[slowest]), times


def _largest(result: "Result", slowest: int, times: float) -> int:
    """The stage of the slowest worker if its share of the model explains how slow it is; else -1."""
    plan, recompute = result.plan, result.scenario.split.recompute
    if not plan.stages or slowest not in plan.stages:
        return -1
    split = plan.scenario.split
    shares = np.zeros(split.pipeline)
    for number, piece in enumerate(plan.pieces):
        shares[number % len(shares)] += piece.share("forward", recompute) + piece.share("backward", recompute)
    stage = plan.stages[slowest].index
    explained = shares[stage] / median(shares)
    return stage if times >= STANDS_OUT and times <= STANDS_OUT * explained else -1
