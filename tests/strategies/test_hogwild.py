"""HOGWILD! in both engines: what is recorded, when it ends, and real memory that nobody locks."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lockstep
from lockstep import Result, Scenario
from lockstep.executor import process
from lockstep.executor.devices import Place
from lockstep.executor.launch import RunFailed
from lockstep.executor.memory import on_one_host
from lockstep.scenarios import ScenarioError
from lockstep.strategies import STRATEGIES, Contribution, Node, Strategy
from lockstep.strategies.owners import SharedMemory
from tests.support.command_line import of_the_run
from tests.support.pace import longer, measured
from tests.support.scenarios import scenario

SPARSE = {"problem": "logistic", "dimension": 200, "density": 0.02, "batch_size": 4}
DIGITS = {"dataset": "digits", "model": "mlp", "batch_size": 64}


def hogwild(workers: int = 3, **changes: Any) -> Scenario:
    return scenario(
        cluster__workers=workers, cluster__workers_per_host=workers, cluster__memory_bandwidth="5 GB/s",
        **{
            "strategy": "hogwild",
            "workload": SPARSE,
            "cluster__compute": {"time": {"distribution": "exponential", "mean": "5 ms"}},
            **changes,
        },
    )  # fmt: skip


def updates_of(run: Result) -> pd.DataFrame:
    return run.records[run.records["event"] == "update"].sort_values("version")


@pytest.mark.parametrize("workload", [SPARSE, {"parameters": 1000}], ids=["sparse", "sizes only"])
def test_versions_are_those_of_the_one_vector(engine, workload: dict[str, Any]) -> None:
    run = engine(hogwild(workload=workload, stop={"steps": 20}))
    made = updates_of(run)
    assert list(run.plan.owners.ranks) == [0]
    assert of_the_run(run.warnings) == []
    assert set(made["node"]) == {0}
    assert made["version"].tolist() == list(range(60))
    assert made["end"].is_monotonic_increasing
    assert made["peer"].value_counts().to_dict() == {0: 20, 1: 20, 2: 20}
    assert made["staleness"].between(0, 40).all()
    assert made["staleness"].iloc[0] == 0
    # Between the additions of one worker, those of the others: all of its own but the first follow a read.
    for _, own in made.groupby("peer"):
        others = np.diff(own["version"]) - 1
        assert (own["staleness"].iloc[1:].to_numpy() <= others).all()
    metrics = run.metrics
    assert (metrics["updates"], metrics["samples"], metrics["bytes_sent"]) == (
        60,
        60 * run.scenario.workload.batch_size,
        0,
    )


@pytest.mark.parametrize(
    ("stop", "samples"),
    [
        ({"steps": 7}, 3 * 7 * 64),
        ({"updates": 10}, 10 * 64),
        ({"epochs": 1}, 23 * 64),
        ({"time": "400 ms"}, None),
    ],
)
def test_when_it_ends(engine, stop: dict[str, Any], samples: int | None) -> None:
    run = engine(hogwild(workload=DIGITS, stop=stop))
    made, metrics = updates_of(run), run.metrics
    assert made["version"].tolist() == list(range(len(made)))
    assert samples is None or metrics["samples"] == samples
    assert metrics["updates"] * 64 == metrics["samples"] > 0
    assert "time" not in stop or run.engine == "executor" or made["end"].max() < 0.4
    assert run.curve["version"].iloc[-1] == metrics["updates"]
    assert run.curve["version"].is_monotonic_increasing
    assert run.curve["loss"].iloc[-1] < run.curve["loss"].iloc[0]


def test_a_target_ends_it(engine) -> None:
    stop = {"target_accuracy": 0.5, "steps": 4000}
    run = engine(hogwild(workload=DIGITS, stop=stop, strategy={"name": "hogwild", "learning_rate": 0.2}))
    assert run.metrics["time_to_target_s"] is not None
    assert run.metrics["updates"] < 6000


def test_it_says_that_memory_is_one_host_s(engine) -> None:
    config = hogwild(stop={"steps": 2}).model_dump(by_alias=True, exclude_none=True)
    config["cluster"]["workers_per_host"] = 1
    run = engine(Scenario.model_validate(config))
    assert "its workers share one memory, as if all were on one host, not on 3" in run.warnings[0]


@pytest.mark.real
@pytest.mark.alone
def test_the_prediction_holds() -> None:
    """Throughput and staleness within a tenth; both learn."""
    config = hogwild(
        4, stop={"steps": 40},
        cluster__compute={"time": {"distribution": "lognormal", "mean": longer(15), "cv": 0.3}},
    )  # fmt: skip
    predicted, real = lockstep.simulate(config), measured(config)
    assert real.metrics["throughput"] == pytest.approx(predicted.metrics["throughput"], rel=0.1)
    assert real.metrics["staleness"]["mean"] == pytest.approx(predicted.metrics["staleness"]["mean"], rel=0.1)
    for run in (predicted, real):
        assert run.curve["loss"].iloc[-1] < 0.9 * run.curve["loss"].iloc[0]


# ------------------------------------------------------------------ real memory


async def each_its_own(node: Node) -> None:
    """Every worker adds to components of its own, which those of others lie between."""
    n, workers = len(node.initial_parameters()), len(node.workers)
    ones = node.vector([float(place % workers == node.index) for place in range(n)])
    for _ in range(300):
        version = await node.memory.add(ones)
    await node.updated(version, ones, [])


async def all_the_same(node: Node) -> None:
    """Every worker adds to all components."""
    ones = node.vector([1.0] * len(node.initial_parameters()))
    for _ in range(100):
        version = await node.memory.add(ones)
        await node.updated(version, ones, [Contribution(node.rank, 0, 1)])


async def killed(node: Node) -> None:
    """Worker 1 is killed while others use the memory."""
    while await node.next_batch_available():
        parameters, _ = await node.memory.read()
        await node.memory.add(await node.gradient(parameters))
        if node.index == 1 and node.step == 5:
            os.kill(os.getpid(), signal.SIGKILL)


UNDER_TEST = {
    program.__name__: Strategy(program, owners=SharedMemory)
    for program in (each_its_own, all_the_same, killed)
}
the_real_main = process.main


def main_that_knows_them(*arguments: Any) -> None:
    STRATEGIES.update(UNDER_TEST)
    the_real_main(*arguments)


@pytest.fixture
def run_strategy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr("lockstep.executor.process.main", main_that_knows_them)
    for name, strategy in UNDER_TEST.items():
        monkeypatch.setitem(STRATEGIES, name, strategy)
    workload = {"problem": "quadratic", "dimension": 100_001}
    return lambda name, **changes: lockstep.run(hogwild(strategy=name, workload=workload, **changes))


@pytest.mark.real
def test_who_adds_to_other_components_is_not_disturbed(run_strategy) -> None:
    assert set(run_strategy("each_its_own").parameters) == {300.0}


@pytest.mark.real
def test_every_addition_is_counted_though_not_all_are_there(run_strategy) -> None:
    run = run_strategy("all_the_same")
    assert updates_of(run)["version"].tolist() == list(range(300))
    assert ((run.parameters >= 1) & (run.parameters <= 300)).all()


@pytest.mark.real
def test_nothing_is_left_of_the_memory(run_strategy, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunFailed, match=r"^worker 1 \(rank 1\) died: killed by SIGKILL$"):
        run_strategy("killed", stop={"time": "1 min"})
    assert not [file for file in Path("/dev/shm").iterdir() if file.name.startswith(("lockstep", "psm_"))]
    assert capfd.readouterr().err == ""


def test_workers_on_several_hosts_are_told() -> None:
    on_one_host("hogwild", [Place("a"), Place("a")])
    with pytest.raises(ScenarioError, match=r"all workers of hogwild must be on one host.* not on a and b"):
        on_one_host("hogwild", [Place("a"), Place("b")])
