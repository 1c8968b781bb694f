"""The job of a row of rows.py, and whether a run of it keeps what the row promises."""

import numpy as np
import pytest

from lockstep import Result, Scenario
from lockstep.strategies import STRATEGIES
from lockstep.strategies.owners import OneModelEach
from tests.contract.rows import Row
from tests.support.scenarios import scenario

WORKERS, STEPS, RATE = 2, 8, 0.2
PARAMETERS = 4_160 + 650  # of the mlp on 8 × 8 images, layer by layer


def learning(row: Row, workers: int = WORKERS) -> Scenario:
    return scenario(
        cluster__workers=workers,
        cluster__servers=row.servers,
        cluster__compute={"time": {"distribution": "lognormal", "mean": "8 ms", "cv": 0.3}},
        workload={"dataset": "digits", "model": "mlp", "batch_size": 16},
        strategy={"learning_rate": RATE, **row.strategy},
        stop={"steps": STEPS},
    )


def check_promises(row: Row, result: Result) -> None:
    metrics, records = result.metrics, result.records
    assert metrics["updates"] > 0 if row.updates is None else metrics["updates"] == row.updates
    assert row.drops or metrics["samples"] == WORKERS * STEPS * 16
    assert row.drops or metrics["dropped"] == 0
    steps = records[records["event"] == "gradient"].groupby("node")["version"].apply(list)
    made = dict.fromkeys(range(WORKERS), STEPS) if row.even else steps.map(len).to_dict()
    assert steps.to_dict() == {worker: list(range(count)) for worker, count in made.items()}
    assert sum(made.values()) == WORKERS * STEPS
    updates = records[records["event"] == "update"]
    if STRATEGIES[row.strategy["name"]].owners is not OneModelEach:  # those may come from who is ahead
        assert (updates["staleness"] >= 0).all()
    if row.deterministic:
        assert updates["staleness"].max() == row.age
    assert (records["end"] >= records["start"]).all()
    assert np.isfinite(metrics["loss"])
    assert 0 <= metrics["accuracy"] <= 1
    assert sum(metrics["breakdown"].values()) == pytest.approx(1)
    assert result.curve["version"].is_monotonic_increasing
    assert result.parameters.shape == (PARAMETERS,)
