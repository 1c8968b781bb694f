"""The points of split models: every order, and pipelines without a flush, at several sizes of a pipeline.

A whole gradient takes 960 ms on one device, spread as in the grid; a replica of P stages computes it in
passes. Between two stages a micro-batch is under way for a tenth of its forward pass, or longer than it.
"""

from typing import Any

from lockstep.studies.accuracy_suite.point import Point

PART = "pipelines"
SHAPES = ((2, 1), (4, 1), (4, 2), (8, 1))  # stages and replicas; two devices alone calibrate
LENGTH_S = 6.0
_GRADIENT_S, _MICRO_BATCHES, _PARAMETERS = 0.960, 8, 50_000
_BYTES_PER_S = 50e6 / 8
REGIMES = {"compute": 0.1, "network": 1.2}  # what a message takes on a cable ÷ the forward pass before it
ORDERS: dict[str, dict[str, Any]] = {
    "gpipe": {"order": "gpipe"},
    "1f1b": {"order": "1f1b"},
    "interleaved": {"order": "interleaved", "chunks": 2},
    "zero-bubble": {"order": "zero-bubble"},
}
STRATEGIES = ("pipedream", "pipedream-2bw")


def pipelines() -> list[Point]:
    """All points, shape by shape: every prefix has all orders about as often."""
    return [
        _point(order, stages, replicas, regime)
        for regime in REGIMES
        for stages, replicas in SHAPES
        for order in (*ORDERS, *STRATEGIES)
    ]


def _point(order: str, stages: int, replicas: int, regime: str) -> Point:
    name, workers = f"pipelines-{order}-p{stages}-d{replicas}-{regime}", stages * replicas
    micro_batches = 1 if order == "pipedream" else _MICRO_BATCHES  # its mini-batches are what fills it
    forward_s = _GRADIENT_S / 3 / stages / micro_batches
    chunks = ORDERS.get(order, {}).get("chunks", 1)
    activation = round(REGIMES[regime] * forward_s / chunks * _BYTES_PER_S) * micro_batches
    parallelism = {"pipeline": stages, "micro_batches": micro_batches, **ORDERS.get(order, {})}
    time = {"distribution": "gamma", "mean": f"{_GRADIENT_S * 1000:g} ms", "cv": 0.2}
    document = {
        "name": name,
        "cluster": {"workers": workers, "network": {"bandwidth": "50 Mbit/s"}, "compute": {"time": time}},
        "workload": {
            "parameters": _PARAMETERS,
            "batch_size": 32,
            "layers": 2 * max(stages for stages, _ in SHAPES),
            "activation": f"{activation} B",
        },
        "parallelism": parallelism,
        "strategy": {"name": order if order in STRATEGIES else "all-reduce"},
        "stop": {"steps": _steps(order, stages)},
        "seed": 1,
    }
    factors: dict[str, Any] = {"strategy": order, "workers": workers, "shards": None}
    return Point(name, PART, factors | {"regime": regime, "stragglers": "none"}, document)


def _steps(order: str, stages: int) -> int:
    """Of each replica, so that a run takes about as long as it should."""
    full = order in STRATEGIES
    step_s = _GRADIENT_S / stages * (1.0 if full else (_MICRO_BATCHES + stages - 1) / _MICRO_BATCHES)
    return max(8, round(LENGTH_S / step_s))
