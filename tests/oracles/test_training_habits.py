"""Schedules, clipping and decay in whole runs: against torch's own, and the same whoever makes the step."""

from typing import Any

import numpy as np
import pytest
import torch

import lockstep
from lockstep import Scenario, ScenarioError
from lockstep.workloads import build
from tests.support.nightly import drawn
from tests.support.scenarios import ENGINES
from tests.support.worlds import learning

RATE, STEPS = 0.1, 11  # one more, and CosineAnnealingLR would rise again
# The gradients' norms are above this one in the first steps, and below it in the last.
HABITS = {
    "learning_rate": RATE, "weight_decay": 0.05, "max_grad_norm": 2.9,
    "decay": "cosine", "decay_steps": 8, "eta_min": 0.01, "warmup_steps": 3,
}  # fmt: skip


def habitual(strategy: dict[str, Any], workers: int = 1, **changes: Any) -> Scenario:
    how = {"cluster__workers": workers, "strategy": {**HABITS, **strategy}, "stop": {"steps": STEPS}}
    return learning(**how, **changes)


def by_torch(name: str, config: Scenario) -> np.ndarray:
    """Plain training in one process: clip_grad_norm_, an optimizer of torch's, a scheduler of torch's."""
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    learner = build(config.workload, 1, config.seed, "cpu")
    weights = torch.nn.Parameter(learner.initial().double())
    optimizer = kinds[name]([weights], RATE, weight_decay=0.05)
    rising = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 3, total_iters=2)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8, eta_min=0.01)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [rising, falling], milestones=[3])
    clipped = 0
    for step in range(STEPS):
        weights.grad = learner.gradient(weights.detach().float(), 0, step).double()
        clipped += float(torch.nn.utils.clip_grad_norm_([weights], 2.9)) > 2.9
        optimizer.step()
        schedule.step()
    assert 0 < clipped < STEPS  # some, and not all
    return weights.detach().numpy()


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("strategy", ["synchronous", "all-reduce", "downpour", "fsdp"])
def test_one_worker_trains_as_torch_does(strategy: str, name: str) -> None:
    zero = {"zero": 2} if strategy == "fsdp" else {}  # 3 computes in passes, whose noise is another
    config = habitual({"name": strategy, "optimizer": name, **zero})
    found = lockstep.simulate(config).parameters
    assert np.allclose(found, by_torch(name, config), rtol=1e-5, atol=1e-6)


SAME = [
    {"name": "all-reduce", "algorithm": "parameter-server"},
    {"name": "all-reduce", "algorithm": "parameter-server", "buckets": 3},
    {"name": "fsdp", "zero": 2, "buckets": 3},
    {"name": "fsdp", "zero": 3},
    {"name": "hsdp", "zero": 1, "group_size": 2},
    {"name": "pipe-sgd", "delay": 0},
]
ENGINE_AND_STRATEGY = [("simulator", case) for case in SAME]
ENGINE_AND_STRATEGY += drawn([("executor", case) for case in SAME], one_in=3)


@pytest.mark.parametrize(("engine", "strategy"), ENGINE_AND_STRATEGY, ids=str)
def test_whoever_makes_the_step_clips_by_the_norm_of_the_whole(engine: str, strategy: dict[str, Any]) -> None:
    """Sums are made in other orders: rounding only."""
    digits = {"workload": {"dataset": "digits", "model": "mlp", "batch_size": 8}}
    clip = {"max_grad_norm": 0.5}
    server = lockstep.simulate(habitual({"name": "synchronous", **clip}, 4, **digits)).parameters
    found = ENGINES[engine](habitual({**strategy, **clip}, 4, **digits)).parameters
    assert np.allclose(found, server, rtol=1e-4, atol=1e-5)
    unclipped = {"name": "synchronous", "max_grad_norm": None}
    assert not np.allclose(lockstep.simulate(habitual(unclipped, 4, **digits)).parameters, server, atol=1e-3)


@pytest.mark.real
def test_both_engines_have_the_same_bits() -> None:
    config = habitual({"name": "synchronous", "optimizer": "adam"}, 2)
    simulated, real = lockstep.simulate(config).parameters, lockstep.run(config).parameters
    assert np.array_equal(simulated, real)


@pytest.mark.parametrize(
    ("strategy", "changes", "why"),
    [
        ({"name": "synchronous"}, {"cluster__servers": 2}, "each of 2 servers has a part of it"),
        ({"name": "synchronous", "chunks": 3}, {}, r"it comes in parts \(chunks: 3\)"),
        ({"name": "p3"}, {}, r"it comes in parts \(slice_size: 50000\)"),
        ({"name": "streaming-diloco", "units": 2}, {}, r"it comes in parts \(units: 2\)"),
        ({"name": "pipedream"}, {"parallelism": {"pipeline": 2}}, "each of the 2 devices of a replica"),
    ],
    ids=str,
)
def test_a_norm_that_nobody_has_is_refused(strategy: dict[str, Any], changes: dict, why: str) -> None:
    with pytest.raises(ScenarioError, match=f"max_grad_norm.*{why}"):
        lockstep.simulate(habitual(strategy, 2, **changes))


def test_workers_with_steps_of_their_own_clip_whatever_the_servers_hold() -> None:
    one, two = (
        lockstep.simulate(habitual({"name": "model-averaging"}, 2, cluster__servers=count)).parameters
        for count in (1, 2)
    )
    assert np.array_equal(one, two)


def test_diloco_s_weight_decay_is_that_of_its_own_optimizer() -> None:
    """0.1, of AdamW; another optimizer that is given has its own default."""

    def end(**strategy: Any) -> np.ndarray:
        config = learning(cluster__workers=2, strategy={"name": "diloco", **strategy}, stop={"steps": 4})
        return lockstep.simulate(config).parameters

    assert np.array_equal(end(optimizer="sgd"), end(optimizer="sgd", weight_decay=0.0))
    assert not np.array_equal(end(optimizer="sgd"), end(optimizer="sgd", weight_decay=0.1))
