"""Cases of `lockstep verify` about communication: parameter servers and collectives."""

from collections.abc import Callable
from functools import partial
from typing import Any

from lockstep.studies.verification import theory
from lockstep.studies.verification.case import (
    ROUNDING,
    Case,
    Outcome,
    between_updates,
    constant,
    exact,
    grid,
    simulate,
    within,
)

BANDWIDTH = 1e6  # bytes/s
PARAMETERS = 840_000  # float32; divides evenly by every number of shards and ranks below
NBYTES = 4 * PARAMETERS
LATENCY = 3e-3  # s
MEMORY = 2e7  # bytes/s
NETWORK = {"bandwidth": "1 MB/s"}
DELAYED = {**NETWORK, "latency": "3 ms"}


def round_s(strategy: str | dict[str, Any], workers: int, **cluster: Any) -> float:
    """Seconds from one update to the next, when nothing is computed or `compute` is constant."""
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


def half_duplex(workers: int, chunks: int) -> Outcome:
    """Chunks gain nothing on a link that is never idle: all bytes go over it, one way or the other."""
    strategy, network = {"name": "synchronous", "chunks": chunks}, {**NETWORK, "duplex": "half"}
    expected = theory.push_then_pull(NBYTES, workers, 1, BANDWIDTH)
    return exact(expected, round_s(strategy, workers, network=network))


def server_cards(workers: int, servers: int, times: float) -> Outcome:
    """Servers whose cards are so many times as fast as the workers'."""
    network = {**NETWORK, "server_bandwidth": f"{times} MB/s"}
    expected = theory.narrow_push_pull(NBYTES, workers, servers, BANDWIDTH, times * BANDWIDTH)
    return exact(expected, round_s("synchronous", workers, servers=servers, network=network))


def racks(count: int, per_rack: int, oversubscription: float) -> Outcome:
    """An all-reduce whose later exchanges cross the racks' up-links."""
    shape = {"kind": "racks", "hosts_per_rack": per_rack, "oversubscription": oversubscription}
    took = round_s(
        {"name": "all-reduce", "algorithm": "recursive-doubling"}, count * per_rack,
        network={**NETWORK, "topology": shape},
    )  # fmt: skip
    seconds = theory.recursive_doubling_over_racks
    return exact(seconds(count, per_rack, NBYTES, 1 / BANDWIDTH, oversubscription), took)


def two_level(hosts: int, per_host: int) -> Outcome:
    """Sums inside the hosts first, where messages take no time but additions and the step do."""
    took = round_s(
        {"name": "all-reduce", "algorithm": "two-level"}, hosts * per_host, workers_per_host=per_host,
        network=DELAYED, memory_bandwidth=f"{MEMORY} B/s",
    )  # fmt: skip
    seconds = theory.two_level(hosts, per_host, NBYTES, LATENCY, 1 / BANDWIDTH, 3 / MEMORY)
    return exact(seconds + NBYTES * 3 / MEMORY, took)


def hierarchical(hosts: int, per_host: int) -> Outcome:
    """A link inside each host of twice a card's bandwidth."""
    took = round_s(
        {"name": "all-reduce", "algorithm": "hierarchical"}, hosts * per_host, workers_per_host=per_host,
        network={**DELAYED, "intra_host": {"bandwidth": "2 MB/s"}},
    )  # fmt: skip
    seconds = theory.hierarchical(hosts, per_host, NBYTES, LATENCY, 1 / BANDWIDTH, 0.5 / BANDWIDTH)
    return exact(seconds, took)


COMPUTE, BACKWARD = 10.0, 0.6  # s of a gradient, and the share of it that is the backward pass


def overlap(strategy: dict[str, Any], communication: list[float], chunks: int) -> Outcome:
    """Seconds a step when each chunk is sent as soon as the backward pass has made it.

    `communication` are the seconds of its stages, in each of which the links carry one chunk at a time.
    """
    compute = {"time": constant(COMPUTE), "backward": BACKWARD}
    expected = theory.pipeline([BACKWARD * COMPUTE, *communication], chunks) + (1 - BACKWARD) * COMPUTE
    return exact(expected, round_s(strategy, 4, compute=compute))


