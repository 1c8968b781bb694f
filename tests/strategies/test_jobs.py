"""All-reduce as a driver's jobs: the numbers of all-reduce, and what starting tasks costs."""

import numpy as np
import pytest

import lockstep
from tests.support.scenarios import scenario

MLP = {"dataset": "digits", "model": "mlp", "batch_size": 16}


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
@pytest.mark.parametrize("overhead", [0.0, 0.001, 0.02])
def test_a_mini_batch_takes_two_tasks_a_worker(workers: int, overhead: float) -> None:
    """2n tasks, the slowest gradient, and nothing for a network without limits.

    The driver's own task is the last one; the others compute while it starts more: a gradient takes 10 ms.
    """
    run = lockstep.simulate(
        scenario(
            cluster__workers=workers, strategy={"name": "all-reduce-jobs", "task_overhead_s": overhead},
            stop={"updates": 4},
        )
    )  # fmt: skip
    updates = run.records[run.records["event"] == "update"]
    ends = np.unique(updates.loc[updates["node"] == 0, "end"])
    assert np.diff(ends) == pytest.approx(2 * workers * overhead + 0.010)


def test_it_learns_what_all_reduce_does() -> None:
    found = [
        lockstep.simulate(
            scenario(strategy={"name": name, "algorithm": "parameter-server", "momentum": 0.9}, workload=MLP)
        ).parameters
        for name in ("all-reduce", "all-reduce-jobs")
    ]
    assert np.array_equal(*found)


@pytest.mark.real
def test_a_real_driver_takes_as_long() -> None:
    """At least: it sleeps, and messages take a while."""
    config = scenario(
        cluster__workers=2, strategy={"name": "all-reduce-jobs", "task_overhead_s": 0.05}, workload=MLP,
        stop={"steps": 4},
    )  # fmt: skip
    predicted, measured = lockstep.simulate(config), lockstep.run(config)
    assert np.array_equal(predicted.parameters, measured.parameters)
    assert measured.metrics["duration_s"] > 4 * 4 * 0.05 - 0.1
