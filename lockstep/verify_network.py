"""Cases of `lockstep verify` about communication: parameter servers, collectives, links that are shared."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import simpy

from lockstep import theory
from lockstep.verify_case import (
    ROUNDING,
    Array,
    Case,
    Outcome,
    between_updates,
    exact,
    grid,
    simulate,
    within,
)
from simulator.flows import Flows, Link
from simulator.max_min import max_min

BANDWIDTH = 1e6  # bytes/s
PARAMETERS = 840_000  # float32; divides evenly by every number of shards and ranks below
NBYTES = 4 * PARAMETERS
LATENCY = 3e-3  # s
MEMORY = 2e7  # bytes/s
NETWORK = {"bandwidth": "1 MB/s"}
DELAYED = {**NETWORK, "latency": "3 ms"}


def round_s(strategy: str | dict[str, Any], workers: int, **cluster: Any) -> float:
    """Seconds from one update to the next when nothing is computed."""
    cluster = {"network": NETWORK, **cluster}
    run = simulate(strategy, {"updates": 4}, workers=workers, parameters=PARAMETERS, **cluster)
    return float(between_updates(run).mean())


def push_pull(workers: int, servers: int) -> Outcome:
    """A synchronous round is a push of everybody and a pull of everybody."""
    expected = theory.push_then_pull(NBYTES, workers, servers, BANDWIDTH)
    return exact(expected, round_s("synchronous", workers, servers=servers))


def colocated(workers: int) -> Outcome:
    """A shard on every worker's host: the own part crosses no link."""
    servers = {"count": workers, "colocated": True}
    expected = theory.colocated_push_pull(NBYTES, workers, BANDWIDTH)
    return exact(expected, round_s("synchronous", workers, servers=servers))


def pipelined(workers: int, servers: int, chunks: int) -> Outcome:
    """The answer to one chunk travels while the next is pushed."""
    expected = theory.pipelined_push_pull(NBYTES, workers, servers, BANDWIDTH, chunks)
    strategy = {"name": "synchronous", "chunks": chunks}
    return exact(expected, round_s(strategy, workers, servers=servers))


def uneven_shards(workers: int) -> Outcome:
    """Everybody waits for the largest shard."""
    servers = {"count": 3, "shares": [5, 2, 1]}
    expected = theory.largest_share_push_pull(NBYTES, workers, 5 / 8, BANDWIDTH)
    return exact(expected, round_s("synchronous", workers, servers=servers))


def hierarchy(group: int, groups: int) -> Outcome:
    """Relays add up the pushes of their group."""
    servers = {"count": 1, "hierarchy": {"groups": groups}}
    expected = theory.hierarchical_push_pull(NBYTES, group, groups, BANDWIDTH)
    return exact(expected, round_s("synchronous", group * groups, servers=servers))


def update_time(workers: int, servers: int) -> Outcome:
    """The server's own time comes between the push and the pull."""
    expected = theory.push_then_pull(NBYTES, workers, servers, BANDWIDTH)
    expected += theory.update_time(NBYTES, workers, servers, MEMORY)
    memory = f"{MEMORY} B/s"
    return exact(expected, round_s("synchronous", workers, servers=servers, memory_bandwidth=memory))


def message_costs(workers: int) -> Outcome:
    """(N+1)·o + 2(M/(gB) + α): overheads o that occupy their sender, goodput g, latency α.

    The server's N answers leave one overhead after the other, so the last worker to have its answer is the
    last to push, after an overhead of its own. M is 4 bytes, gone before the next overhead is over.
    """
    overhead, goodput, nbytes = 5e-3, 0.5, 4
    run = simulate(
        "synchronous", {"updates": 4}, workers=workers, parameters=1,
        network={**DELAYED, "message_overhead": f"{overhead} s", "goodput": goodput},
    )  # fmt: skip
    speed = goodput * BANDWIDTH
    expected = (workers + 1) * overhead + 2 * (nbytes / speed + LATENCY)
    return exact(expected, between_updates(run).mean())


Seconds = Callable[..., float]
ALGORITHMS: dict[str, tuple[Seconds, list[int]]] = {
    "ring": (theory.ring, [2, 3, 8, 60]),
    "native": (theory.ring, [8]),
    "halving-doubling": (theory.halving_doubling, [2, 8, 16]),
    "recursive-doubling": (theory.recursive_doubling, [2, 8, 16]),
    "binomial": (theory.binomial, [2, 8, 16]),
    "parameter-server": (theory.owners, [2, 7, 8]),
}  # closed form, and numbers of ranks for which it is exact


def collective(algorithm: str, p: int, cost: str) -> Outcome:
    """A round without compute is one all-reduce; with `cost` "gamma" adding bytes takes time too."""
    memory = {"memory_bandwidth": f"{MEMORY} B/s"} if cost == "gamma" else {}
    took = round_s({"name": "all-reduce", "algorithm": algorithm}, p, network=DELAYED, **memory)
    seconds, _ = ALGORITHMS[algorithm]
    gamma = 3 / MEMORY if memory else 0.0  # adding one byte to another: two read, one written
    return exact(seconds(p, NBYTES, LATENCY, 1 / BANDWIDTH, gamma), took)


def no_faster_than_possible(algorithm: str, p: int) -> Outcome:
    """The least seconds ÷ those it took, which is at most 1."""
    took = round_s({"name": "all-reduce", "algorithm": algorithm}, p)
    return within(ROUNDING, 1.0, theory.least_all_reduce(p, NBYTES, 1 / BANDWIDTH) / took, at_most=True)


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
    links = {link: Link(str(link), rate) for link, rate in capacity.items()}

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
    *(
        Case(f"parameter-server push then pull n={n} S={s}", partial(push_pull, n, s))
        for n, s in [(1, 1), (1, 4), (2, 4), (7, 1), (7, 2), (32, 4)]
    ),
    *grid(
        "parameter-server pipelined n={workers} S={servers} c={chunks}", pipelined,
        workers=[1, 7], servers=[1, 4], chunks=[1, 2, 10],
    ),
    *grid("parameter-server co-located n={workers}", colocated, workers=[2, 4, 7]),
    *grid("parameter-server uneven shards n={workers}", uneven_shards, workers=[3, 5]),
    *grid("parameter-server relays n={group}*{groups}", hierarchy, group=[4], groups=[2, 4]),
    *grid("parameter-server update time n={workers} S={servers}", update_time, workers=[4], servers=[1, 3]),
    *grid("parameter-server latency overhead goodput n={workers}", message_costs, workers=[1, 5]),
    *(
        Case(f"all-reduce {algorithm} p={p}, {cost}", partial(collective, algorithm, p, cost))
        for algorithm, (_, ranks) in ALGORITHMS.items()
        for p in ranks
        for cost in ("alpha beta", "gamma")
    ),
    *grid(
        "all-reduce {algorithm} p={p}, no faster than possible", no_faster_than_possible,
        algorithm=[*ALGORITHMS, "auto", "two-level"], p=[6, 8],
    ),
    *grid("max-min against water-filling, {topologies} topologies", fair_rates, topologies=[300]),
    *grid("max-min is optimal, {topologies} topologies", fair_rates_are_optimal, topologies=[300]),
    *grid("max-min over time, {loads} loads", flows_over_time, loads=[60]),
]  # fmt: skip
