"""Before the clock starts a device has taken the model apart, and has computed passes of its pieces."""

from typing import Any

import numpy as np
import pytest

from lockstep.job.plan import Plan
from lockstep.job.port import PassOf
from lockstep.job.segments import Segments
from lockstep.workloads import build, tracing
from tests.support.scenarios import scenario

SPLITS: dict[str, tuple[Any, dict[str, Any]]] = {
    "pipeline": ("all-reduce", {"pipeline": 2}),
    "recomputed": ("all-reduce", {"pipeline": 2, "recompute": True}),
    "interleaved": ("all-reduce", {"pipeline": 2, "chunks": 2, "order": "interleaved"}),
    "zero-bubble": ("all-reduce", {"pipeline": 2, "order": "zero-bubble"}),
    "accumulated": ("synchronous", {"micro_batches": 4}),
    "tensor": ("all-reduce", {"tensor": 2}),
    "units": ({"name": "fsdp", "units": 2}, {}),
}


@pytest.mark.parametrize("case", SPLITS)
def test_the_first_pass_finds_the_pieces_and_nothing_is_kept(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy, split = SPLITS[case]
    workload = {
        "dataset": "digits",
        "model": "cnn" if case in ("tensor", "interleaved") else "mlp",
        "batch_size": 32,
    }
    workers = 4 if "pipeline" in split else 2
    plan = Plan.of(
        scenario(workload=workload, strategy=strategy, parallelism=split, cluster__workers=workers)
    )
    learner = build(plan.scenario.workload, plan.replicas, 0)
    fresh, warm = (Segments(plan, learner, lambda nbytes: None) for _ in range(2))
    for rank in plan.stages:
        warm.warm_up(rank)
    whole = learner.initial()
    for rank, stage in plan.stages.items():
        piece, of = plan.group(rank).pieces[0], PassOf("forward", 0, 0, None, 0)
        assert warm.kept(rank, 0, of) == 0
        if stage.index:
            continue
        own = np.concatenate([whole[part].numpy() for part in piece.parameters])
        expected, _ = fresh.do(rank, whole.new_tensor(own), 0, of)
        with monkeypatch.context() as patch:
            patch.setattr(tracing, "pieces", lambda *_: pytest.fail("takes the model apart on the clock"))
            found, _ = warm.do(rank, whole.new_tensor(own), 0, of)
        assert found.equal(expected)
