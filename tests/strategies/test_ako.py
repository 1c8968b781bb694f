"""Partial gradient exchange: everyone ends with everything, whatever the number of partitions."""

from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.strategies.owners import OneModelEach
from tests.support.scenarios import scenario

GAMMA = {"time": {"distribution": "gamma", "mean": "10 ms", "cv": 0.3}}
MLP = {"dataset": "digits", "model": "mlp", "batch_size": 16}


def config(strategy: Any, **changes: Any) -> lockstep.Scenario:
    usual = {"cluster__compute": GAMMA, "cluster__network": {"bandwidth": "20 MB/s"}, "workload": MLP}
    return scenario(strategy=strategy, **{**usual, **changes})


def models(partitions: int, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """All workers' parameters in the end."""
    seen: list[np.ndarray] = []

    def spy(self: OneModelEach, parts: Any, concatenate: Any) -> Any:
        seen[:] = [part.numpy() for part in parts]
        return together(self, parts, concatenate)

    together = OneModelEach.together
    monkeypatch.setattr(OneModelEach, "together", spy)
    lockstep.simulate(config({"name": "ako", "partitions": partitions}, cluster__workers=3))
    return seen


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_models_end_alike(partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All add the same steps, in another order."""
    first, *others = models(partitions, monkeypatch)
    assert len(others) == 2
    for other in others:
        assert other == pytest.approx(first, abs=1e-6)


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_a_worker_sends_one_part_to_each_other(partitions: int) -> None:
    """(n − 1)·M/p bytes a mini-batch; what had not been sent in the end, at most p − 1 parts to each."""
    n, steps, size = 3, 40, 4000
    run = lockstep.simulate(
        config(
            {"name": "ako", "partitions": partitions}, cluster__workers=n, stop={"steps": steps},
            workload={"parameters": size // 4},
        )
    )  # fmt: skip
    sent = run.metrics["bytes_sent"] / n / (n - 1) / (size / partitions)
    assert steps <= sent <= steps + partitions - 1


def test_nothing_is_counted_twice() -> None:
    """Each worker's mini-batches come to itself and, in the parts, to the others."""
    run = lockstep.simulate(config({"name": "ako", "partitions": 2}))
    assert run.metrics["samples"] == 4 * 5 * 16


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_one_worker_by_itself_has_its_own_steps(optimizer: str) -> None:
    found = [
        lockstep.simulate(config({"name": name, "optimizer": optimizer}, cluster__workers=1)).parameters
        for name in ("ako", "all-reduce")
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-7)


@pytest.mark.real
def test_real_models_end_alike_too() -> None:
    """Whose mean, then, is that of a simulation: the steps differ, as gradients are of other models."""
    job = config({"name": "ako", "partitions": 3}, stop={"steps": 30}, cluster__workers=2)
    predicted, measured = lockstep.simulate(job), lockstep.run(job)
    assert predicted.metrics["bytes_sent"] == pytest.approx(measured.metrics["bytes_sent"], rel=0.1)
    assert measured.metrics["loss"] < 2.0
