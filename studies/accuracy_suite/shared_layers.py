"""The points of layers that several devices share, and of workers that share out parameters.

A whole gradient takes 1.92 s on one device, spread as in the grid. Two layers meet four times each for every
micro-batch, over cables that are as slow as between any two devices. What is exchanged takes a tenth of the
computing between two exchanges, or as long as it.
"""

from typing import Any

from lockstep.studies.accuracy_suite.point import Point
from lockstep.studies.accuracy_suite.splits import PART

_GRADIENT_S, _LAYERS, _MICRO_BATCHES, _LENGTH_S = 1.92, 2, 2, 8.0
_BYTES_PER_S = 50e6 / 8
REGIMES = {"compute": 0.1, "network": 1.0}  # what is sent on a cable ÷ what is computed meanwhile or before
SHAPES = (
    (1, 2, 1),
    (1, 4, 1),
    (1, 8, 1),
    (2, 2, 1),
    (2, 2, 2),
    (1, 2, 2),
    (1, 4, 2),
)  # stages, parts, replicas
CUTS: dict[str, tuple[dict[str, Any], tuple[tuple[int, int, int], ...]]] = {
    "cut": ({}, SHAPES),
    "positions": ({"sequence": True}, ((1, 4, 1), (2, 2, 1), (2, 2, 2))),
    "redundant": ({"redundancy": 2}, ((1, 4, 1), (1, 8, 1))),
}
WORKERS = (2, 4, 8)
SHARED: dict[str, dict[str, Any]] = {
    "zero-2": {"name": "fsdp", "zero": 2, "buckets": 4},
    "zero-3": {"name": "fsdp", "units": 4},
    "hsdp": {"name": "hsdp", "units": 4, "group_size": 2},
    "pipe-sgd": {"name": "pipe-sgd"},
}


def shared_layers() -> list[Point]:
    """All points, regime by regime."""
    return [
        point
        for regime in REGIMES
        for point in (
            *(_cut(name, shape, regime) for name, (_, shapes) in CUTS.items() for shape in shapes),
            *(_shared(name, workers, regime) for name in SHARED for workers in WORKERS),
        )
    ]


def _cut(name: str, shape: tuple[int, int, int], regime: str) -> Point:
    stages, places, replicas = shape
    options = CUTS[name][0]
    parts = places // options.get("redundancy", 1)
    exchanges = 4 * _LAYERS * _MICRO_BATCHES / stages  # of a device, for each mini-batch
    sent = REGIMES[regime] * _GRADIENT_S / stages / parts / exchanges * _BYTES_PER_S
    activation = round(sent / (2 * (parts - 1) / parts) * _MICRO_BATCHES / parts) * parts
    split = {"pipeline": stages, "tensor": places, "micro_batches": _MICRO_BATCHES, **options}
    workload = {"parameters": 20_000, "layers": _LAYERS, "activation": f"{activation} B"}
    full_name = f"tensor-{name}-p{stages}-t{places}-d{replicas}-{regime}"
    step_s = _GRADIENT_S / stages / parts * (1 + REGIMES[regime]) * (stages + 1) / 2
    return _point(full_name, name, stages * places * replicas, regime, workload, split, "all-reduce", step_s)


def _shared(name: str, workers: int, regime: str) -> Point:
    parameters = round(REGIMES[regime] * _GRADIENT_S * _BYTES_PER_S / 3 / 4)
    workload = {"parameters": parameters, "layers": 4}
    full_name = f"tensor-{name}-d{workers}-{regime}"
    step_s = _GRADIENT_S * (1 + REGIMES[regime])
    return _point(full_name, name, workers, regime, workload, {}, SHARED[name], step_s)


def _point(
    name: str,
    kind: str,
    workers: int,
    regime: str,
    workload: dict[str, Any],
    split: dict[str, Any],
    strategy: Any,
    step_s: float,
) -> Point:
    time = {"distribution": "gamma", "mean": f"{_GRADIENT_S * 1000:g} ms", "cv": 0.2}
    document = {
        "name": name,
        "cluster": {"workers": workers, "network": {"bandwidth": "50 Mbit/s"}, "compute": {"time": time}},
        "workload": {"batch_size": 32, **workload},
        "parallelism": split,
        "strategy": strategy,
        "stop": {"steps": max(5, round(_LENGTH_S / step_s))},
        "seed": 1,
    }
    factors: dict[str, Any] = {"strategy": kind, "workers": workers, "shards": None}
    return Point(name, PART, factors | {"regime": regime, "stragglers": "none"}, document)
