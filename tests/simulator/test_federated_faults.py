"""Clients of federated averaging that fail, and come back: rounds go on without them."""

from typing import Any

import numpy as np
import pytest

from lockstep.studies.chaos.invariants import broken
from tests.support.failing import simulated as run

CRASH = {"worker": 2, "at": "750 ms", "crash": True, "back_after": "2 s"}
PASSES = {"name": "fedavg", "local_epochs": 5}  # a pass is a mini-batch here: rounds of half a second
STEPS: dict[str, Any] = {"stop": {"steps": 40}, "strategy": PASSES, "every": None}


def members(result: Any) -> list[int]:
    """How many clients' models are in each version."""
    updates = result.records[result.records["event"] == "update"]
    return [*updates.groupby("version").size()]


def test_a_round_goes_on_without_a_client_that_fails_in_it() -> None:
    """Noticed at 1.25 s, so that the second round ends then; there at 2.75 s, and called for the sixth."""
    result = run(CRASH, on="continue", **STEPS)
    assert members(result)[:6] == [4, 3, 3, 3, 3, 4]
    assert not [*broken(result)]
    # two mini-batches were made and not pushed; the one under way is made again
    assert result.metrics["lost_samples"] == 2 * 32
    assert result.metrics["samples"] == (40 * 4 - 2) * 32


def test_where_nobody_is_told_the_round_waits_for_who_is_gone() -> None:
    result = run(CRASH, on="wait", **STEPS)
    assert members(result)[:3] == [4, 3, 4]
    updates = result.records[result.records["event"] == "update"]
    assert updates["end"].unique()[:3] == pytest.approx([0.5, 2.75, 3.25])


@pytest.mark.parametrize("on", ["continue", "wait"])
def test_the_mean_is_over_the_clients_that_are_there(on: str) -> None:
    """One of two: the model is the other's, and who is back begins with it."""
    two = {"workload": {"dataset": "digits", "model": "mlp", "batch_size": 8}, "stop": {"updates": 2}}
    settings: dict[str, Any] = {"strategy": PASSES | {"local_epochs": 1}, "every": None, "on": on, **two}
    alone = {"worker": 1, "at": "10 ms", "crash": True, "back_after": "60 s" if on == "continue" else "1 ms"}
    found = run(alone, cluster={"workers": 2}, **settings)
    assert np.isfinite(found.parameters).all()
    assert members(found) == ([1, 1] if on == "continue" else [1, 2])


def test_all_clients_may_be_gone_for_a_while() -> None:
    all_of_them = [CRASH | {"worker": worker} for worker in range(4)]
    result = run(*all_of_them, on="continue", **STEPS)
    assert not [*broken(result)]
    assert members(result)[0] == members(result)[-2] == 4
    assert result.metrics["lost_samples"] == 4 * 2 * 32


def test_who_is_back_when_all_is_over_ends_too() -> None:
    result = run(CRASH | {"back_after": "60 s"}, on="continue", **STEPS)
    assert not [*broken(result)]
    assert result.metrics["samples"] == (40 * 4 - 2) * 32
