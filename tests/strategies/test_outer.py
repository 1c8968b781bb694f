"""Gradients of fully connected layers as outer products, which servers multiply out."""

from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep import ScenarioError
from lockstep.strategies.codecs import Codec
from lockstep.strategies.outer import Matrix, pieces
from tests.support.scenarios import scenario

BATCH = 8
MLP = {"dataset": "digits", "model": "mlp", "batch_size": BATCH}  # 64 → 64 → 10


def config(codec: str = "outer", **changes: Any) -> lockstep.Scenario:
    strategy = {"name": "synchronous", "learning_rate": 0.2, "codec": codec, **changes.pop("strategy", {})}
    usual: dict[str, Any] = {
        "workload": MLP,
        "cluster__network": {"bandwidth": "20 MB/s"},
        "stop": {"steps": 20},
    }
    return scenario(strategy=strategy, **{**usual, **changes})


def pushed(result: lockstep.Result) -> set[int]:
    records = result.records
    return {*records.loc[(records["event"] == "message") & (records["kind"] == "push"), "nbytes"]}


def test_a_push_has_two_thin_matrices() -> None:
    """K·(M + N) of 64 × 64 with 8 samples; of 10 × 64 592 numbers are fewer than 640; and both biases."""
    result = lockstep.simulate(config())
    assert pushed(result) == {4 * (8 * (64 + 64) + 64 + 8 * (10 + 64) + 10)}
    assert pushed(lockstep.simulate(config(workload=MLP | {"learning": False}))) == pushed(result)


@pytest.mark.parametrize("name", ["synchronous", "asynchronous"])
def test_the_product_is_the_gradient(name: str) -> None:
    """To rounding, whose differences do not grow much in twenty steps."""
    compute = {"time": {"distribution": "gamma", "mean": "10 ms", "cv": 0.3}}
    network: dict[str, Any] = {}
    found, plain = (
        lockstep.simulate(
            config(codec, strategy={"name": name}, cluster__network=network, cluster__compute=compute)
        )
        for codec in ("outer", "none")
    )
    assert found.parameters == pytest.approx(plain.parameters, abs=2e-5)
    assert found.metrics["bytes_sent"] < 0.75 * plain.metrics["bytes_sent"]


def test_what_would_not_be_smaller_is_sent_as_it_is() -> None:
    found, plain = (
        lockstep.simulate(config(codec, workload=MLP | {"batch_size": 32})) for codec in ("outer", "none")
    )
    assert np.array_equal(found.parameters, plain.parameters)
    assert pushed(found) == pushed(plain)


def test_a_matrix_on_two_servers_is_sent_as_it_is() -> None:
    """Even shards cut the first one; whole variables keep it."""
    one = Matrix(slice(2, 102), 10, 10, 1)
    assert [*pieces([one], (slice(0, 110),))] == [
        (2, Codec("none")), (100, Codec("outer", rank=1, columns=10)), (8, Codec("none"))
    ]  # fmt: skip
    assert [*pieces([one], (slice(0, 50),))] == [(50, Codec("none"))]
    even = lockstep.simulate(config(cluster__servers=2))
    whole = lockstep.simulate(config(cluster__servers={"count": 2, "placement": "by-variable"}))
    assert whole.metrics["bytes_sent"] < even.metrics["bytes_sent"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"workload": {"problem": "quadratic"}}, "outer needs workload.model"),
        ({"strategy": {"name": "agn"}}, "outer needs a worker loop that is answered after every gradient"),
        ({"parallelism": {"tensor": 2}}, "outer needs a model that is not split"),
    ],
)
def test_refusals(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        lockstep.simulate(config(**changes))


@pytest.mark.real
def test_real_servers_multiply_too() -> None:
    job = config(stop={"steps": 10}, cluster__workers=2)
    predicted, measured = lockstep.simulate(job), lockstep.run(job)
    assert np.array_equal(predicted.parameters, measured.parameters)
    assert predicted.metrics["bytes_sent"] == measured.metrics["bytes_sent"]
