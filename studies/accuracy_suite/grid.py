"""The grid: strategies × workers × shards × regimes × stragglers, as scenarios of sizes only.

A push of all parameters takes 32 ms of a link (33.5 with headers), and the mean gradient 20, 80 or 240 ms.
The network is a slow one because the testbed's hosts share one machine's cores: at twice the bandwidth these
would be the bottleneck of twelve workers, which they are not in a cluster.
Runs end after a number of updates, so that both engines do the same work and a throughput is not a matter of
what just made it before the end; it is estimated so that a run takes some eight seconds, or three times that
where queues make the throughput of a short run a matter of chance. Gossip has no common updates: there every
worker makes a number of steps.
"""

from collections.abc import Mapping
from math import hypot
from typing import Any

from lockstep.studies.accuracy_suite.point import Point

PERIOD = 4  # mini-batches between exchanges, of whatever computes several
LENGTH_S = 8.0
_LONGER = 3  # times that, for workers who do not wait for each other but for the network
_TRANSFER_S = 0.0335  # of all parameters over one link
_PARAMETERS = 50_000
_BANDWIDTH = "50 Mbit/s"

WORKERS = (1, 2, 4, 8, 12)
SHARDS = (1, 2, 4)
REGIMES = {"network": 0.020, "balanced": 0.080, "compute": 0.240}  # s, the mean gradient
STRAGGLERS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "constant": [{"worker": 0, "slowdown": 2}],
    "random": [{"slowdown": 4, "probability": 0.1}],
    "spells": [{"slowdown": 3, "spells": {"every": "2 s", "last": "500 ms"}}],
}
_SERVER: dict[str, dict[str, Any]] = {
    "synchronous": {},
    "backup-workers": {"backups": 1},
    "asynchronous": {},
    "soft-sync": {},
    "ssp-blocking": {},
    "agn": {"communication_window": PERIOD},
    "aeasgd": {"communication_window": PERIOD},
}
_PEERS: dict[str, dict[str, Any]] = {
    "local-sgd": {"averaging_period": PERIOD},
    "all-reduce-ring": {"name": "all-reduce", "algorithm": "ring"},
    "all-reduce-native": {"name": "all-reduce", "algorithm": "native"},
    "d-psgd": {},
    "gossip": {"probability": 1 / PERIOD},
}
STRATEGIES = {**_SERVER, **_PEERS}
_TOGETHER = ("synchronous", "ssp-blocking", *_PEERS)  # the slowest decides
_PERIODIC = ("agn", "aeasgd", "local-sgd")


def shards_of(strategy: str) -> tuple[int | None, ...]:
    """The numbers of shards that a strategy is measured with; None: it has no server."""
    if strategy in _PEERS:
        return (None,)
    return (1,) if strategy == "backup-workers" else SHARDS


def workers_of(strategy: str) -> tuple[int, ...]:
    """The numbers of workers that a strategy is measured with."""
    alone = strategy not in _PEERS and strategy != "backup-workers"
    return WORKERS if alone else WORKERS[1:]


def grid() -> list[Point]:
    """All points, strategy by strategy."""
    return [
        point(strategy, workers, shards, regime, stragglers)
        for strategy in STRATEGIES
        for workers in workers_of(strategy)
        for shards in shards_of(strategy)
        for regime in REGIMES
        for stragglers in STRAGGLERS
    ]


def point(strategy: str, workers: int, shards: int | None, regime: str, stragglers: str) -> Point:
    """One combination."""
    name = "-".join([strategy, f"w{workers}", *([f"s{shards}"] if shards else []), regime, stragglers])
    time = {"distribution": "gamma", "mean": f"{REGIMES[regime] * 1000:g} ms", "cv": 0.2}
    cluster: dict[str, Any] = {"workers": workers}
    if shards:
        cluster["servers"] = shards
    cluster |= {"network": {"bandwidth": _BANDWIDTH}, "compute": {"time": time}}
    if STRAGGLERS[stragglers]:
        cluster["stragglers"] = STRAGGLERS[stragglers]
    factors: dict[str, Any] = {"strategy": strategy, "workers": workers, "shards": shards}
    factors |= {"regime": regime, "stragglers": stragglers}
    document = {
        "name": name,
        "cluster": cluster,
        "workload": {"parameters": _PARAMETERS},
        "strategy": {"name": strategy, **STRATEGIES[strategy]},
        "stop": _stop(factors),
        "seed": 1,
    }
    return Point(name, "rates", factors, document)


def _stop(factors: Mapping[str, Any]) -> dict[str, Any]:
    """So many updates that a run takes about as long as it should; half as long again at most.

    An estimate is enough: nothing is compared with it.
    """
    strategy, workers, shards = factors["strategy"], factors["workers"], factors["shards"] or 1
    slower = 1.0
    if factors["stragglers"] != "none":
        slower = 2.0 if strategy in _TOGETHER else 1.3
    batches = PERIOD if strategy in _PERIODIC else 1
    cycle_s = batches * slower * REGIMES[factors["regime"]] + (strategy != "gossip") * 2 * _TRANSFER_S
    if strategy in _PEERS:
        updates_per_s = 1 / cycle_s
    else:
        overlaps = strategy not in ("synchronous", "backup-workers")
        full_s = _TRANSFER_S * workers / shards  # of everyone's pushes, or answers, on the servers' links
        round_s = hypot(cycle_s, full_s) if overlaps else cycle_s + 2 * max(0.0, full_s - _TRANSFER_S)
        each = workers if strategy in ("asynchronous", "ssp-blocking", "agn", "aeasgd") else 1
        updates_per_s = each / round_s
    bound = "steps" if strategy == "gossip" else "updates"
    chancy = strategy in ("asynchronous", "soft-sync", "ssp-blocking") and factors["regime"] != "compute"
    length_s = LENGTH_S * (_LONGER if chancy else 1)
    return {bound: max(4, round(length_s * updates_per_s)), "time": f"{1.5 * length_s:g} s"}
