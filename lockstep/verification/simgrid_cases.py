"""The flows that are run both in our simulator and in SimGrid, and how far apart they end.

Links are counted: a topology is their capacities, and a function from two hosts to the links between them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

import simpy

from lockstep.verification import simgrid
from lockstep.verification.simgrid import Case
from simulator.flows import Flows, Link

TOLERANCE = 1e-6  # relative: both are exact but for rounding, so this is far from what either resolves

Path = Callable[[int, int], tuple[int, ...]]
Topology = tuple[list[float], Path]
CARD = 1.25e9  # 10 Gbit/s, in bytes/s
SIZE = 100_000_000


class Comparison(NamedTuple):
    """How far our simulator and SimGrid are apart: the largest relative difference of a flow's duration."""

    case: str
    difference: float
    flows: int


def compare(cases: Sequence[Case] | None = None) -> list[Comparison]:
    """Run cases (default: `named()`) in both simulators; RuntimeError where SimGrid is not available()."""
    cases = named() if cases is None else cases
    return [
        Comparison(case.name, difference(case, simulated(case), theirs), len(case.flows))
        for case, theirs in zip(cases, simgrid.run(cases), strict=True)
    ]


def difference(case: Case, ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the largest relative difference of a flow's duration; `ours` and `theirs` are ends in s."""
    starts = [start for start, _, _ in case.flows]
    return max(abs(a - b) / (b - start) for start, a, b in zip(starts, ours, theirs, strict=True))


def simulated(case: Case) -> list[float]:
    """Return the seconds at which a case's flows end in our simulator."""
    environment = simpy.Environment()
    flows, ends = Flows(environment), [0.0] * len(case.flows)
    links = [Link(str(number), capacity) for number, capacity in enumerate(case.capacity)]

    def start(number: int, event: simpy.Event) -> None:
        _, path, size = case.flows[number]
        flows.start(tuple(links[link] for link in path), size, partial(end, number))

    def end(number: int) -> None:
        ends[number] = environment.now

    for number, (at, _, _) in enumerate(case.flows):
        environment.timeout(at).callbacks.append(partial(start, number))
    environment.run()
    return ends


def star(cards: Sequence[float]) -> Topology:
    """Hosts on a switch that is never full; `cards` are theirs, bytes/s in each direction."""
    return [*cards, *cards], lambda source, target: (source, len(cards) + target)


def half_duplex_star(cards: Sequence[float]) -> Topology:
    """The same, but both directions of a card are one link."""
    return list(cards), lambda source, target: (source, target)


def racks(count: int, hosts: int, oversubscription: float) -> Topology:
    """Racks of `hosts` each; a rack's link to the core carries their sum divided by the oversubscription."""
    capacity, cards = star([CARD] * count * hosts)
    first = len(capacity)
    uplink = CARD * hosts / oversubscription

    def path(source: int, target: int) -> tuple[int, ...]:
        up, down = cards(source, target)
        here, there = source // hosts, target // hosts
        return (up, down) if here == there else (up, first + here, first + count + there, down)

    return capacity + [uplink] * 2 * count, path


def fat_tree(leaves: int, hosts: int, spines: int) -> Topology:
    """Two levels: every leaf switch has `hosts` and a cable to each spine, as fast as a card.

    The spine between two leaves is the sum of their numbers modulo the number of spines.
    """
    capacity, cards = star([CARD] * leaves * hosts)
    first = len(capacity)

    def path(source: int, target: int) -> tuple[int, ...]:
        up, down = cards(source, target)
        here, there = source // hosts, target // hosts
        spine = (here + there) % spines
        across = first + here * spines + spine, first + (leaves + there) * spines + spine
        return (up, down) if here == there else (up, *across, down)

    return capacity + [CARD] * 2 * leaves * spines, path


def named() -> list[Case]:
    """Return the cases with names: each a topology and who sends how much to whom, when."""
    random = Random(3)
    plain, mixed = star([CARD] * 17), star([CARD * random.choice([0.1, 0.4, 1, 4]) for _ in range(17)])
    half, racked, tree = half_duplex_star([CARD] * 9), racks(4, 4, 4.0), fat_tree(4, 4, 2)
    workers = range(1, 17)

    def case(name: str, topology: Topology, sends: list[tuple[float, int, int, int]]) -> Case:
        capacity, path = topology
        return Case(name, capacity, [(at, path(source, to), size) for at, source, to, size in sends])

    def anyone(hosts: int, count: int) -> list[tuple[float, int, int, int]]:
        sends = []
        for _ in range(count):
            source, target = random.sample(range(hosts), 2)
            sends.append((random.uniform(0, 1), source, target, random.randrange(1, 2 * SIZE)))
        return sends

    ring = [(0.0, host, host % 16 + 1, SIZE) for host in workers]
    shift = [(0.0, host, (host + 5) % 16, SIZE + 1000 * host) for host in range(16)]
    incast = [(0.01 * host, host, 4, SIZE // 2) for host in (1, 7, 9, 12)]
    push_and_pull = [(0.02 * host, *pair, SIZE) for host in range(1, 9) for pair in ((host, 0), (0, host))]
    return [
        case("star, fan-in", plain, [(0.0, worker, 0, SIZE) for worker in workers]),
        case("star, fan-in of unequal pushes", mixed, [(0.0, w, 0, w * SIZE // 8) for w in workers]),
        case("star, fan-in one after another", plain, [(0.03 * w, w, 0, SIZE) for w in workers]),
        case("star, fan-out", plain, [(0.0, 0, worker, SIZE) for worker in workers]),
        case("star, fan-out to unequal cards", mixed, [(0.0, 0, worker, SIZE) for worker in workers]),
        case("star, incast into a ring", plain, ring + incast),
        case("star, anyone to anyone", plain, anyone(17, 200)),
        case("star, anyone to anyone, unequal cards", mixed, anyone(17, 200)),
        case("half-duplex star, push and pull", half, push_and_pull),
        case("half-duplex star, anyone to anyone", half, anyone(9, 100)),
        case("racks 4:1, a ring over all", racked, shift),
        case("racks 4:1, incast", racked, [(0.0, host, 0, SIZE) for host in range(1, 16)]),
        case("racks 4:1, anyone to anyone", racked, anyone(16, 200)),
        case("fat tree, a ring over all", tree, shift),
        case("fat tree, incast", tree, [(0.0, host, 0, SIZE) for host in range(1, 16)]),
        case("fat tree, anyone to anyone", tree, anyone(16, 200)),
    ]
