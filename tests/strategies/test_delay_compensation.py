"""What a server remembers of what each worker pulled, against the parameters that gradients were computed at.

The run is made again by hand: in the order of the records, with every worker's gradients at the parameters
that it really had, and these, not the server's memory, in the place of the backup.
"""

from collections import Counter, defaultdict
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Result
from lockstep.job.node import Node as RunningNode
from lockstep.strategies import parameter_server
from lockstep.strategies.placement import shards_of
from lockstep.workloads import build
from tests.support.nightly import examples
from tests.support.worlds import learning, recording, worlds

RATE, STRENGTH = 0.2, 0.5


def updates(run: Result, server: int) -> list[list[int]]:
    """The workers whose pushes are in each update of a server, in the order of ranks."""
    found = run.records[(run.records["event"] == "update") & (run.records["node"] == server)]
    return [sorted(workers) for _, workers in found.groupby("version")["peer"]]


@pytest.mark.slow
@examples(0.4)
@given(
    worlds(),
    st.sampled_from(
        [
            {"name": "dc-asgd"},
            {"name": "dc-asgd", "warm_start": 3},
            {"name": "soft-sync", "n": 1},
            {"name": "soft-sync", "n": 2},
            {"name": "k-batch-async", "k": 3},
            {"name": "ssp-blocking", "bound": 1},
            {"name": "bounded-delay", "bound": 3},
            {"name": "bounded-delay", "bound": 2, "consistency": "k-batch-async", "k": 2},
        ]
    ),
    st.booleans(),
)
def test_the_backup_is_what_the_worker_had(
    world: dict[str, Any], strategy: dict[str, Any], adaptive: bool
) -> None:
    workers = world["cluster__workers"]
    if "n" in strategy:
        strategy = {**strategy, "n": min(strategy["n"], workers)}
    compensation = {"compensation": STRENGTH, "adaptive_compensation": adaptive}
    config = learning(
        **world, strategy={**strategy, "correction": "dc-asgd", "learning_rate": RATE, **compensation}
    )
    with recording() as seen:
        run = lockstep.simulate(config)
    learner = build(config.workload, workers, config.seed)
    shards = shards_of(config.cluster, True, learner.sizes.parameters)
    for server, shard in enumerate(shards, workers):
        x, mean_square, pushed = learner.initial()[shard], torch.zeros(()), Counter[int]()
        for contributors in updates(run, server):
            total, now = torch.zeros_like(x), x
            for worker in contributors:
                step = pushed[worker]
                pushed[worker] += 1
                g = learner.gradient(seen[worker, step], worker, step)[shard]
                weight: Any = STRENGTH
                if adaptive:
                    mean_square = 0.95 * mean_square + 0.05 * g * g
                    weight = STRENGTH / torch.sqrt(mean_square + 1e-7)
                total += g + weight * g * g * (now - seen[worker, step][shard])
            x = x - RATE * total / len(contributors)
        assert run.parameters[shard] == pytest.approx(x.numpy(), rel=1e-5, abs=1e-6)


@pytest.mark.slow
@examples(0.2)
@given(
    worlds(),
    st.sampled_from(
        [
            {"name": "adag-distance", "communication_window": 2},
            {"name": "adag-distance", "push_period": 2, "fetch_period": 3},
            {"name": "adag-distance", "push_period": 3, "fetch_period": 1},
            {"name": "aeasgd", "communication_window": 2, "correction": "adag-distance"},
            {"name": "adag-distance", "communication_window": 2, "consistency": "ssp", "bound": 1},
        ]
    ),
)
def test_the_distance_is_from_the_version_that_was_pulled(
    world: dict[str, Any], strategy: dict[str, Any]
) -> None:
    """With commits, and fetches at other times than pushes: by the history of all versions."""
    history: dict[tuple[int, int], torch.Tensor] = {}
    pushes: dict[tuple[int, int], list[Any]] = defaultdict(list)
    update, send = RunningNode.updated, RunningNode.send

    def updated(self: RunningNode, version: int, parameters: Any, contributions: Any) -> Any:
        history[self.rank, version] = parameters
        return update(self, version, parameters, contributions)

    def sent(self: RunningNode, to: int, kind: str, body: Any = None, **header: Any) -> Any:
        if kind in ("push", "commit"):
            pushes[self.rank, to].append((body, header["version"]))
        return send(self, to, kind, body, **header)

    config = learning(**world, strategy={"learning_rate": RATE, **strategy})
    with mock.patch.multiple(RunningNode, updated=updated, send=sent):
        run = lockstep.simulate(config)
    learner = build(config.workload, world["cluster__workers"], config.seed)
    shards = shards_of(config.cluster, True, learner.sizes.parameters)
    for server, shard in enumerate(shards, world["cluster__workers"]):
        history[server, 0] = x = learner.initial()[shard]
        for worker in (worker for workers in updates(run, server) for worker in workers):
            delta, version = pushes[worker, server].pop(0)
            x = x + delta / ((x - history[server, version]) ** 2 / RATE + 1)
        assert run.parameters[shard] == pytest.approx(x.numpy(), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("strategy", "most"),
    [
        ({"name": "dc-asgd"}, 2),  # what the last push came from, and the answer to it
        ({"name": "backup-workers", "backups": 1, "correction": "dc-asgd"}, 2),
        ({"name": "bounded-delay", "bound": 3, "correction": "dc-asgd"}, 5),
    ],
    ids=str,
)
def test_a_server_forgets_what_no_push_can_refer_to(
    strategy: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    answer = parameter_server.Shard.answer

    async def answered(self: parameter_server.Shard, worker: int, clock: int = 0) -> None:
        await answer(self, worker, clock)
        kept.append(len(self.pulled[worker]))

    monkeypatch.setattr(parameter_server.Shard, "answer", answered)
    compute = {"time": {"distribution": "exponential", "mean": "10 ms"}}
    lockstep.simulate(learning(strategy=strategy, cluster__compute=compute, stop={"steps": 50}))
    assert 2 <= np.max(kept) <= most
