"""Devices that share layers, on several hosts: what they exchange goes over the hosts' cards."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from lockstep.job.groups import DataGroup
from lockstep.job.stages import Piece, Segment
from lockstep.scenarios import Cluster, Scenario
from lockstep.strategies.node import Group, Stage


def spread(
    scenario: Scenario, stages: Mapping[int, Stage], groups: Sequence[DataGroup], itemsize: int
) -> Iterator[str]:
    """A warning, if there are such: which, and what it costs. itemsize: bytes of an element of a gradient."""
    split = scenario.split
    if split.parts == 1:
        return
    of = {stage.group.ranks: stage for stage in stages.values() if stage.group is not None}
    across = {ranks: stage for ranks, stage in of.items() if len({*_group(stage).hosts}) > 1}
    if not across:
        return

    @cache
    def exchanged(number: int) -> tuple[float, float]:
        pieces = groups[number].pieces
        both = [_exchanged(piece, split.parts, split.recompute, itemsize) for piece in pieces]
        return sum(around for around, _ in both), sum(beside for _, beside in both)

    leaving: Counter[int] = Counter()  # bytes of a mini-batch by host
    most = 0.0  # of a device
    for stage in across.values():
        hosts = _group(stage).hosts
        first = stage.index * split.tensor + stage.tensor // split.parts * split.parts
        for place, host in enumerate(hosts):
            around, beside = exchanged(first + place)
            near = [other for other in (place - 1, place + 1) if 0 <= other < len(hosts)]
            outside = sum(hosts[other] != host for other in near) / len(near)
            most = max(most, around + beside)
            leaving[host] += round(around * (hosts[(place + 1) % len(hosts)] != host) + beside * outside)
    if not most:  # sizes only, of activations that nobody has given
        return
    ranks, stage = next(iter(across.items()))
    more = len(across) - 1
    too = f", and so are {more:,} more such groups" if more > 1 else ", and so is 1 more such group"
    yield (
        f"workers {_listed(ranks)} share layers but are on {len({*_group(stage).hosts})} hosts"
        f"{too if more else ''}: each of them sends {_size(most)} for a mini-batch"
        f"{_takes(scenario.cluster, leaving)} (cluster.workers_per_host, parallelism.axes)"
    )


def _group(stage: Stage) -> Group:
    assert stage.group is not None
    return stage.group


def _exchanged(piece: Piece, parts: int, recompute: bool, itemsize: int) -> tuple[float, float]:
    """Bytes that a device sends for a mini-batch: around the ring of its group, and to its neighbours."""
    again = piece.there[:-1] if recompute else ()  # what the last comes to is not needed again
    segments = [*piece.there, *again, *piece.back]
    around = sum(_around(segment, parts) for segment in segments)
    around += 2 * (parts - 1) / parts * itemsize * sum(part.stop - part.start for part in piece.partial)
    return around, sum(segment.nbytes for segment in segments if segment.exchange == "halo")


def _around(segment: Segment, parts: int) -> float:
    each = {"all-reduce": 2 / parts, "reduce-scatter": 1 / parts, "all-gather": 1.0}
    return each.get(segment.exchange or "", 0.0) * (parts - 1) * segment.nbytes


def _takes(cluster: Cluster, leaving: Mapping[int, float]) -> str:
    network = cluster.network
    cards = network.cards_of(cluster.hosts, cluster.servers.hosts)
    seconds = [nbytes / (rate * network.goodput) for host, nbytes in leaving.items() if (rate := cards[host])]
    if not seconds:
        return ""
    most = max(seconds)
    return f", and a card is busy with that for at least {most:{',.0f' if most >= 100 else '.3g'}} s of it"


def _listed(ranks: Sequence[int]) -> str:
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]} to {ranks[-1]}"
    *others, last = map(str, ranks)
    return f"{', '.join(others)} and {last}"


def _size(nbytes: float) -> str:
    units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
    unit, name = next((each for each in units if nbytes >= each[0]), units[-1])
    return f"{nbytes / unit:.3g} {name}"
