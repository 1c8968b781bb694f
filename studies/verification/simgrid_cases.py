"""The flows that are run both in our simulator and in SimGrid, and how far apart they end.

Links are counted: a topology is their capacities, and a function from two hosts to the links between them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

import simpy

from lockstep.scenarios import Network
from lockstep.simulator import topology as topologies
from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Link
from lockstep.strategies.placement import Role
from lockstep.strategies.resource import ResourceId
from lockstep.studies.verification import simgrid
from lockstep.studies.verification.simgrid import Case

TOLERANCE = 1e-6  # relative: both are exact but for rounding, so this is far from what either resolves

Path = Callable[[int, int], tuple[int, ...]]
Topology = tuple[list[float], Path]
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
    links = [
        Link(ResourceId("other", "link", number), capacity) for number, capacity in enumerate(case.capacity)
    ]

    def start(number: int, event: simpy.Event) -> None:
        _, path, size = case.flows[number]
        flows.start(tuple(links[link] for link in path), size, partial(end, number))

    def end(number: int) -> None:
        ends[number] = environment.now

    for number, (at, _, _) in enumerate(case.flows):
        environment.timeout(at).callbacks.append(partial(start, number))
    environment.run()
    return ends


def described(hosts: int, **network: Any) -> Topology:
    """The links of so many hosts with cards of 10 Gbit/s, and whatever else `cluster.network` says."""
    section = Network.model_validate({"bandwidth": "10 Gbit/s", **network})
    topology = topologies.Topology(section, [[Role("worker", host)] for host in range(hosts)])
    number = {link: index for index, link in enumerate(topology.links)}
    capacity = [link.capacity for link in topology.links]
    return capacity, lambda source, target: tuple(number[link] for link in topology.path(source, target)[0])


def named() -> list[Case]:
    """Return the cases with names: each a topology and who sends how much to whom, when."""
    random = Random(3)
    cards = [{"hosts": [host], "bandwidth": f"{random.choice([1, 4, 10, 40])} Gbit/s"} for host in range(17)]
    plain, mixed, half = described(17), described(17, cards=cards), described(9, duplex="half")
    racked = described(16, topology={"kind": "racks", "hosts_per_rack": 4, "oversubscription": 4})
    tree = described(16, topology={"kind": "fat-tree", "hosts_per_leaf": 4, "spines": 2, "link": "10 Gbit/s"})
    sites = described(16, topology={"kind": "sites", "hosts": [6, 6, 4], "bandwidth": "3 Gbit/s"})
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
        case("three sites, anyone to anyone", sites, anyone(16, 200)),
    ]
