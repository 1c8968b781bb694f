"""What a real run is counted to keep in memory, and that programs let go of what they need no more."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import lockstep
from lockstep.executor import collect, launch, room
from lockstep.executor.room import held
from lockstep.scenarios import ScenarioError
from lockstep.simulator import engine
from lockstep.workloads import build, memory
from lockstep.workloads.keeping import storage_of
from tests.support.scenarios import scenario
from tests.support.tasks import task, written
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


def counted(folder: Path, samples: int, ranks: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> float:
    """Bytes of so many processes of two workers and a server with a task of its user's."""
    workload = {"task": "my_task:f", "options": {"n": samples}, "batch_size": 8, "root": str(folder)}
    plan = lockstep.check(scenario(workload=workload, cluster__workers=2))
    found: list[float] = []
    monkeypatch.setattr(launch, "require", lambda nbytes, *_: found.append(nbytes))
    launch.check_room(plan, ranks)
    return found[0]


@pytest.mark.parametrize(("ranks", "copies"), [([0, 1, 2], 4), ([0], 2), ([1], 1), ([2], 1)])
def test_data_sets_count_in_workers_in_servers_that_begin_and_in_what_evaluates(
    ranks: list[int], copies: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What evaluates is on the host of rank 0. A sample is two numbers and a label, in either data set."""
    folder, few, many = written(tmp_path, task()), 10_000, 30_000
    more = counted(folder, many, ranks, monkeypatch) - counted(folder, few, ranks, monkeypatch)
    assert more == copies * 2 * (many - few) * (2 * 4 + 8)


def test_room_is_asked_for_before_a_data_set_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "start_for", lambda *_: None)
    monkeypatch.setattr(collect, "evaluator", lambda *_: pytest.fail("it is loaded"))
    monkeypatch.setattr(memory, "free_bytes", lambda: 1e6)
    plan = lockstep.check(scenario(workload={"dataset": "digits", "model": "mlp", "batch_size": 32}))
    with pytest.raises(ScenarioError, match="a run of its 5 processes takes"):
        launch._prepared(plan, False)


@pytest.mark.parametrize("missing", [0, 1])
def test_those_who_share_a_gpu_have_to_fit_there(missing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digits, mlp's vectors, and what it keeps of a mini-batch; the least that is free counts."""
    config = scenario(workload={"dataset": "digits", "model": "mlp", "batch_size": 32}, cluster__workers=3)
    plan = lockstep.check(config)
    each = held(plan, 0) + 4 * 1797 * 64 + plan.sizes.kept
    free = [3.0 * each, 1.0 * each, 2.0 * each - missing]
    monkeypatch.setattr(room, "free_bytes", lambda device: free[device.index])
    store = dist.HashStore()

    def said(rank: int) -> str:
        try:
            room.require_on_gpus(plan, store, rank, ["A", "B", "A", None], torch.device("cuda", rank))
        except ScenarioError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(said, range(4))]
    assert found[1] == found[3] == ""
    assert found[0] == found[2]
    problem = "cluster.device: worker 0 and worker 2 would take 0.00115 GB of the GPU's memory, and 0.00115"
    assert found[0].startswith(problem) == bool(missing)


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
