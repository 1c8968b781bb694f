"""The points that learn: digits over a slow network, for loss curves and the time to a target."""

from typing import Any

from lockstep.studies.accuracy_suite.grid import PERIOD
from lockstep.studies.accuracy_suite.point import Point

SEEDS = (1, 2, 3, 4, 5)
WORKERS = 4
TARGET_LOSS = 0.5  # held out; chance is 2.3
_STRATEGIES: dict[str, dict[str, Any]] = {
    "synchronous": {"learning_rate": 0.1},
    "asynchronous": {"learning_rate": 0.02},
    "ssp-blocking": {"learning_rate": 0.02},
    "agn": {"learning_rate": 0.05, "communication_window": PERIOD},
    "all-reduce-ring": {"name": "all-reduce", "algorithm": "ring", "learning_rate": 0.05},
    "local-sgd": {"learning_rate": 0.03, "averaging_period": PERIOD},
}


def learning() -> list[Point]:
    """All points, seed by seed: every prefix has all strategies about as often."""
    return [_point(strategy, seed) for seed in SEEDS for strategy in _STRATEGIES]


def _point(strategy: str, seed: int) -> Point:
    name = f"learning-{strategy}-seed{seed}"
    has_server = strategy not in ("all-reduce-ring", "local-sgd")
    cluster: dict[str, Any] = {"workers": WORKERS}
    if has_server:
        cluster["servers"] = 1
    cluster |= {
        "network": {"bandwidth": "20 Mbit/s"},
        "compute": {"time": {"distribution": "gamma", "mean": "20 ms", "cv": 0.2}},
    }
    document = {
        "name": name,
        "cluster": cluster,
        "workload": {"dataset": "digits", "model": "mlp", "batch_size": 32},
        "strategy": {"name": strategy, **_STRATEGIES[strategy]},
        "stop": {"time": "8 s"},
        "seed": seed,
    }
    factors: dict[str, Any] = {"strategy": strategy, "workers": WORKERS, "shards": 1 if has_server else None}
    factors |= {"regime": "learning", "stragglers": "none"}
    return Point(name, "learning", factors, document)
