"""Small jobs whose model is split."""

from typing import Any

from lockstep import Scenario

DETERMINISTIC: list[Any] = [
    "all-reduce",
    "synchronous",
    {"name": "synchronous", "chunks": 3, "codec": "1-bit"},
    # Adam divides by small numbers: sums in another order would be seen
    {"name": "all-reduce", "algorithm": "parameter-server", "optimizer": "adam", "learning_rate": 0.01},
    {"name": "all-reduce", "buckets": 3},
    {"name": "model-averaging", "averaging_period": 2},
    {"name": "bmuf", "averaging_period": 2, "block_nesterov": True},
    {"name": "local-sgd", "averaging_period": 2, "momentum": 0.9},
    "d-psgd",
    "sgp",
    {"name": "fedavg", "participation": 0.5},
]
"""Strategies whose numbers do not depend on who is first."""


def pipeline(
    replicas: int,
    strategy: Any = "all-reduce",
    *,
    steps: int = 4,
    model: str = "cnn",
    precision: str = "float32",
    **parallelism: Any,
) -> Scenario:
    """A small network learns the digits: constant 100 ms a gradient, mini-batches of 16."""
    devices = parallelism.get("pipeline", 1)
    document = {
        "name": "test",
        "cluster": {
            "workers": replicas * devices,
            "compute": {"time": {"distribution": "constant", "value": "100 ms"}},
        },
        "workload": {"dataset": "digits", "model": model, "batch_size": 16, "precision": precision},
        "parallelism": parallelism,
        "strategy": strategy,
        "stop": {"steps": steps},
        "seed": 3,
    }
    return Scenario.model_validate(document)


def sized(workers: int, strategy: Any = "all-reduce", **changes: Any) -> Scenario:
    """Sizes only, exponential times and a network, unless `changes` of sections say otherwise."""
    document: dict[str, Any] = {
        "name": "test",
        "cluster": {
            "workers": workers,
            "network": {"bandwidth": "100 Mbit/s", "latency": "1 ms"},
            "compute": {"time": {"distribution": "exponential", "mean": "100 ms"}},
        },
        "workload": {"parameters": 20_000, "batch_size": 8, "activation": "40 kB"},
        "parallelism": {"pipeline": 2, "micro_batches": 4},
        "strategy": strategy,
        "stop": {"steps": 6},
        "seed": 3,
    }
    for key, value in changes.items():
        merges = isinstance(value, dict) and key in ("cluster", "workload")
        document[key] = document[key] | value if merges else value
    return Scenario.model_validate(document)
