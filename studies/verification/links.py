"""Cases of `lockstep verify` about links that are shared, on random topologies: max-min fairness."""

import numpy as np
import simpy

from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Link
from lockstep.simulator.max_min import max_min
from lockstep.strategies.resource import ResourceId
from lockstep.studies.verification.case import Array, Case, Outcome, exact, grid

Paths = dict[int, list[int]]


def water_filling(paths: Paths, capacity: dict[int, float]) -> Array:
    """Max-min fair rates, shape (flows,), written apart from the simulator's: with matrices.

    Raise all rates that can still rise by the same amount, until a link is full; then the flows across it
    cannot (Bertsekas and Gallager, Data Networks, §6.5.2).
    """
    crosses = np.array([[link in path for link in capacity] for path in paths.values()], dtype=float)
    room = np.array(list(capacity.values()))
    rates, rising = np.zeros(len(paths)), np.ones(len(paths), dtype=bool)
    while rising.any():
        load = rising @ crosses
        raise_by = np.min(np.where(load > 0, (room - rates @ crosses) / np.maximum(load, 1), np.inf))
        rates[rising] += raise_by
        full = room - rates @ crosses <= 1e-12 * room
        rising &= ~(crosses @ full > 0)
    return rates


def _random_load(rng: np.random.Generator) -> tuple[Paths, dict[int, float]]:
    links = int(rng.integers(1, 9))
    capacity = {link: float(rng.uniform(0.1, 100)) for link in range(links)}
    hops = rng.integers(1, links + 1, size=int(rng.integers(1, 25)))
    paths = {flow: rng.choice(links, size=n, replace=False).tolist() for flow, n in enumerate(hops)}
    return paths, capacity


def fair_rates(topologies: int) -> Outcome:
    """The largest relative difference of a flow's rate to the independent solver's."""
    rng, largest = np.random.default_rng(1), 0.0
    for _ in range(topologies):
        paths, capacity = _random_load(rng)
        found = max_min(paths, capacity)
        rates = np.array([found[flow][0] for flow in paths])
        largest = max(largest, float(np.abs(rates / water_filling(paths, capacity) - 1).max()))
    return exact(0.0, largest)


def fair_rates_are_optimal(topologies: int) -> Outcome:
    """The fraction of flows without a full link on which none is faster: there is none such.

    That is what max-min fair means (Bertsekas and Gallager, §6.5.2), so it needs no other solver.
    """
    rng, wrong, flows = np.random.default_rng(2), 0, 0
    for _ in range(topologies):
        paths, capacity = _random_load(rng)
        rate = {flow: r for flow, (r, _) in max_min(paths, capacity).items()}
        across = {link: [rate[flow] for flow in paths if link in paths[flow]] for link in capacity}
        for flow, path in paths.items():
            flows += 1
            wrong += not any(
                sum(across[link]) >= capacity[link] * (1 - 1e-9)
                and rate[flow] >= max(across[link]) * (1 - 1e-9)
                for link in path
            )
        if any(sum(across[link]) > capacity[link] * (1 + 1e-9) for link in capacity):
            wrong += 1
    return exact(0.0, wrong / flows)


def flows_over_time(loads: int) -> Outcome:
    """The largest relative difference of a flow's end to plain integration with the independent solver.

    Flows come one after the other on random paths; the simulator's virtual clocks against solving everything
    anew at every change.
    """
    rng, largest = np.random.default_rng(3), 0.0
    for _ in range(loads):
        paths, capacity = _random_load(rng)
        starts = np.cumsum(rng.exponential(1.0, len(paths)))
        sizes = rng.uniform(1, 200, len(paths))
        simulated = _flow_ends(paths, capacity, starts, sizes)
        largest = max(
            largest, float(np.abs(simulated / _integrated(paths, capacity, starts, sizes) - 1).max())
        )
    return exact(0.0, largest)


def _flow_ends(paths: Paths, capacity: dict[int, float], starts: Array, sizes: Array) -> Array:
    environment = simpy.Environment()
    flows, ends = Flows(environment), np.zeros(len(paths))
    links = {link: Link(ResourceId("other", "link", link), rate) for link, rate in capacity.items()}

    def end(flow: int) -> None:
        ends[flow] = environment.now

    def begin(flow: int) -> None:
        path = tuple(links[link] for link in paths[flow])
        flows.start(path, float(sizes[flow]), lambda: end(flow))

    for flow in paths:
        timeout = environment.timeout(float(starts[flow]))
        timeout.callbacks.append(lambda _, flow=flow: begin(flow))  # type: ignore[misc]
    environment.run()
    return ends


def _integrated(paths: Paths, capacity: dict[int, float], starts: Array, sizes: Array) -> Array:
    left, ends, now = sizes.copy(), np.full(len(paths), np.inf), 0.0
    while np.isinf(ends).any():
        active = [flow for flow in paths if starts[flow] <= now and np.isinf(ends[flow])]
        coming = starts[starts > now].min(initial=np.inf)
        if not active:
            now = coming
            continue
        rates = water_filling({flow: paths[flow] for flow in active}, capacity)
        durations = left[active] / rates
        step = min(float(durations.min()), coming - now)
        left[active] -= rates * step
        for flow, duration in zip(active, durations, strict=True):
            if duration <= step:
                ends[flow] = now + step
        now = now + step if coming > now + step else coming
    return ends


CASES: list[Case] = [
    *grid("max-min against water-filling, {topologies} topologies", fair_rates, topologies=[300]),
    *grid("max-min is optimal, {topologies} topologies", fair_rates_are_optimal, topologies=[300]),
    *grid("max-min over time, {loads} loads", flows_over_time, loads=[60]),
]
