"""AdaComm's period, when post-local SGD switches, and DiLoCo's inner optimizer."""

from math import ceil
from typing import Any

import pytest

import lockstep
from lockstep import Result
from lockstep.workloads import build, deterministic_threads
from tests.support.scenarios import scenario

RATE, WORKERS = 0.2, 3


def periods(result: Result, node: int = 0) -> list[int]:
    """How many mini-batches each round of a worker had."""
    updates = result.records[(result.records["event"] == "update") & (result.records["node"] == node)]
    return updates["batches"].tolist()


def adacomm(decay: dict[str, Any] | None = None, rate: float = RATE, **changes: Any) -> Result:
    return lockstep.simulate(
        scenario(
            cluster__workers=WORKERS,
            strategy={
                "name": "adacomm", "averaging_period": 16, "interval_s": 0.095, "learning_rate": rate,
                **(decay or {}),
            },
            stop={"steps": 80}, **changes,
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("decay", "rate_at"),
    [({}, lambda t: 1.0), ({"decay": "inverse-sqrt", "decay_steps": 10}, lambda t: (1 + t / 10) ** -0.5)],
    ids=["constant", "decaying"],
)
def test_adacomm_follows_the_square_root_of_the_loss(decay: dict[str, Any], rate_at) -> None:
    """Replayed by hand: every worker's first loss of a round is that of the model all have then."""
    result = adacomm(decay, workload={"dataset": "digits", "model": "mlp", "batch_size": 32})
    with deterministic_threads():
        learner = build(result.scenario.workload, WORKERS, result.scenario.seed)
        model, step, period, due, first, expected = learner.initial(), 0, 16, 16.0, 0.0, []
        begun, halved, followed = 0.0, 0, 0
        while step < 80:
            made = min(period, 80 - step)
            models, losses = [], []
            for worker in range(WORKERS):
                mine = model
                for batch in range(step, step + made):
                    gradient = learner.gradient(mine, worker, batch)
                    if batch == step:
                        losses.append(learner.loss)
                    mine = mine - RATE * rate_at(batch) * gradient
                models.append(mine)
            known_at = 0.01 * (step + 1)  # with the first mini-batch of the round; messages take no time
            model, step = sum(models) / WORKERS, step + made
            expected.append(made)
            loss = sum(losses) / WORKERS
            first = first or loss
            if known_at - begun >= 0.095:  # never within a rounding of it
                begun, wanted = known_at, 16 * (loss / first) ** 0.5
                shorter = ceil(wanted) < ceil(due)
                due = wanted if shorter else ceil(due) / 2
                period = max(1, ceil(due / rate_at(step) ** 0.5))
                halved, followed = halved + (not shorter), followed + shorter
    assert periods(result) == expected
    assert followed
    assert halved


def test_adacomm_halves_its_period_where_the_loss_does_not_fall() -> None:
    """At a rate so small that the loss stays."""
    found = periods(adacomm(rate=1e-12, workload={"problem": "quadratic", "noise": 0.0, "batch_size": 4}))
    assert found[:6] == [16, 16, 8, 4, 4, 2]  # looked at after 0.17, 0.33, 0.45 s


def test_adacomm_s_period_stays_where_the_rate_is_0() -> None:
    linear = {"decay": "linear", "decay_steps": 20}
    found = periods(adacomm(linear, workload={"dataset": "digits", "model": "mlp", "batch_size": 32}))
    assert len(set(found[1:-1])) == 1


def test_adacomm_keeps_its_period_where_nothing_is_learned() -> None:
    assert periods(adacomm(workload={"parameters": 100})) == [16] * 5


def test_diloco_s_inner_optimizer_is_adamw() -> None:
    """Without a parameter, and as its paper has it; not Adam, which decays no weights."""

    def end(**strategy: Any) -> list[float]:
        config = scenario(
            workload={"dataset": "digits", "model": "mlp", "batch_size": 32},
            strategy={"name": "diloco", "averaging_period": 3, **strategy},
        )
        return lockstep.simulate(config).parameters.tolist()

    assert end() == end(optimizer="adamw", weight_decay=0.1, learning_rate=0.001)
    assert end(weight_decay=0.0) == end(optimizer="adam")
    assert end() != end(optimizer="adam")


@pytest.mark.parametrize("switch", [1, 7, 100])
def test_post_local_sgd_switches(switch: int) -> None:
    strategy = {"name": "post-local-sgd", "averaging_period": 5, "switch_step": switch}
    found = periods(lockstep.simulate(scenario(strategy=strategy, stop={"steps": 20})))
    first = min(switch, 20)
    assert found == [1] * first + [5] * ((20 - first) // 5) + [(20 - first) % 5] * ((20 - first) % 5 > 0)
