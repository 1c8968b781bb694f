"""One row per strategy, run in both engines: what a strategy promises, whatever it does.

Add a strategy, add a row.

deterministic  The run's numbers do not depend on who is first: both engines end with the same parameters.
is_sgd         And these are those of plain SGD on the mini-batches of all workers together.
is_sgd_alone   One worker by itself does plain SGD.
updates        How many updates each shard (or, without servers, each worker) makes here; None: it depends.
drops          Gradients may be given up or thrown away.
same_bytes     How many messages there are does not depend on who is first.
age            How stale its gradients are at most, if it is deterministic.
even           Every worker makes as many mini-batches; else they are a budget of all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ENGINES, scenario

import lockstep
from lockstep import Result, Scenario
from lockstep.strategies import STRATEGIES
from lockstep.strategies.owners import OneModelEach
from lockstep.workloads import build, deterministic_threads


@dataclass(frozen=True)
class Row:
    strategy: dict[str, Any]
    deterministic: bool
    is_sgd: bool = True
    is_sgd_alone: bool = True
    servers: int = 2
    updates: int | None = 8  # of each shard, or rounds, with 2 workers and 8 mini-batches each
    drops: bool = False
    same_bytes: bool = True
    age: int = 0
    even: bool = True

    def __str__(self) -> str:
        return "-".join(str(value) for value in self.strategy.values())


ROWS = [
    Row({"name": "synchronous"}, deterministic=True),
    Row({"name": "synchronous", "momentum": 0.9}, deterministic=True),
    Row({"name": "synchronous", "chunks": 3}, deterministic=True),
    Row({"name": "synchronous", "codec": "top-k", "codec_ratio": 1.0}, deterministic=True),
    Row({"name": "synchronous", "codec": "1-bit", "chunks": 3}, True, is_sgd=False, is_sgd_alone=False),
    Row(
        {"name": "synchronous", "codec": "1-bit", "answer_codec": "int8", "chunks": 3},
        True,
        is_sgd=False,
        is_sgd_alone=False,
    ),
    Row(
        {"name": "backup-workers", "backups": 1},
        False,
        servers=1,
        is_sgd_alone=False,
        updates=None,
        drops=True,
    ),
    Row({"name": "backup-workers", "backups": 0}, deterministic=True, servers=1),
    Row({"name": "k-sync", "k": 1}, deterministic=False, updates=None, drops=True),
    Row({"name": "k-sync", "k": 2}, deterministic=True, is_sgd_alone=False),
    Row({"name": "k-batch-sync", "k": 2}, deterministic=False, is_sgd_alone=False, updates=None, drops=True),
    Row({"name": "model-averaging", "averaging_period": 1}, deterministic=True),
    Row({"name": "model-averaging", "averaging_period": 3}, deterministic=True, is_sgd=False, updates=3),
    Row(
        {"name": "model-averaging", "averaging_period": 3, "momentum": 0.9, "optimizer_state": "average"},
        deterministic=True,
        is_sgd=False,
        updates=3,
    ),
    Row({"name": "easgd", "communication_window": 3}, True, is_sgd=False, is_sgd_alone=False, updates=3),
    Row({"name": "bmuf", "averaging_period": 3}, deterministic=True, is_sgd=False, updates=3),
    Row({"name": "bmuf", "averaging_period": 3, "block_nesterov": True}, True, is_sgd=False, updates=3),
    Row({"name": "fedavg", "local_epochs": 1}, True, is_sgd=False, servers=1, updates=1),
    Row({"name": "fedavg", "participation": 0.5}, True, is_sgd=False, servers=1, updates=1, even=False),
    Row({"name": "fedprox", "mu": 1.0}, True, is_sgd=False, is_sgd_alone=False, servers=1, updates=1),
    Row({"name": "asynchronous"}, deterministic=False, updates=16),
    Row({"name": "asynchronous", "warm_start": 3}, deterministic=False, updates=16),
    Row({"name": "staleness-aware"}, deterministic=False, updates=16),
    Row({"name": "dc-asgd"}, deterministic=False, updates=16),
    Row({"name": "dc-asgd", "adaptive_compensation": True}, deterministic=False, updates=16),
    Row({"name": "k-async", "k": 1}, deterministic=False, servers=1, updates=16),
    Row({"name": "k-async", "k": 2}, deterministic=True, is_sgd_alone=False, servers=1),
    Row({"name": "k-batch-async", "k": 2}, deterministic=False, is_sgd_alone=False),
    Row({"name": "soft-sync", "n": 1}, deterministic=False),
    Row({"name": "soft-sync", "n": 2}, deterministic=False, is_sgd_alone=False, updates=16),
    Row({"name": "ssp", "bound": 2}, deterministic=False, updates=16),
    Row({"name": "ssp", "bound": 2, "prefetch": False}, deterministic=False, updates=16, same_bytes=False),
    Row({"name": "ssp", "codec": "1-bit", "answer_codec": "1-bit"}, False, is_sgd_alone=False, updates=16),
    Row({"name": "ssp-blocking", "bound": 2}, deterministic=False, updates=16),
    Row({"name": "ssp-blocking", "rule": "dc-asgd", "codec": "1-bit"}, False, is_sgd_alone=False, updates=16),
    Row({"name": "bounded-delay", "bound": 0}, deterministic=False, updates=16),
    Row({"name": "bounded-delay", "bound": 2}, deterministic=False, is_sgd_alone=False, updates=16),
    Row({"name": "downpour"}, False, is_sgd_alone=False, updates=16, same_bytes=False),
    Row(
        {"name": "downpour", "communication_window": 3},
        False,
        is_sgd_alone=False,
        updates=6,
        same_bytes=False,
    ),
    Row({"name": "downpour-blocking", "communication_window": 3}, deterministic=False, updates=6),
    Row(
        {"name": "downpour-blocking", "push_period": 2, "fetch_period": 3},
        False,
        is_sgd_alone=False,
        updates=8,
    ),
    Row({"name": "agn", "communication_window": 1}, deterministic=False, updates=16),
    Row({"name": "agn", "communication_window": 3}, deterministic=False, is_sgd_alone=False, updates=6),
    Row({"name": "adag", "communication_window": 4}, False, is_sgd_alone=False, updates=4),
    Row({"name": "adag-distance", "communication_window": 3}, deterministic=False, updates=6),
    Row({"name": "dynsgd", "communication_window": 3}, deterministic=False, updates=6),
    Row({"name": "aeasgd", "communication_window": 3}, False, is_sgd_alone=False, updates=6),
    Row({"name": "eamsgd", "communication_window": 3}, False, is_sgd_alone=False, updates=6),
    Row({"name": "all-reduce", "algorithm": "ring"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "halving-doubling"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "recursive-doubling"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "binomial"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "two-level"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "parameter-server"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "auto"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "native"}, deterministic=True),
    Row({"name": "all-reduce", "momentum": 0.9}, deterministic=True),
    Row({"name": "all-reduce", "codec": "top-k", "codec_ratio": 1.0}, deterministic=True),
    Row({"name": "all-reduce", "codec": "1-bit", "buckets": 3}, True, is_sgd=False, is_sgd_alone=False),
    Row({"name": "all-reduce", "codec": "fp16", "buckets": 3}, True, is_sgd=False, is_sgd_alone=False),
    Row({"name": "all-reduce", "codec": "bf16", "algorithm": "halving-doubling"}, True, False, False),
    Row({"name": "all-reduce", "codec": "fp16", "algorithm": "native"}, True, False, False),
    Row({"name": "all-reduce", "codec": "bf16", "algorithm": "native"}, True, False, False),
    Row({"name": "local-sgd", "averaging_period": 1}, deterministic=True),
    Row({"name": "local-sgd", "averaging_period": 3}, deterministic=True, is_sgd=False, updates=3),
    Row(
        {"name": "local-sgd", "averaging_period": 3, "momentum": 0.9, "optimizer_state": "average"},
        deterministic=True,
        is_sgd=False,
        updates=3,
    ),
    Row({"name": "post-local-sgd", "averaging_period": 3, "switch_step": 2}, True, is_sgd=False, updates=4),
    Row({"name": "adacomm", "averaging_period": 3}, deterministic=True, is_sgd=False, updates=3),
    Row({"name": "diloco", "averaging_period": 3}, True, is_sgd=False, is_sgd_alone=False, updates=3),
    Row({"name": "post-local-sgd", "switch_step": 9, "buckets": 3, "momentum": 0.9}, deterministic=True),
    Row({"name": "all-reduce", "buckets": 3}, deterministic=True),
    Row({"name": "hogwild"}, deterministic=False, updates=16),
    Row({"name": "hogwild", "momentum": 0.9}, deterministic=False, updates=16),
    Row({"name": "d-psgd", "graph": "ring"}, deterministic=True, is_sgd=False),
    Row({"name": "d-psgd", "graph": "complete", "momentum": 0.9}, deterministic=True, is_sgd=False),
    Row({"name": "d-psgd", "graph": [[0, 1]]}, deterministic=True, is_sgd=False, is_sgd_alone=False),
    Row({"name": "sgp", "graph": "torus"}, deterministic=True, is_sgd=False),
    Row({"name": "sgp"}, deterministic=True, is_sgd=False),
    Row({"name": "sgp", "momentum": 0.9}, deterministic=True, is_sgd=False),
    Row({"name": "ad-psgd", "graph": "ring"}, deterministic=False),
    Row({"name": "gossip", "probability": 0.5}, deterministic=False),
]
WORKERS, STEPS, RATE = 2, 8, 0.2
PARAMETERS = 320 + 18_496 + 32_896 + 2_580 + 210  # of the cnn on 8 × 8 images, layer by layer


def learning(row: Row, workers: int = WORKERS) -> Scenario:
    return scenario(
        cluster__workers=workers,
        cluster__servers=row.servers,
        cluster__compute={"time": {"distribution": "lognormal", "mean": "8 ms", "cv": 0.3}},
        workload={"dataset": "digits", "model": "cnn", "batch_size": 16},
        strategy={"learning_rate": RATE, **row.strategy},
        stop={"steps": STEPS},
    )


def serial_sgd(config: Scenario) -> np.ndarray:
    """Plain SGD in one process, written with torch's own optimizer, on the mini-batches of all workers."""
    workers = config.cluster.workers
    values = {"momentum": 0.0, **config.strategy.parameters}
    with deterministic_threads():
        learner = build(config.workload, workers, config.seed)
        parameters = torch.nn.Parameter(learner.initial())
        optimizer = torch.optim.SGD([parameters], lr=values["learning_rate"], momentum=values["momentum"])
        for step in range(config.stop.steps or 0):
            gradients = [learner.gradient(parameters.data, worker, step) for worker in range(workers)]
            parameters.grad = torch.stack(gradients).mean(0)
            optimizer.step()
    return parameters.detach().numpy()


