"""Small networks that are split, and how far the parameters that they come to are apart."""

from typing import Any

import numpy as np

import lockstep
from lockstep import Scenario

TRANSFORMER = {
    **{"model": "transformer", "dataset": "sentences", "layers": 2, "hidden": 32, "heads": 4},
    **{"sequence": 16, "batch_size": 8},
}


def job(
    replicas: int,
    model: str = "mlp",
    steps: int = 50,
    strategy: Any = "all-reduce",
    workload: dict[str, Any] | None = None,
    precision: str = "float32",
    **split: Any,
) -> Scenario:
    """A small network in two micro-batches, unless the split says otherwise."""
    split = {"micro_batches": 2} | split
    devices = split.get("tensor", 1) * split.get("pipeline", 1)
    digits = {"dataset": "digits", "model": model, "batch_size": 16}
    learned = TRANSFORMER if model == "transformer" else digits
    document = {
        "name": "test",
        "cluster": {
            "workers": replicas * devices,
            "compute": {"time": {"distribution": "constant", "value": "100 ms"}},
        },
        "workload": workload or learned | {"precision": precision},
        "parallelism": split,
        "strategy": strategy,
        "stop": {"steps": steps},
        "seed": 3,
    }
    return Scenario.model_validate(document)


def parameters(scenario: Scenario) -> np.ndarray:
    found = lockstep.simulate(scenario).parameters
    assert found is not None
    return found


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference, relative to the largest parameter."""
    assert one.shape == other.shape
    return float(np.abs(one - other).max() / np.abs(other).max())