def overlapping_push_pull(chunks: int) -> Outcome:
    """Backward pass, push, pull."""
    one_way = theory.one_way(NBYTES, 4, 1, BANDWIDTH)
    return overlap({"name": "synchronous", "chunks": chunks}, [one_way, one_way], chunks)


def overlapping_ring(buckets: int) -> Outcome:
    """Backward pass, all-reduce."""
    ring = theory.ring(4, NBYTES, 0.0, 1 / BANDWIDTH)
    return overlap({"name": "all-reduce", "buckets": buckets}, [ring], buckets)


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
    """A round without compute is one all-reduce; with `cost` "gamma" adding bytes takes time too.

    Then the worker's own step does, which is an addition of the sum's multiple to the parameters.
    """
    memory = {"memory_bandwidth": f"{MEMORY} B/s"} if cost == "gamma" else {}
    took = round_s({"name": "all-reduce", "algorithm": algorithm}, p, network=DELAYED, **memory)
    seconds, _ = ALGORITHMS[algorithm]
    gamma = 3 / MEMORY if memory else 0.0  # adding one byte to another: two read, one written
    return exact(seconds(p, NBYTES, LATENCY, 1 / BANDWIDTH, gamma) + NBYTES * gamma, took)


def in_pieces(algorithm: str, p: int, latency: float) -> Outcome:
    """Chunks that are passed on in pieces, at latencies that hide behind sending, and at longer ones."""
    network = {**NETWORK, "latency": f"{latency} s"}
    seconds = {"nccl-ring": theory.nccl_ring, "gloo-ring": theory.gloo_ring}[algorithm]
    took = round_s({"name": "all-reduce", "algorithm": algorithm}, p, network=network)
    return exact(seconds(p, NBYTES, latency, 1 / BANDWIDTH), took)


def no_faster_than_possible(algorithm: str, p: int) -> Outcome:
    """The least seconds ÷ those it took, which is at most 1."""
    took = round_s({"name": "all-reduce", "algorithm": algorithm}, p)
    return within(ROUNDING, 1.0, theory.least_all_reduce(p, NBYTES, 1 / BANDWIDTH) / took, at_most=True)


CASES: list[Case] = [
    *(
        Case(f"parameter-server push then pull n={n} S={s}", partial(push_pull, n, s))
        for n, s in [(1, 1), (1, 4), (2, 4), (7, 1), (7, 2), (32, 4)]
    ),
    *grid(
        "parameter-server pipelined n={workers} S={servers} c={chunks}", pipelined,
        workers=[1, 7], servers=[1, 4], chunks=[1, 2, 10],
    ),
    *grid("parameter-server half-duplex n={workers} c={chunks}", half_duplex, workers=[1, 7], chunks=[1, 4]),
    *grid(
        "parameter-server server cards n={workers} S={servers} times {times}", server_cards,
        workers=[6], servers=[1, 3], times=[0.5, 4, 10],
    ),
    *grid(
        "all-reduce racks={count} of {per_rack}, oversubscribed {oversubscription}:1", racks,
        count=[2, 4], per_rack=[4], oversubscription=[1, 4],
    ),
    *grid("all-reduce two-level hosts={hosts} of {per_host}", two_level, hosts=[2, 5], per_host=[1, 4]),
    *grid("all-reduce hierarchical hosts={hosts} of {per_host}", hierarchical, hosts=[2, 5], per_host=[1, 4]),
    *grid("parameter-server overlap c={chunks}", overlapping_push_pull, chunks=[1, 2, 10]),
    *grid("all-reduce overlap, {buckets} buckets", overlapping_ring, buckets=[1, 2, 10]),
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
        "all-reduce {algorithm} p={p}, latency {latency} s", in_pieces,
        algorithm=["nccl-ring", "gloo-ring"], p=[2, 3, 8], latency=[LATENCY, 0.5],
    ),
    *grid(
        "all-reduce {algorithm} p={p}, no faster than possible", no_faster_than_possible,
        algorithm=[*ALGORITHMS, "nccl-ring", "gloo-ring", "auto", "two-level", "hierarchical"],
        p=[6, 8],
    ),
]  # fmt: skip
