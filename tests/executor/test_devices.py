"""Which device a worker computes on; and, where there is a GPU, that it does."""

import numpy as np
import pytest
import torch

import lockstep
from lockstep.executor.devices import Place, choose
from tests.support.scenarios import scenario

GPUS = torch.cuda.device_count()


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([0, 0], [("cpu", "gloo")] * 2),
        ([2, 2], [("cuda:0", "nccl"), ("cuda:1", "nccl")]),
        ([1, 1, 1], [("cuda:0", "gloo")] * 3),  # three share one: NCCL wants one each
        ([2, 2, 2], [("cuda:0", "gloo"), ("cuda:1", "gloo"), ("cuda:0", "gloo")]),
    ],
)
def test_workers_of_one_host(gpus: list[int], expected: list[tuple[str, str]]) -> None:
    places = [Place("host", count) for count in gpus]
    assert [choose(places, worker) for worker in range(len(places))] == expected


def test_gpus_are_counted_host_by_host() -> None:
    places = [Place("a", 2), Place("b", 1), Place("a", 2)]
    assert [choose(places, worker) for worker in range(3)] == [
        ("cuda:0", "nccl"),
        ("cuda:0", "nccl"),
        ("cuda:1", "nccl"),
    ]
    assert choose([Place("a", 1), Place("b", 0)], 1) == ("cpu", "gloo")


def gpu_run(strategy: dict[str, object], workers: int):
    return scenario(
        cluster__workers=workers, strategy={"learning_rate": 0.1, **strategy}, stop={"steps": 4},
        workload={"dataset": "digits", "model": "mlp", "batch_size": 16},
    )  # fmt: skip


@pytest.mark.skipif(GPUS < 1, reason="no GPU on this machine")
@pytest.mark.parametrize("name", ["synchronous", "asynchronous", "downpour", "all-reduce"])
def test_workers_share_a_gpu(name: str) -> None:
    result = lockstep.run(gpu_run({"name": name}, workers=2 * GPUS))
    assert result.metrics["samples"] == 2 * GPUS * 4 * 16


@pytest.mark.skipif(GPUS < 1, reason="no GPU on this machine")
def test_a_gpu_and_the_simulator_agree() -> None:
    config = gpu_run({"name": "synchronous"}, workers=2)
    predicted, measured = lockstep.simulate(config), lockstep.run(config)
    assert np.allclose(predicted.parameters, measured.parameters, atol=1e-4)


@pytest.mark.skipif(GPUS < 2, reason="NCCL wants a GPU per worker, and here are fewer than two")
def test_nccl_all_reduce() -> None:
    config = gpu_run({"name": "all-reduce", "algorithm": "native"}, workers=2)
    predicted, measured = lockstep.simulate(config), lockstep.run(config)
    assert np.allclose(predicted.parameters, measured.parameters, atol=1e-4)
