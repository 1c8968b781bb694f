"""The grid: strategies × workers × shards × regimes × stragglers, as scenarios of sizes only.

A push of all parameters takes 32 ms of a link (33.5 with headers), and the mean gradient 20, 80 or 240 ms.
The network is a slow one because the testbed's hosts share one machine's cores: at twice the bandwidth these
would be the bottleneck of twelve workers, which they are not in a cluster.
Each campaign draws a second bandwidth and size at random: nothing can have been fitted to these.
Runs end after a number of updates, so that both engines do the same work and a throughput is not a matter of
what just made it before the end; it is estimated so that a run takes some eight seconds. What is measured is
longer where chance would decide (lengths.py). Gossip has no common updates: there every worker makes a number
of steps.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, hypot, log
from typing import Any, Self

import numpy as np

from lockstep.studies.accuracy_suite.point import Point

PERIOD = 4  # mini-batches between exchanges, of whatever computes several
LENGTH_S = 8.0
_HEADERS = 1.047  # bytes on a cable for each that is sent
_DRAWN_MBIT, _DRAWN_TRANSFER_S = (20.0, 80.0), (0.010, 0.070)  # between these, evenly by their logarithm

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


@dataclass(frozen=True)
class Cables:
    """How fast all cables are, and how many parameters go over them."""

    mbit_per_s: float
    parameters: int

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Self:
        """Some that no campaign had before."""
        mbit_per_s, transfer_s = (
            exp(rng.uniform(log(least), log(most))) for least, most in (_DRAWN_MBIT, _DRAWN_TRANSFER_S)
        )
        mbit_per_s = round(mbit_per_s, 1)
        return cls(mbit_per_s, round(transfer_s * mbit_per_s * 1e6 / 32 / _HEADERS))

    @property
    def transfer_s(self) -> float:
        """What all parameters take over one of them."""
        return 32 * self.parameters / (self.mbit_per_s * 1e6) * _HEADERS

    @property
    def suffix(self) -> str:
        """What the names of points on them end with."""
        return "" if self == USUAL else f"-at-{self.mbit_per_s:g}mbit-{self.parameters}"


USUAL = Cables(50, 50_000)
_CROWDED = Cables(100, 100_000), Cables(100, 60_000)
_CROWDED_BY = ("synchronous", "local-sgd", "all-reduce-ring", "d-psgd", "gossip", "asynchronous")
_SUFFIX = re.compile(r"(?P<name>.+)-at-(?P<mbit_per_s>\d+(\.\d+)?)mbit-(?P<parameters>\d+)")


def shards_of(strategy: str) -> tuple[int | None, ...]:
    """The numbers of shards that a strategy is measured with; None: it has no server."""
    if strategy in _PEERS:
        return (None,)
    return (1,) if strategy == "backup-workers" else SHARDS


def workers_of(strategy: str) -> tuple[int, ...]:
    """The numbers of workers that a strategy is measured with."""
    alone = strategy not in _PEERS and strategy != "backup-workers"
    return WORKERS if alone else WORKERS[1:]


def grid(cables: Cables = USUAL) -> list[Point]:
    """All points, strategy by strategy."""
    return [
        point(strategy, workers, shards, regime, stragglers, cables)
        for strategy in STRATEGIES
        for workers in workers_of(strategy)
        for shards in shards_of(strategy)
        for regime in REGIMES
        for stragglers in STRAGGLERS
    ]


def crowded() -> list[Point]:
    """Twelve hosts on cables so fast that what messages cost this machine's cores decides, too.

    Three runs at least: how far they differ no simulation says beforehand.
    """
    return [
        replace(found, factors={**found.factors, "regime": regime}, runs=3, overruns_expected=True)
        for cables in _CROWDED
        for regime in [f"{cables.parameters:,} parameters"]
        for name in _CROWDED_BY
        for found in [point(name, 12, shards_of(name)[0], "network", "none", cables)]
    ]


def on_drawn_cables(name: str) -> Point | None:
    """The point of a name that says its cables; None if it says none, or names no point."""
    said = _SUFFIX.fullmatch(name)
    if said is None:
        return None
    cables = Cables(float(said["mbit_per_s"]), int(said["parameters"]))
    sound = cables.mbit_per_s > 0 and cables.parameters > 0
    return next((each for each in grid(cables) if each.name == name), None) if sound else None


def point(
    strategy: str, workers: int, shards: int | None, regime: str, stragglers: str, cables: Cables = USUAL
) -> Point:
    """One combination."""
    parts = [strategy, f"w{workers}", *([f"s{shards}"] if shards else []), regime, stragglers]
    name = "-".join(parts) + cables.suffix
    time = {"distribution": "gamma", "mean": f"{REGIMES[regime] * 1000:g} ms", "cv": 0.2}
    cluster: dict[str, Any] = {"workers": workers}
    if shards:
        cluster["servers"] = shards
    cluster |= {"network": {"bandwidth": f"{cables.mbit_per_s:g} Mbit/s"}, "compute": {"time": time}}
    if STRAGGLERS[stragglers]:
        cluster["stragglers"] = STRAGGLERS[stragglers]
    factors: dict[str, Any] = {"strategy": strategy, "workers": workers, "shards": shards}
    factors |= {"regime": regime, "stragglers": stragglers}
    document = {
        "name": name,
        "cluster": cluster,
        "workload": {"parameters": cables.parameters},
        "strategy": {"name": strategy, **STRATEGIES[strategy]},
        "stop": _stop(factors, cables.transfer_s),
        "seed": 1,
    }
    if cables != USUAL:
        factors["regime"] = f"{regime}, drawn cables"
    return Point(name, "rates", factors, document)


def _stop(factors: Mapping[str, Any], transfer_s: float) -> dict[str, Any]:
    """So many updates that a run takes about as long as it should; half as long again at most.

    An estimate is enough: nothing is compared with it.
    """
    strategy, workers, shards = factors["strategy"], factors["workers"], factors["shards"] or 1
    slower = 1.0
    if factors["stragglers"] != "none":
        slower = 2.0 if strategy in _TOGETHER else 1.3
    batches = PERIOD if strategy in _PERIODIC else 1
    cycle_s = batches * slower * REGIMES[factors["regime"]] + (strategy != "gossip") * 2 * transfer_s
    if strategy in _PEERS:
        updates_per_s = 1 / cycle_s
    else:
        overlaps = strategy not in ("synchronous", "backup-workers")
        full_s = transfer_s * workers / shards  # of everyone's pushes, or answers, on the servers' links
        round_s = hypot(cycle_s, full_s) if overlaps else cycle_s + 2 * max(0.0, full_s - transfer_s)
        each = workers if strategy in ("asynchronous", "ssp-blocking", "agn", "aeasgd") else 1
        updates_per_s = each / round_s
    bound = "steps" if strategy == "gossip" else "updates"
    return {bound: max(4, round(LENGTH_S * updates_per_s)), "time": f"{1.5 * LENGTH_S:g} s"}
