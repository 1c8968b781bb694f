"""The faults of a run, in the order of time: a pure function of the scenario and its seed.

Each item of `cluster.faults` has a stream of its own (one for each worker, where it names nobody), so that
another item changes none of its draws. Streams are lazy, as those with an `mtbf` have no end.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from math import inf
from typing import Any, ClassVar, TypeVar

import numpy as np

from lockstep.scenarios import compute as spans
from lockstep.scenarios import faults as kinds
from lockstep.strategies.placement import Role
from lockstep.workloads import seeds


@dataclass(frozen=True)
class Fault:
    """Something that happens to a job. Times are s of the run's clock."""

    at: float
    until: float
    """When it is over, or who failed is back; inf: never."""
    item: int
    """Which of `cluster.faults`."""
    ranks: tuple[int, ...]
    """Whom it befalls."""
    kind: ClassVar[str]


@dataclass(frozen=True)
class Crash(Fault):
    """Processes are gone, with all that they know."""

    notice: float = 0.0
    """For how long (s) it was known before."""
    lingers: float = 0.0
    """For how long (s) they stand still before they are gone."""
    kind = "crash"


@dataclass(frozen=True)
class Unforeseen(Crash):
    """Processes of a real run have died and nobody let them: no item is the cause.

    That is noticed at `until`, and somebody may take their places from then on.
    """


@dataclass(frozen=True)
class Silent(Unforeseen):
    """They give no sign since `at`."""

    kind = "hang"


@dataclass(frozen=True)
class Hang(Fault):
    """Processes stand still; what is sent to them waits."""

    kind = "hang"


@dataclass(frozen=True)
class Cut(Fault):
    """Messages wait between hosts that do not reach each other.

    `ranks` are those whom the others do not reach: who counts as gone if it takes too long.
    """

    separated: Callable[[int, int], bool]
    """Whether messages from one host to another do not pass."""
    kind = "cut"


def there_at(cuts: Iterable[Cut], sent: float, arrives: float, source: int, to: int) -> float:
    """When a message between two hosts is there, s, which cuts hold up that would arrive at `arrives`."""
    at = arrives
    for cut in cuts:
        if sent < cut.until and arrives > cut.at and cut.separated(source, to):
            at = max(at, arrives + cut.until - max(cut.at, sent))
    return at


def schedule(
    items: Sequence[Any],
    seed: int,
    roles: Sequence[Role],
    hosts: Sequence[int],
    racks: Callable[[int], int],
    over: Callable[[Fault], float],
) -> Iterator[Fault]:
    """All faults of these items of `cluster.faults`, in the order of time.

    `roles` and `hosts` of every rank, `racks`: of a worker. `over`: when somebody is in the place of who has
    crashed, who may fail next. What `resizes` has is not among them.
    """
    workers = [rank for rank, role in enumerate(roles) if role.kind == "worker"]
    streams: list[Iterator[Fault]] = []
    for index, item in enumerate(items):
        match item:
            case kinds.Crash() | kinds.Preemption() | kinds.Hang():
                units: list[tuple[int, tuple[int, ...]]] = [(rank, (rank,)) for rank in workers]
                if item.scope is not None:
                    units = [(0, _ranks(*item.scope, roles, hosts, racks))]
                streams += [
                    _outages(item, index, ranks, _rng(seed, index, unit), over) for unit, ranks in units
                ]
            case kinds.LinkDown() | kinds.Partition():
                streams.append(_cuts(item, index, hosts, _rng(seed, index, 0)))
            case kinds.Trace():
                streams.append(_traced(item, index, hosts, over))
    return merge(*streams, key=lambda fault: (fault.at, fault.item))


def _rng(seed: int, item: int, unit: int) -> np.random.Generator:
    return seeds.generator(seed, "faults", item, unit)


def _ranks(
    scope: str, number: int, roles: Sequence[Role], hosts: Sequence[int], racks: Callable[[int], int]
) -> tuple[int, ...]:
    """The ranks of a worker, of a server (with a model that is split: all of its processes), host or rack."""

    rack = {hosts[r] for r, role in enumerate(roles) if role.kind == "worker" and racks(r) == number}

    def within(rank: int, role: Role) -> bool:
        if scope == "host":
            return hosts[rank] == number
        if scope == "rack":
            return hosts[rank] in rack
        return role.kind == scope and (rank if scope == "worker" else role.index) == number

    return tuple(rank for rank, role in enumerate(roles) if within(rank, role))


F = TypeVar("F", bound=Fault)


def _spells(
    item: Any, down: Any, rng: np.random.Generator, fault: Callable[[float, float], F]
) -> Iterator[F]:
    """It fails, and is back: once, or again and again. `fault`: what it is from when until when."""
    now = 0.0
    while now < inf:
        at = item.at if item.mtbf is None else now + _draw(item.mtbf, rng)
        found = fault(at, inf if down is None else at + _draw(down, rng))
        yield found
        if item.mtbf is None:
            return
        now = found.until


def _outages(
    item: Any,
    index: int,
    ranks: tuple[int, ...],
    rng: np.random.Generator,
    over: Callable[[Fault], float],
) -> Iterator[Fault]:
    def crash(at: float, until: float) -> Crash:
        found = Crash(at, max(until, at + lingers), index, ranks, notice, lingers)
        return replace(found, until=over(found))

    if isinstance(item, kinds.Hang):
        yield from _spells(item, item.hang_for, rng, lambda at, until: Hang(at, until, index, ranks))
        return
    notice = item.notice if isinstance(item, kinds.Preemption) else 0.0
    lingers = item.exits_after if isinstance(item, kinds.Crash) else 0.0
    yield from _spells(item, item.back_after, rng, crash)


def _cuts(item: Any, index: int, hosts: Sequence[int], rng: np.random.Generator) -> Iterator[Fault]:
    if isinstance(item, kinds.LinkDown):
        host, way = item.link.host, item.link.direction
        alone = {host}

        def separated(source: int, to: int) -> bool:
            return source != to and ((source == host and way != "down") or (to == host and way != "up"))
    else:
        group = {host: number for number, group in enumerate(item.partition) for host in group}
        alone = {host for host, number in group.items() if number}

        def separated(source: int, to: int) -> bool:
            return group.get(source, group.get(to)) != group.get(to, group.get(source))

    ranks = tuple(rank for rank, host in enumerate(hosts) if host in alone)
    return _spells(item, item.down_for, rng, lambda at, until: Cut(at, until, index, ranks, separated))


def _traced(
    item: kinds.Trace, index: int, hosts: Sequence[int], over: Callable[[Fault], float]
) -> Iterator[Fault]:
    changes = item.changes
    for place, (at, host, up) in enumerate(changes):
        if not up:
            back = (when for when, other, is_up in changes[place:] if is_up and other == host)
            ranks = tuple(rank for rank, its in enumerate(hosts) if its == host)
            crash = Crash(at, next(back, inf), index, ranks)
            yield replace(crash, until=over(crash))


def _draw(time: Any, rng: np.random.Generator) -> float:
    """One duration, s."""
    match time:
        case spans.Constant():
            return float(time.value)
        case spans.Exponential():
            return float(rng.exponential(time.mean))
        case kinds.Weibull():
            return float(time.mean / math.gamma(1 + 1 / time.shape) * rng.weibull(time.shape))
        case spans.LogNormal():
            variance = math.log1p(time.cv**2)  # of the logarithm
            return float(rng.lognormal(math.log(time.mean) - variance / 2, math.sqrt(variance)))
    raise AssertionError(time)
