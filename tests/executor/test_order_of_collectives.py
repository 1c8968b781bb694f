"""Whether all workers call native collectives in the same order: NCCL needs that, and it needs no GPU.

torch's `fake` process group stands in for NCCL: each worker runs alone, and nobody's numbers are added.
"""

from typing import Any

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from lockstep import Scenario
from lockstep.executor import native
from lockstep.executor.running import run_to_end
from tests.support.nodes import real_nodes
from tests.support.scenarios import scenario

WORKERS, STEPS = 5, 3


def sums(config: Scenario, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, Any]]]:
    """By worker: how many elements each of its sums has, and of which group it is."""
    found: list[list[tuple[int, Any]]] = []
    really = dist.all_reduce

    def noted(total: Any, group: Any = None) -> None:
        found[-1].append((total.numel(), group))
        really(total, group=group)

    monkeypatch.setattr(native.dist, "all_reduce", noted)
    with real_nodes(config) as nodes:
        for rank, node in enumerate(nodes):
            found.append([])
            dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=len(nodes))
            try:
                run_to_end(node.port.plan.program(rank)(node), node.port, node.end)
            finally:
                dist.destroy_process_group()
    return found


def learning_in(buckets: int, **stop: int) -> Scenario:
    return scenario(
        cluster__workers=WORKERS, workload={"problem": "quadratic", "batch_size": 4}, stop=stop,
        strategy={"name": "all-reduce", "algorithm": "native", "buckets": buckets},
    )  # fmt: skip


@pytest.mark.parametrize("buckets", [1, 3])
def test_all_workers_sum_the_same_in_the_same_order(buckets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sums(learning_in(buckets, steps=STEPS), monkeypatch)
    assert found == found[:1] * WORKERS
    assert len(found[0]) == STEPS * buckets
    # The last bucket's gradient is there first. One more element says whether the run is over.
    of_a_step = [numel - 1 for numel, _ in found[0][:buckets]]
    assert sum(of_a_step) == 20
    assert found[0] == found[0][:buckets] * STEPS