def test_every_strategy_has_a_row() -> None:
    assert {row.strategy["name"] for row in ROWS} == set(STRATEGIES)


ALONE = [("simulator", row) for row in ROWS if row.is_sgd_alone]
# Real workers of the others end with the simulator's bits when there are two of them: see the next test.
ALONE += [("executor", row) for _, row in ALONE if not row.deterministic or "native" in str(row)]


@pytest.mark.parametrize(("engine", "row"), ALONE, ids=str)
def test_one_worker_of_anything_is_serial_sgd(engine: str, row: Row) -> None:
    config = learning(row, workers=1)
    assert ENGINES[engine](config).parameters == pytest.approx(serial_sgd(config), abs=1e-6)


@pytest.mark.real
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_both_engines_run_the_same_strategy(row: Row) -> None:
    config = learning(row)
    predicted, measured = lockstep.simulate(config), lockstep.run(config)
    for result in (predicted, measured):
        check_promises(row, result)
    if row.same_bytes and not row.drops:
        assert measured.metrics["bytes_sent"] == predicted.metrics["bytes_sent"]
    if not row.deterministic:
        return
    # bitwise where the order of additions is fixed: everywhere but in gloo's all-reduce
    if row.strategy.get("algorithm") == "native":
        assert measured.parameters == pytest.approx(predicted.parameters, abs=1e-6)
    else:
        assert np.array_equal(predicted.parameters, measured.parameters)
    if row.is_sgd:
        assert predicted.parameters == pytest.approx(serial_sgd(config), abs=1e-6)


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
    if (
        STRATEGIES[row.strategy["name"]].owners is not OneModelEach
    ):  # models may come from workers that are ahead
        assert (updates["staleness"] >= 0).all()
    if row.deterministic:
        assert updates["staleness"].max() == row.age
    assert (records["end"] >= records["start"]).all()
    assert np.isfinite(metrics["loss"])
    assert 0 <= metrics["accuracy"] <= 1
    assert sum(metrics["breakdown"].values()) == pytest.approx(1)
    assert result.curve["version"].is_monotonic_increasing
    assert result.parameters.shape == (PARAMETERS,)


