"""Each row of rows.py in both engines: what a strategy promises, whatever it does."""

from functools import cache

import numpy as np
import pytest
import torch

import lockstep
from lockstep import Result, Scenario
from lockstep.strategies import STRATEGIES
from lockstep.workloads import build, deterministic_threads
from tests.contract.promises import RATE, STEPS, WORKERS, check_promises, learning
from tests.contract.rows import ROWS, Row
from tests.support.nightly import drawn
from tests.support.scenarios import ENGINES, scenario


@cache
def predicted(name: str) -> Result:
    """The simulation of a row, which several tests look at."""
    return lockstep.simulate(learning(next(row for row in ROWS if str(row) == name)))


@cache
def serial_sgd(workers: int, momentum: float) -> np.ndarray:
    """Plain SGD in one process, written with torch's own optimizer, on the mini-batches of all workers."""
    config = learning(ROWS[0], workers)
    with deterministic_threads():
        learner = build(config.workload, workers, config.seed)
        parameters = torch.nn.Parameter(learner.initial())
        optimizer = torch.optim.SGD([parameters], lr=RATE, momentum=momentum)
        for step in range(STEPS):
            gradients = [learner.gradient(parameters.data, worker, step) for worker in range(workers)]
            parameters.grad = torch.stack(gradients).mean(0)
            optimizer.step()
    return parameters.detach().numpy()


def test_every_strategy_has_a_row() -> None:
    assert {row.strategy["name"] for row in ROWS} == set(STRATEGIES)


ALONE = [("simulator", row) for row in ROWS if row.is_sgd_alone]
# Real workers of the others end with the simulator's bits when there are two of them: see the next test.
REAL = [("executor", row) for _, row in ALONE if not row.deterministic or "native" in str(row)]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "row"), ALONE + drawn(REAL, one_in=4), ids=str)
def test_one_worker_of_anything_is_serial_sgd(engine: str, row: Row) -> None:
    config = learning(row, workers=1)
    expected = serial_sgd(1, row.strategy.get("momentum", 0.0))
    assert ENGINES[engine](config).parameters == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_simulator_keeps_the_promises(row: Row) -> None:
    simulated = predicted(str(row))
    check_promises(row, simulated)
    if row.deterministic and row.is_sgd:
        expected = serial_sgd(WORKERS, row.strategy.get("momentum", 0.0))
        assert simulated.parameters == pytest.approx(expected, abs=1e-6)


@pytest.mark.real
@pytest.mark.parametrize("row", drawn(ROWS, one_in=3, family=lambda row: row.strategy["name"]), ids=str)
def test_both_engines_run_the_same_strategy(row: Row) -> None:
    simulated, measured = predicted(str(row)), lockstep.run(learning(row))
    check_promises(row, measured)
    if row.same_bytes and not row.drops:
        assert measured.metrics["bytes_sent"] == simulated.metrics["bytes_sent"]
    if not row.deterministic:
        return
    # bitwise where the order of additions is fixed: everywhere but in gloo's all-reduce
    if row.strategy.get("algorithm") == "native":
        assert measured.parameters == pytest.approx(simulated.parameters, abs=1e-6)
    else:
        assert np.array_equal(simulated.parameters, measured.parameters)


def sizes_only(row: Row) -> Scenario:
    return scenario(
        cluster__workers=WORKERS, cluster__servers=row.servers,
        workload={"dataset": "digits", "model": "mlp", "batch_size": 16, "learning": False},
        strategy=row.strategy, stop={"steps": STEPS},
    )  # fmt: skip


@pytest.mark.parametrize("row", [row for row in ROWS if row.same_bytes and not row.drops], ids=str)
def test_sizes_only_moves_the_same_bytes(row: Row) -> None:
    """A message of a sizes-only simulation is as large as a real one."""
    found = lockstep.simulate(sizes_only(row)).metrics["bytes_sent"]
    assert found == predicted(str(row)).metrics["bytes_sent"]


# of each kind of body: gradients, parts and encoded ones, deltas, collectives, models; and none
@pytest.mark.real
@pytest.mark.parametrize(
    "name",
    drawn(
        ["synchronous-3", "synchronous-1-bit-3", "asynchronous", "aeasgd-3", "all-reduce-ring",
         "all-reduce-native", "all-reduce-1-bit-3", "all-reduce-fp16-3", "ssp-2",
         "downpour-blocking-3", "local-sgd-3", "sgp", "gossip-0.5", "hogwild"],
        one_in=3,
    ),
)  # fmt: skip
def test_a_real_run_of_sizes_only_moves_the_same_bytes(name: str) -> None:
    (row,) = (row for row in ROWS if str(row) == name)
    simulated, measured = lockstep.simulate(sizes_only(row)), lockstep.run(sizes_only(row))
    assert measured.metrics["bytes_sent"] == simulated.metrics["bytes_sent"]
