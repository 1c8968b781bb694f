"""AdaComm's period, and when post-local SGD switches."""

from math import ceil

import pytest
from conftest import scenario

import lockstep
from lockstep import Result
from workloads import build, deterministic_threads

RATE, WORKERS = 0.2, 3


def periods(result: Result, node: int = 0) -> list[int]:
    """How many mini-batches each round of a worker had."""
    updates = result.records[(result.records["event"] == "update") & (result.records["node"] == node)]
    return updates["batches"].tolist()


def adacomm(**changes) -> Result:
    return lockstep.simulate(
        scenario(
            cluster__workers=WORKERS,
            strategy={
                "name": "adacomm", "averaging_period": 8, "interval_s": 0.1, "learning_rate": RATE,
                "optimizer_state": "keep",
            },
            stop={"steps": 60}, **changes,
        )
    )  # fmt: skip


def test_adacomm_follows_the_square_root_of_the_loss() -> None:
    """Replayed by hand: every worker's first loss of a round is that of the model all have then."""
    result = adacomm(workload={"dataset": "digits", "model": "mlp", "batch_size": 32})
    with deterministic_threads():
        learner = build(result.scenario.workload, WORKERS, result.scenario.seed)
        model, step, period, first, expected = learner.initial(), 0, 8, 0.0, []
        begun = 0.0
        while step < 60:
            made = min(period, 60 - step)
            models, losses = [], []
            for worker in range(WORKERS):
                mine = model
                for batch in range(step, step + made):
                    gradient = learner.gradient(mine, worker, batch)
                    if batch == step:
                        losses.append(learner.loss)
                    mine = mine - RATE * gradient
                models.append(mine)
            known_at = 0.01 * (step + 1)  # with the first mini-batch of the round; messages take no time
            model, step = sum(models) / WORKERS, step + made
            expected.append(made)
            loss = sum(losses) / WORKERS
            first = first or loss
            if known_at - begun >= 0.1:
                period, begun = ceil(8 * (loss / first) ** 0.5), known_at
    assert periods(result) == expected
    assert min(expected[:-1]) < 8


def test_adacomm_keeps_its_period_where_nothing_is_learned() -> None:
    assert periods(adacomm(workload={"parameters": 100})) == [8] * 7 + [4]


@pytest.mark.parametrize("switch", [1, 7, 100])
def test_post_local_sgd_switches(switch: int) -> None:
    strategy = {"name": "post-local-sgd", "averaging_period": 5, "switch_step": switch}
    found = periods(lockstep.simulate(scenario(strategy=strategy, stop={"steps": 20})))
    first = min(switch, 20)
    assert found == [1] * first + [5] * ((20 - first) // 5) + [(20 - first) % 5] * ((20 - first) % 5 > 0)