def sizes_only(row: Row) -> Scenario:
    return scenario(
        cluster__workers=WORKERS, cluster__servers=row.servers,
        workload={"dataset": "digits", "model": "cnn", "batch_size": 16, "learning": False},
        strategy=row.strategy, stop={"steps": STEPS},
    )  # fmt: skip


@pytest.mark.parametrize("row", [row for row in ROWS if row.same_bytes and not row.drops], ids=str)
def test_sizes_only_moves_the_same_bytes(row: Row) -> None:
    """A message of a sizes-only simulation is as large as a real one."""
    runs = [lockstep.simulate(config) for config in (learning(row), sizes_only(row))]
    assert runs[0].metrics["bytes_sent"] == runs[1].metrics["bytes_sent"]


# of each kind of body: gradients, parts and encoded ones, moves, collectives, models; and none
@pytest.mark.real
@pytest.mark.parametrize(
    "name",
    ["synchronous-3", "synchronous-1-bit-3", "asynchronous", "aeasgd-3", "all-reduce-ring",
     "all-reduce-native", "all-reduce-1-bit-3", "all-reduce-fp16-3", "ssp-2",
     "downpour-blocking-3", "local-sgd-3", "sgp", "gossip-0.5", "hogwild"],
)  # fmt: skip
def test_a_real_run_of_sizes_only_moves_the_same_bytes(name: str) -> None:
    (row,) = (row for row in ROWS if str(row) == name)
    predicted, measured = lockstep.simulate(sizes_only(row)), lockstep.run(sizes_only(row))
    assert measured.metrics["bytes_sent"] == predicted.metrics["bytes_sent"]
