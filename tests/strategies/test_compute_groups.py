"""Groups that are synchronous inside and asynchronous to each other: what they coincide with; staleness."""

from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep import ScenarioError
from tests.support.scenarios import scenario

GAMMA = {"time": {"distribution": "gamma", "mean": "10 ms", "cv": 0.3}}
MLP = {"dataset": "digits", "model": "mlp", "batch_size": 16}


def run(strategy: Any, **changes: Any) -> lockstep.Result:
    usual = {"cluster__compute": GAMMA, "cluster__network": {"bandwidth": "20 MB/s"}, "workload": MLP}
    return lockstep.simulate(scenario(strategy=strategy, **{**usual, **changes}))


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(("groups", "same"), [(1, "synchronous"), (4, "asynchronous")])
def test_one_group_is_synchronous_and_as_many_as_workers_are_asynchronous(
    groups: int, same: str, servers: int
) -> None:
    found = run({"name": "compute-groups", "groups": groups}, cluster__servers=servers)
    other = run(same, cluster__servers=servers)
    assert found.records.equals(other.records)
    assert np.array_equal(found.parameters, other.parameters)


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_mean_staleness_is_the_other_groups(groups: int) -> None:
    """Conservation: between two updates of a group each other one makes one on average, at any speeds."""
    result = run(
        {"name": "compute-groups", "groups": groups}, cluster__workers=6, workload={"parameters": 10},
        stop={"updates": 3000}, cluster__stragglers=[{"worker": 5, "slowdown": 3}],
    )  # fmt: skip
    assert result.metrics["staleness"]["mean"] == pytest.approx(groups - 1, abs=0.02)


def test_a_group_waits_for_its_slowest_and_no_other_does() -> None:
    constant = {"time": {"distribution": "constant", "value": "10 ms"}}
    result = run(
        {"name": "compute-groups", "groups": 2}, cluster__compute=constant, cluster__network={},
        cluster__stragglers=[{"worker": 3, "slowdown": 2}], workload={"parameters": 10}, stop={"time": "2 s"},
    )  # fmt: skip
    updates = result.records[result.records["event"] == "update"]
    made = updates.groupby("peer")["batches"].sum()
    assert made.tolist() == pytest.approx([200, 200, 100, 100], abs=1)


@pytest.mark.parametrize(("workers", "groups"), [(5, 2), (5, 3), (7, 4)])
def test_an_epoch_is_made_whoever_is_fast(workers: int, groups: int) -> None:
    """What is left at the end does for some of a group only."""
    result = run(
        {"name": "compute-groups", "groups": groups}, cluster__workers=workers, stop={"epochs": 1},
        cluster__stragglers=[{"worker": 0, "slowdown": 4}],
    )  # fmt: skip
    size = result.plan.sizes
    assert result.metrics["samples"] >= size.samples
    assert result.metrics["samples"] <= size.samples + workers * size.batch_size


@pytest.mark.real
def test_both_engines_have_groups() -> None:
    """Where one group is there is nothing that chance decides."""
    config = scenario(strategy={"name": "compute-groups", "groups": 1}, workload=MLP, cluster__workers=2)
    assert np.array_equal(lockstep.simulate(config).parameters, lockstep.run(config).parameters)


def test_more_groups_than_workers_are_refused() -> None:
    with pytest.raises(ScenarioError, match="groups: must be at most 4, with 4 workers, not 5"):
        run({"name": "compute-groups", "groups": 5})
