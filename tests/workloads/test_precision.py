"""Passes in 16 bits (`workload.precision`), of users' models and of those that ship."""

from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lockstep
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import made
from lockstep.workloads import build
from lockstep.workloads.segments import Micro, segments
from tests.support.nightly import drawn
from tests.support.scenarios import ENGINES
from tests.support.tasks import DIGITS, MINE, SHIPPED, document, simulated, task, written


@cache
def in_full(micro_batches: int) -> lockstep.Result:
    """Three epochs of the digits in float32; those of the task of equal content are the same."""
    strategy = {"name": "all-reduce", "learning_rate": 0.2}
    return simulated(
        SHIPPED, stop={"epochs": 3}, strategy=strategy, parallelism={"micro_batches": micro_batches}
    )


@pytest.mark.parametrize("parallelism", [{}, {"micro_batches": 2}], ids=str)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_learns_the_digits(folder: Path, precision: str, parallelism: dict[str, Any]) -> None:
    """To within 2% of the accuracy in float32."""
    written(folder, DIGITS)
    strategy = {"name": "all-reduce", "learning_rate": 0.2}
    run = {"stop": {"epochs": 3}, "strategy": strategy, "parallelism": parallelism}
    mixed = simulated(MINE | {"precision": precision}, **run)
    full = in_full(parallelism.get("micro_batches", 1))
    assert full.metrics["accuracy"] > 0.85
    assert mixed.metrics["accuracy"] > full.metrics["accuracy"] - 0.02
    shipped = simulated(SHIPPED | {"precision": precision}, **run)
    assert np.array_equal(shipped.parameters, mixed.parameters)


@pytest.mark.parametrize(
    ("engine", "parallelism"),
    [
        *product(["simulator"], [{}, {"micro_batches": 4}]),
        *drawn([("executor", {}), ("executor", {"micro_batches": 4})], 2),
    ],
    ids=str,
)
def test_bf16_learns_the_digits_that_ship(engine: str, parallelism: dict[str, Any]) -> None:
    strategy = {"name": "all-reduce", "learning_rate": 0.2}
    run = {"stop": {"epochs": 3}, "strategy": strategy, "parallelism": parallelism}
    mixed = ENGINES[engine](made(document(workload=SHIPPED | {"precision": "bf16"}, **run)))
    full = in_full(parallelism.get("micro_batches", 1))
    assert mixed.metrics["accuracy"] > 0.85
    assert not np.array_equal(mixed.parameters, full.parameters)


def test_the_transformer_that_ships_has_a_precision_where_it_learns() -> None:
    small = {"model": "transformer", "hidden": 8, "heads": 2, "layers": 1, "sequence": 8, "batch_size": 4}
    found = {
        kind: simulated(small | {"dataset": "sentences", "precision": kind}, stop={"steps": 2}).parameters
        for kind in ("float32", "bf16")
    }
    assert not np.array_equal(found["float32"], found["bf16"])
    assert np.allclose(found["float32"], found["bf16"], atol=1e-2)
    with pytest.raises(ScenarioError, match=r"precision: must be float32 without a dataset"):
        simulated(small | {"vocabulary": 20, "precision": "bf16"})


def test_a_gradient_in_bf16_is_autocasts(folder: Path) -> None:
    written(folder, DIGITS)
    learner = build(made(document(workload=MINE | {"precision": "bf16"})).workload, 1, 0)
    found, (x, y) = learner.gradient(learner.initial(), 0, 0), learner.batch(0, 0)
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(learner.module(x), y)
    expected = torch.autograd.grad(loss, list(learner.module.parameters()))
    assert found.dtype == torch.float32
    assert found.equal(torch.cat([each.flatten() for each in expected]))


RESIDUAL = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())

    def forward(self, x):
        return x + self.inside(x)
"""


def test_in_bf16_a_model_has_the_same_bits_wherever_it_is_cut(folder: Path) -> None:
    """A block adds errors of 16 bits up, in 16 bits. Synchronised batches of one replica are local ones."""
    blocks = "nn.Linear(2, 8), Block(), Block(), Block(), nn.Linear(8, 2)"
    written(folder, task(f"nn.Sequential({blocks})", more=RESIDUAL))

    def learned(batch_norm: str, workers: int = 2, **split: Any) -> Any:
        work = {"task": "my_task:f", "batch_size": 8, "precision": "bf16", "batch_norm": batch_norm}
        compute = {"time": {"distribution": "constant", "value": "2 ms"}}
        cluster = {"workers": workers, "network": {}, "compute": compute}
        strategy = {"name": "all-reduce", "learning_rate": 0.1}
        split = {"micro_batches": 2} | split
        return simulated(work, cluster=cluster, strategy=strategy, parallelism=split).parameters

    for batch_norm in ("local", "synchronised"):
        whole = learned(batch_norm)
        for split in ({"pipeline": 2}, {"pipeline": 5}, {"pipeline": 5, "recompute": True}):
            assert np.array_equal(learned(batch_norm, 2 * split["pipeline"], **split), whole)
    assert np.allclose(learned("synchronised", 1), learned("local", 1), atol=2e-2)


def test_what_vanishes_in_float16_is_scaled_and_what_overflows_is_less(folder: Path) -> None:
    """Gradients of 1e-8 would be 0 in float16, of which the least is 6e-8; the largest is 65504."""
    for size in (1e-7, 1e3):
        loss = f"lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1]) * {size}"
        written(folder, task("nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))", loss=loss))
        learners = (
            build(
                made(document(workload={"task": "my_task:f", "batch_size": 8, "precision": kind})).workload,
                1,
                0,
            )
            for kind in ("fp16", "float32")
        )
        near, exact = learners
        expected = exact.gradient(exact.initial(), 0, 0)
        assert (near.gradient(near.initial(), 0, 0) - expected).norm() < 0.01 * expected.norm()
        (stage,) = segments(near, (0, 2), 2)
        found = torch.zeros_like(expected)
        for micro in (Micro(0, 0, 0), Micro(0, 0, 1)):
            stage.forward(near.initial(), micro)
            found += stage.backward(micro)[1]
            assert stage.kept(micro) == 0
        assert (found - expected).norm() < 0.01 * expected.norm()


@pytest.mark.parametrize(
    ("parallelism", "more"),
    [
        ({"pipeline": 2}, {}),
        ({"tensor": 2}, {}),
        ({"micro_batches": 2, "order": "zero-bubble"}, {}),
        ({}, {"strategy": {"name": "fsdp", "units": 2}}),
    ],
    ids=str,
)
def test_what_overflows_in_one_part_alone_is_refused(
    folder: Path, parallelism: dict[str, Any], more: dict[str, Any]
) -> None:
    written(folder, DIGITS)
    with pytest.raises(ScenarioError, match="must be float32 or bf16 where a pass back is made in parts"):
        simulated(MINE | {"precision": "fp16"}, parallelism=parallelism, **more)
