"""Gradients that one machine really computes for all: over with the later of their time and that work."""

import math
from typing import Any

import pandas as pd
import pytest
from pydantic import ValidationError

import lockstep
from lockstep import Scenario
from tests.support.scenarios import scenario

WORKERS = 4


def job(cores: int, gradient: str, **changes: Any) -> Scenario:
    """Gradients of 10 ms, of workers that meet after each."""
    costs = {"cores": cores, "gradient": gradient}
    given = {"strategy": {"name": "synchronous"}, "stop": {"steps": 2}, **changes}
    return scenario(cluster__workers=WORKERS, cluster__network={"processing": costs}, **given)


def gradients(of: Scenario) -> pd.DataFrame:
    records = lockstep.simulate(of).records
    found = records[records["event"] == "gradient"].sort_values(["start", "node"], ignore_index=True)
    return found.assign(seconds=found["end"] - found["start"])


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("work_ms", [2, 4, 8, 16])
def test_a_gradient_is_over_when_its_time_and_its_share_of_the_cores_are(cores: int, work_ms: int) -> None:
    of_all = work_ms * max(1.0, WORKERS / cores)
    found = gradients(job(cores, f"{work_ms} ms"))
    assert found["seconds"].tolist() == pytest.approx([max(10, of_all) / 1e3] * 2 * WORKERS, rel=1e-9)


def test_cores_for_everyone_change_nothing() -> None:
    for strategy in ({"name": "synchronous"}, {"name": "asynchronous"}, {"name": "all-reduce", "buckets": 4}):
        plain = scenario(cluster__network={"latency": "1 ms"}, strategy=strategy)
        costs = {"cores": 64, "gradient": "9 ms"}
        shared = scenario(cluster__network={"latency": "1 ms", "processing": costs}, strategy=strategy)
        first, second = (lockstep.simulate(each).records for each in (plain, shared))
        columns = ["event", "node", "kind", "start", "end"]
        first, second = (
            each[columns].sort_values(columns[:4], ignore_index=True) for each in (first, second)
        )
        assert second["end"].to_numpy() == pytest.approx(first["end"].to_numpy(), rel=1e-9)


def test_messages_slow_real_gradients() -> None:
    """One core, which always has something to do: 10 ms for a gradient, 2 ms for each end of a message."""
    costs = {"cores": 1, "gradient": "10 ms", "per_message": "2 ms"}
    busy = lockstep.simulate(
        scenario(cluster__workers=WORKERS, cluster__network={"processing": costs}, stop={"steps": 2})
    )
    messages = 3 * WORKERS  # after the first gradient began: two pushes of each, and the answer to the first
    work = 2 * WORKERS * 10e-3 + messages * 2 * 2e-3
    assert busy.metrics["duration_s"] == pytest.approx(work, rel=1e-9)


def test_parts_of_a_gradient_are_there_when_the_core_has_come_down_to_them() -> None:
    """All four share one core: 10 ms of work take 40, and half the backward pass's bytes travel meanwhile."""
    halves = {"name": "all-reduce", "buckets": 2}
    fast, slow = (
        scenario(
            cluster__workers=WORKERS, cluster__compute__backward=0.5, strategy=halves, stop={"steps": 1},
            cluster__network={"processing": {"cores": cores, "gradient": "10 ms"}},
        )
        for cores in (WORKERS, 1)
    )  # fmt: skip
    starts = []
    for each in (fast, slow):
        records = lockstep.simulate(each).records
        starts.append(records.loc[records["event"] == "message", "start"].min())
    assert starts == pytest.approx([7.5e-3, 30e-3], rel=1e-9)


def test_what_ends_a_run_ends_the_work_too() -> None:
    found = lockstep.simulate(job(1, "8 ms", stop={"time": "50 ms"}))
    assert found.metrics["duration_s"] <= 50e-3
    assert math.isfinite(found.metrics["throughput"])


def test_real_gradients_need_the_cores_of_the_machine() -> None:
    with pytest.raises(ValidationError, match=r"needs cores: those of the one machine that stands for all"):
        scenario(cluster__cores_per_host=2, cluster__network={"processing": {"gradient": "1 ms"}})
