"""What a real run is counted to keep in memory, and that programs let go of what they need no more."""

from typing import Any

import pytest
import torch
from torch import Tensor

import lockstep
from lockstep.executor.room import held
from lockstep.simulator import engine
from lockstep.workloads import build
from lockstep.workloads.keeping import storage_of
from tests.support.scenarios import scenario
from tests.support.worlds import learning


@pytest.mark.parametrize(
    ("strategy", "worker", "server"),
    [
        ({"name": "synchronous"}, 5, 9),
        ({"name": "synchronous", "optimizer": "momentum"}, 5, 14),
        ({"name": "all-reduce"}, 8, None),
        ({"name": "all-reduce", "optimizer": "adam"}, 15, None),
        ({"name": "downpour"}, 9, 9),  # and the sum of its steps
        ({"name": "synchronous", "codec": "1-bit"}, 11, 11),  # held: 10.3 and 10.5
    ],
)
def test_model_sizes(strategy: dict[str, Any], worker: int, server: int | None) -> None:
    plan = lockstep.check(scenario(cluster__workers=2, strategy=strategy))
    counted = [held(plan, rank) / plan.sizes.nbytes for rank in range(len(plan.roles))]
    assert counted == pytest.approx([worker, worker] + [server] * (server is not None))


def test_each_server_counts_its_shard() -> None:
    plan = lockstep.check(scenario(cluster__workers=2, cluster__servers=2, strategy="synchronous"))
    assert held(plan, 2) / plan.sizes.nbytes == pytest.approx(1 + 8 / 2, rel=1e-3)


@pytest.mark.parametrize("name", ["synchronous", "asynchronous", "k-sync"])
def test_when_a_gradient_is_computed_the_one_before_is_gone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker, the server and the engine have let go of it: where it lay the next can be sent."""
    last: dict[int, Any] = {}
    alive: list[tuple[int, int]] = []

    def built(*given: Any) -> Any:
        learner = build(*given)
        really = learner.gradient

        def gradient(parameters: Tensor, worker: int, step: int, ready: Any = None) -> Tensor:
            if worker in last and not last[worker].expired():
                alive.append((worker, step))
            found = really(parameters, worker, step)
            last[worker] = storage_of(found)
            return found

        learner.gradient = gradient
        return learner

    monkeypatch.setattr(engine, "build", built)
    lockstep.simulate(learning(strategy={"name": name, "learning_rate": 0.01}, cluster__workers=3))
    assert len(last) == 3
    assert not alive


def test_a_model_lets_go_of_the_parameters_at_which_it_has_computed() -> None:
    config = scenario(workload={"dataset": "digits", "model": "mlp", "batch_size": 4})
    learner = build(config.workload, 1, 0)
    parameters = learner.initial().clone()
    first = learner.gradient(parameters, 0, 0)
    gone = storage_of(parameters)
    del parameters
    assert gone.expired()
    assert torch.equal(learner.gradient(learner.initial(), 0, 0), first)
