"""FedAvg and FedProx: who is in a round, how much each does, and what the mean is."""

from collections import Counter
from random import Random
from typing import Any

import pytest
import torch

import lockstep
from lockstep import Result
from lockstep.workloads import build
from tests.support.scenarios import scenario
from tests.support.worlds import learning, recording

RATE = 0.1
DIGITS = {"dataset": "digits", "model": "mlp", "batch_size": 64}


def cohorts(result: Result) -> list[dict[int, int]]:
    """Of each round who made how many mini-batches."""
    updates = result.records[result.records["event"] == "update"]
    found = updates.groupby("version")[["peer", "batches"]]
    return [dict(zip(part["peer"], part["batches"], strict=True)) for _, part in found]


@pytest.mark.parametrize(("stop", "budget"), [({"epochs": 6}, 135), ({"steps": 17}, 6 * 17)], ids=str)
def test_cohorts_stay_as_large_until_the_end(stop: dict[str, int], budget: int, engine) -> None:
    """The mini-batches are everybody's: who has often been chosen does not leave before the others."""
    config = scenario(
        cluster__workers=6,
        workload={**DIGITS, "partition": {"dirichlet": 1.0}},  # of 1,437 digits
        strategy={"name": "fedavg", "participation": 0.5, "local_epochs": 1},
        stop=stop,
    )
    result = engine(config)
    learner = build(config.workload, 6, config.seed)
    epochs = [learner.epoch(worker) for worker in range(6)]
    *rounds, last = cohorts(result)
    assert len(rounds) > 3
    for cohort in rounds:
        assert len(cohort) == 3
        assert cohort == {worker: epochs[worker] for worker in cohort}
    assert len(last) <= 3
    assert all(batches <= epochs[worker] for worker, batches in last.items())
    made = result.records[result.records["event"] == "gradient"].groupby("node").size()
    assert made.sum() == budget == result.metrics["samples"] / 64


def test_a_schedule_counts_the_rounds_not_those_that_a_client_was_in() -> None:
    """Half of the clients a round: whoever is chosen steps at the rate of the round."""
    config = learning(
        cluster__workers=4,
        strategy={
            "name": "fedavg", "participation": 0.5, "local_epochs": 2, "learning_rate": RATE,
            "decay": "linear", "decay_steps": 12,
        },
        stop={"updates": 5},
    )  # fmt: skip
    with recording() as seen:
        result = lockstep.simulate(config)
    learner, made = build(config.workload, 4, config.seed), Counter[int]()
    for number, cohort in enumerate(cohorts(result)):
        for worker, batches in cohort.items():
            assert batches == 2
            first, second = (seen[worker, made[worker] + step] for step in range(2))
            step = RATE * (1 - number * 2 / 12) * learner.gradient(first, worker, made[worker])
            assert torch.allclose(second, first - step, rtol=1e-5, atol=1e-7)
            made[worker] += 2


def prox(stop: dict[str, int], **strategy: Any) -> Result:
    return lockstep.simulate(
        learning(
            cluster__workers=5,
            strategy={"name": "fedprox", "mu": 0.2, "learning_rate": RATE, "local_epochs": 4, **strategy},
            stop=stop,
        )
    )


def test_some_make_only_a_part_of_the_work() -> None:
    found = cohorts(prox({"updates": 60}, partial_work=0.5, participation=0.8))
    assert all(len(cohort) == 4 for cohort in found)
    assert all(sorted(cohort.values())[2:] == [4, 4] for cohort in found)
    partial = [sorted(cohort.values())[:2] for cohort in found]
    assert {batches for cohort in partial for batches in cohort} == {1, 2, 3, 4}


def test_without_partial_work_everybody_does_all() -> None:
    assert all(set(cohort.values()) == {4} for cohort in cohorts(prox({"updates": 9})))


def test_places_of_a_cohort_go_by_share_and_the_mean_is_plain() -> None:
    """Replayed by hand, with the server's own draws: who is drawn twice counts twice."""
    result = prox({"updates": 6}, sampling="share", participation=0.6)
    config = result.scenario
    learner, made = build(config.workload, 5, config.seed), Counter[int]()
    rng, model, twice = Random(f"{config.seed}/node/5"), learner.initial(), 0
    for _ in range(6):
        drawn = Counter(rng.choices(range(5), [1] * 5, k=3))
        deltas = torch.zeros_like(model)
        for worker, times in drawn.items():
            w = model
            for _ in range(4):
                w = w - RATE * (learner.gradient(w, worker, made[worker]) + 0.2 * (w - model))
                made[worker] += 1
            deltas += times * (w - model)
        model = model + deltas / 3
        twice += max(drawn.values()) > 1
    assert twice
    assert torch.allclose(torch.from_numpy(result.parameters), model, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_shares_are_of_the_data() -> None:
    """Rounds of one client: as often as it has samples, within four standard deviations."""
    config = scenario(
        cluster__workers=3,
        workload={**DIGITS, "batch_size": 256, "partition": {"dirichlet": 0.3}},
        strategy={"name": "fedprox", "sampling": "share", "participation": 0.3, "local_epochs": 1},
        stop={"updates": 150},
    )
    learner = build(config.workload, 3, config.seed)
    epochs = [learner.epoch(worker) for worker in range(3)]
    assert max(epochs) > min(epochs)
    chosen = Counter(worker for cohort in cohorts(lockstep.simulate(config)) for worker in cohort)
    for worker in range(3):
        share = epochs[worker] / sum(epochs)
        assert abs(chosen[worker] - 150 * share) < 4 * (150 * share * (1 - share)) ** 0.5
