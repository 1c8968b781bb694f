"""Strategies in which every worker has a model of its own: what averages must keep, and what is evaluated."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Result, Scenario
from lockstep.executor import process
from lockstep.job.node import Node as RunningNode
from lockstep.job.plan import Plan
from lockstep.job.snapshots import Snapshots, assemble
from lockstep.scenarios import override
from lockstep.simulator.engine import Simulation
from lockstep.strategies import gossip
from lockstep.strategies.own_model import OwnModel
from lockstep.strategies.owners import OneModelEach, Sharded
from lockstep.workloads import build, deterministic_threads
from lockstep.workloads.base import Evaluation
from lockstep.workloads.classifier import Classifier
from lockstep.workloads.problems import Quadratic
from tests.support.nightly import drawn, examples
from tests.support.scenarios import scenario

RATE = 0.1
DIGITS = {"dataset": "digits", "model": "mlp", "batch_size": 32}
QUADRATIC = {"problem": "quadratic", "dimension": 5}
EVERY = ["d-psgd", "sgp", "ad-psgd", "gossip"]
OFTEN = {"d-psgd": {}, "sgp": {}, "ad-psgd": {}, "gossip": {"probability": 0.5, "peers": 2}}


def case(name: str, **changes: Any) -> Scenario:
    """Gradients of different lengths, on a network that takes time."""
    usual = {
        "strategy": {"name": name, "learning_rate": RATE, **OFTEN[name]},
        "cluster__compute": {"time": {"distribution": "lognormal", "mean": "10 ms", "cv": 0.5}},
        "cluster__network": {"latency": "3 ms"},
        "workload": QUADRATIC,
        "stop": {"steps": 20},
    }
    return scenario(**usual | changes)


# ------------------------------------------------------------------ averages keep the sum of the models


def constant_gradient(self: Quadratic, parameters: Any, worker: int, step: int) -> torch.Tensor:
    """Every worker has its own, whatever the parameters."""
    return torch.full((5,), float(worker + 1))


the_real_main = process.main


def main_with_constant_gradients(*arguments: Any) -> None:
    Quadratic.gradient = constant_gradient  # type: ignore[method-assign]
    the_real_main(*arguments)


@pytest.fixture
def _constant_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quadratic, "gradient", constant_gradient)
    monkeypatch.setattr("lockstep.executor.process.main", main_with_constant_gradients)


@pytest.mark.usefixtures("_constant_gradients")
@pytest.mark.parametrize("name", ["d-psgd", "sgp", "ad-psgd"])
def test_averages_keep_the_sum_of_the_models(name: str, engine: Callable[[Scenario], Result]) -> None:
    """Then the mean moves by the mean of all steps, whenever and with whomever the models were averaged."""
    straggler = [{"worker": 2, "slowdown": 3}]
    result = engine(case(name, cluster__workers=5, cluster__stragglers=straggler))
    assert result.parameters == pytest.approx(np.full(5, -RATE * 20 * np.mean([1, 2, 3, 4, 5])), rel=1e-5)


def test_every_model_that_was_pushed_is_merged(engine: Callable[[Scenario], Result]) -> None:
    """By a worker that has long ended, if need be: here the slow one is by itself for half of the run."""
    result = engine(case("gossip", cluster__stragglers=[{"worker": 2, "slowdown": 2}]))
    pushed = result.records[result.records["kind"] == "share"]
    updates = result.records[result.records["event"] == "update"]
    merged = updates[updates["batches"] == 0]
    assert len(pushed) == len(merged) > 50
    late = updates.groupby("node")["end"].max() > updates[updates["batches"] > 0].groupby("node")["end"].max()
    assert late[[0, 1, 3]].all()
    assert result.metrics["updates"] == 20  # what comes late belongs to the last one


class Watched(OwnModel):
    """Knows all models of a run."""

    models: list["Watched"] = []  # noqa: RUF012

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.models.append(self)


@pytest.mark.slow
@examples(0.5)
@given(
    workers=st.integers(1, 9), peers=st.integers(1, 8), probability=st.sampled_from([0.1, 0.5, 1.0]),
    steps=st.integers(1, 20), latency=st.sampled_from(["0 s", "7 ms", "200 ms"]),
)  # fmt: skip
def test_the_sum_of_the_weights_of_gossip_is_kept(
    workers: int, peers: int, probability: float, steps: int, latency: str
) -> None:
    Watched.models.clear()
    peers = min(peers, workers - 1)
    known = {"peers": peers} if peers else {}  # alone one has none: more are refused
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gossip, "OwnModel", Watched)
        lockstep.simulate(
            scenario(
                cluster__workers=workers, stop={"steps": steps}, cluster__network={"latency": latency},
                strategy={"name": "gossip", "probability": probability, **known},
            )
        )  # fmt: skip
    assert len(Watched.models) == workers
    total = sum(model.weight for model in Watched.models)
    exact = workers in (1, 2, 4, 8) and peers in (0, 1, 3)
    assert total == 1 if exact else total == pytest.approx(1, abs=1e-12)


def test_the_weights_of_sgp_stay_1(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, send = [], RunningNode.send

    def seen(self: Any, *arguments: Any, **more: Any) -> Any:
        weights.append(more["weight"])
        return send(self, *arguments, **more)

    monkeypatch.setattr(RunningNode, "send", seen)
    lockstep.simulate(case("sgp", cluster__workers=6))
    assert weights == [0.5] * 6 * 20


# ------------------------------------------------------------------ next to other strategies


@pytest.mark.slow
def test_the_complete_graph_is_nearly_synchronous() -> None:
    """The mean follows the mean gradient, but of gradients at models from before they were averaged."""
    start = build(case("d-psgd", workload=DIGITS).workload, 4, 3).initial().numpy()

    def gap(rate: float) -> float:
        """How far apart they end, as a fraction of the way they have come."""
        ends = []
        for strategy in ({"name": "d-psgd", "graph": "complete"}, {"name": "synchronous"}):
            config = case("d-psgd", workload=DIGITS, strategy={**strategy, "learning_rate": rate})
            ends.append(lockstep.simulate(config).parameters)
        return float(np.linalg.norm(ends[0] - ends[1]) / np.linalg.norm(ends[1] - start))

    assert 0.01 < gap(0.1) < 0.02  # 0.017
    assert gap(0.01) < gap(0.1) / 3  # models are as far apart as steps are long


def test_gossip_that_is_never_sent_leaves_workers_by_themselves() -> None:
    config = override(case("gossip", workload=DIGITS, cluster__workers=3), "strategy.probability", 0)
    with deterministic_threads():
        learner, models = build(config.workload, 3, config.seed), []
        for worker in range(3):
            model = learner.initial()
            for step in range(20):
                model = model - RATE * learner.gradient(model, worker, step)
            models.append(model)
    result = lockstep.simulate(config)
    assert result.parameters == pytest.approx(torch.stack(models).mean(0).numpy(), abs=1e-6)
    assert result.metrics["bytes_sent"] == 0


# ------------------------------------------------------------------ what is evaluated


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[int, Any]]:
    """The last model that each worker of a simulation told at each version."""
    found: dict[int, dict[int, Any]] = {}
    updated = RunningNode.updated

    async def noted(self: RunningNode, version: int, parameters: Any, contributions: Any) -> None:
        found.setdefault(self.rank, {})[version] = parameters
        await updated(self, version, parameters, contributions)

    monkeypatch.setattr(RunningNode, "updated", noted)
    return found


@pytest.mark.parametrize("name", EVERY)
def test_the_mean_of_the_models_at_the_same_version_is_evaluated(name: str, told: Any) -> None:
    config = case(name, workload=DIGITS, cluster__stragglers=[{"worker": 1, "slowdown": 2}])
    result = lockstep.simulate(config)
    assert result.curve["version"].tolist() == list(range(1, 21))
    with deterministic_threads():
        learner = build(config.workload, 4, config.seed)
        for version, loss in zip(result.curve["version"], result.curve["loss"], strict=True):
            models = [told[worker][version] for worker in range(4)]
            assert learner.evaluate(sum(models[1:], models[0]) / 4).loss == loss


def test_the_last_models_are_evaluated_though_some_have_more_updates(told: Any) -> None:
    slow = [{"worker": 1, "slowdown": 4}, {"worker": 2, "slowdown": 400}]
    result = lockstep.simulate(case("gossip", stop={"time": "0.3 s"}, cluster__stragglers=slow))
    last = {worker: max(models) for worker, models in told.items()}
    assert last[0] > last[1] > 0
    assert 2 not in last  # it is where it began: at 0
    models = [told[worker][last[worker]] for worker in (0, 1, 3)]
    assert result.parameters == pytest.approx((models[0] + models[1] + models[2]).numpy() / 4)
    assert result.curve["version"].tolist() == [0]
    assert result.metrics["updates"] == 0


def test_no_update_is_no_model(told: Any) -> None:
    result = lockstep.simulate(case("gossip", stop={"time": "1 us"}))
    assert (told, result.parameters, len(result.curve)) == ({}, None, 0)


def offered(*versions: int) -> Snapshots:
    owner = Snapshots(4, own=torch.zeros(1))
    for version in versions:
        owner.offer(version, float(version), torch.tensor([float(version)]))
    return owner


def test_a_snapshot_is_whole_when_all_have_it_and_the_last_ones_are_the_end() -> None:
    found = [
        (v, at, x.item()) for v, at, x in assemble([offered(1, 2, 3), offered(1, 2)], OneModelEach(range(2)))
    ]
    assert found == [(1, 1.0, 1.0), (2, 3.0, 2.5)]
    shards, owners = [Snapshots(8), Snapshots(8)], Sharded(range(2), [(slice(0, 1),), (slice(1, 2),)])
    for number, shard in enumerate(shards):
        shard.offer(1, 0.0, torch.tensor([float(number)]))
    assert [x.tolist() for _, _, x in assemble(shards, owners)] == [[0.0, 1.0]]


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_evaluated_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """During the run, until the target, and after it for the curve."""
    evaluated = []
    evaluate = Classifier.evaluate

    def counted(self: Classifier, parameters: torch.Tensor) -> Evaluation:
        evaluated.append(parameters.numpy().tobytes())
        return evaluate(self, parameters)

    monkeypatch.setattr(Classifier, "evaluate", counted)
    result = lockstep.simulate(case(name, workload=DIGITS, stop={"steps": 20, "target_accuracy": 0.99}))
    assert len(evaluated) == len(set(evaluated)) >= len(result.curve)


def test_many_models_make_fewer_snapshots() -> None:
    assert (Snapshots(1 << 20).limit, Snapshots(4 << 20).limit, Snapshots(64 << 20).limit) == (64, 16, 8)
    large = {"problem": "quadratic", "dimension": 1 << 18}
    simulation = Simulation(Plan.of(case("gossip", workload=large, stop={"steps": 1})))
    simulation.run()
    assert {snapshots.limit for snapshots in simulation.snapshots.values()} == {16}


# ------------------------------------------------------------------ however a run ends


STOPS: list[dict[str, Any]] = [
    {"updates": 6}, {"time": "0.6 s"}, {"epochs": 1}, {"epochs": 1, "updates": 1},
    {"steps": 3, "updates": 5}, {"target_accuracy": 0.5, "steps": 4000},
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "stop"), drawn(product(EVERY, STOPS), one_in=3, family=lambda case: case[0]), ids=str
)
def test_a_run_ends(name: str, stop: dict[str, Any], engine: Callable[[Scenario], Result]) -> None:
    """An epoch here has fewer mini-batches than there are workers."""
    workload = {**DIGITS, "batch_size": 720} if "epochs" in stop else DIGITS
    result = engine(case(name, workload=workload, stop=stop, cluster__workers=3))
    updates = result.metrics["updates"]
    if "epochs" in stop:
        assert result.metrics["samples"] == 720 * (3 if name in ("d-psgd", "sgp") else 2)
    elif "time" in stop or "target_accuracy" in stop:
        assert 0 < updates < 1000
    else:
        assert updates == min(stop.values())
    assert np.isfinite(result.metrics["loss"])
