"""A split model learns what the whole one does: bit for bit, whatever the order, the cut and the strategy."""

from typing import Any

import numpy as np
import pytest
import torch

import lockstep
from lockstep.job.plan import Plan
from lockstep.workloads import build, deterministic_threads
from tests.support.nightly import drawn
from tests.support.pipelines import DETERMINISTIC, pipeline, sized

ORDERS: list[dict[str, Any]] = [
    {"order": "gpipe"},
    {"order": "1f1b"},
    {"order": "zero-bubble"},
    {"order": "1f1b", "recompute": True},
    {"order": "zero-bubble", "recompute": True},
]


def parameters(scenario: lockstep.Scenario) -> bytes:
    found = lockstep.simulate(scenario).parameters
    assert found is not None
    return found.tobytes()


@pytest.mark.parametrize(
    ("model", "precision"), [("mlp", "float32"), ("cnn", "float32"), ("cnn", "bf16")], ids=str
)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_pipeline_with_a_flush_is_one_device_that_accumulates(
    order: dict[str, Any], model: str, precision: str
) -> None:
    same: dict[str, Any] = {"model": model, "precision": precision, "micro_batches": 4, **order}
    alone = parameters(pipeline(1, **same))
    assert parameters(pipeline(1, pipeline=2, **same)) == alone


def test_mixed_precision_is_counted_as_float32() -> None:
    """What is sent between stages, and what they keep; numbers are others."""
    full, mixed = (
        lockstep.simulate(pipeline(2, pipeline=2, precision=precision)) for precision in ("float32", "bf16")
    )
    assert mixed.memory.equals(full.memory)
    assert mixed.metrics["bytes_sent"] == full.metrics["bytes_sent"]
    assert not np.array_equal(mixed.parameters, full.parameters)


def test_several_pieces_a_stage_are_one_device_too() -> None:
    alone = parameters(pipeline(1, micro_batches=4))
    layers = len(Plan.of(pipeline(1, micro_batches=4)).pieces)
    assert layers == 1
    assert parameters(pipeline(1, pipeline=2, chunks=2, order="interleaved", micro_batches=4)) == alone


@pytest.mark.parametrize("cut", [[1], [2], {"by": "parameters"}, {"by": "time"}], ids=str)
def test_where_it_is_cut_makes_no_difference(cut: Any) -> None:
    assert parameters(pipeline(1, pipeline=2, cut=cut)) == parameters(pipeline(1, micro_batches=2))


@pytest.mark.parametrize("strategy", drawn(DETERMINISTIC, one_in=3), ids=str)
def test_replicas_of_stages_are_as_many_whole_workers(strategy: Any) -> None:
    whole = lockstep.simulate(pipeline(4, strategy, micro_batches=2))
    split = lockstep.simulate(pipeline(4, strategy, pipeline=2, micro_batches=2))
    assert whole.parameters is not None
    assert split.parameters is not None
    if isinstance(strategy, dict) and "codec" in strategy:  # a scale for each chunk of each slice
        assert not np.array_equal(split.parameters, whole.parameters)
    else:
        np.testing.assert_allclose(split.parameters, whole.parameters, rtol=0, atol=1e-6)
    for key in ("updates", "samples"):
        assert split.metrics[key] == whole.metrics[key]


def test_each_replica_sums_in_its_own_order_of_ranks() -> None:
    """With servers sums are made in the order of ranks whatever the slice, so that the bits are the same."""
    whole, split = (pipeline(4, "synchronous", micro_batches=2, **more) for more in ({}, {"pipeline": 2}))
    assert parameters(split) == parameters(whole)


@pytest.mark.parametrize("axes", [["tensor", "pipeline", "data"], ["data", "pipeline", "tensor"]], ids=str)
def test_which_devices_are_neighbours_makes_no_difference(axes: list[str]) -> None:
    assert parameters(pipeline(2, pipeline=2, axes=axes)) == parameters(pipeline(2, micro_batches=2))


def test_without_parallelism_nothing_changes() -> None:
    given = pipeline(2, "asynchronous")
    today = given.model_copy(update={"parallelism": None})
    one, other = lockstep.simulate(given), lockstep.simulate(today)
    assert one.records.equals(other.records)
    assert one.parameters is not None
    assert other.parameters is not None
    assert one.parameters.tobytes() == other.parameters.tobytes()


def test_pipedream_with_one_stage_is_plain_sgd() -> None:
    assert parameters(pipeline(2, "pipedream", model="mlp")) == parameters(pipeline(2, model="mlp"))


@pytest.mark.parametrize("strategy", ["pipedream", "pipedream-2bw"])
def test_each_mini_batch_is_computed_from_the_papers_versions(strategy: str) -> None:
    """PipeDream: stage s of K has mini-batch n at version n − (K − 1 − s), at least 0; 2BW all at n − 1."""
    stages, steps, rate = 2, 7, 0.1
    named = {"name": strategy, "learning_rate": rate}
    scenario = pipeline(1, named, pipeline=stages, steps=steps, model="mlp")
    result = lockstep.simulate(scenario)
    slices = [piece.parameters for piece in Plan.of(scenario).pieces]
    late = [stages - 1 - s if strategy == "pipedream" else 1 for s in range(stages)]
    with deterministic_threads():
        learner = build(scenario.workload, 1, scenario.seed)
        versions = [learner.initial()]
        for step in range(steps):
            mixed = torch.cat(
                [versions[max(0, step - d)][part] for d, part in zip(late, slices, strict=True)]
            )
            versions.append(versions[-1] - rate * learner.gradient(mixed, 0, step))
    assert result.parameters is not None
    np.testing.assert_allclose(result.parameters, versions[-1].numpy(), rtol=0, atol=1e-6)
    updates = result.records[result.records["event"] == "update"]
    for stage in range(stages):
        seen = updates[updates["node"] == stage]["staleness"].tolist()
        assert seen == [min(step, late[stage]) for step in range(steps)]


def test_the_loss_is_known_to_all_stages() -> None:
    """AdaComm's period follows it: stages that had none would not meet their replicas any more."""
    adacomm = {"name": "adacomm", "averaging_period": 4, "interval_s": 0.1}
    result = lockstep.simulate(pipeline(2, adacomm, micro_batches=2, steps=12, pipeline=2))
    updates = result.records[result.records["event"] == "update"].groupby("node").size()
    assert updates.nunique() == 1
    assert result.metrics["updates"] > 3


@pytest.mark.parametrize(("backward", "step_s"), [(None, 540.0), (2 / 3, 540.0), (0.0, 660.0)])
def test_the_share_of_the_backward_pass_is_the_one_given(backward: float | None, step_s: float) -> None:
    """ZB-H1 with K = 4, M = 8, 24 s a stage: 8·3 + 3 = 27 units of F = B = W, and 11 of F without B and W."""
    compute = {"time": {"distribution": "constant", "value": "96 s"}, "backward": backward}
    split = {"pipeline": 4, "micro_batches": 8, "order": "zero-bubble"}
    job = sized(4, cluster={"compute": compute, "network": {}}, parallelism=split, stop={"steps": 20})
    assert lockstep.simulate(job).metrics["duration_s"] == pytest.approx(step_s)


@pytest.mark.parametrize(("order", "passes"), [("gpipe", 2), ("zero-bubble", 3)])
def test_what_a_pass_costs_besides_is_paid_once_a_pass(order: str, passes: int) -> None:
    """One stage: a step is its work and 100 ms for each pass: forward, and backward in one or two."""
    compute = {"time": {"distribution": "constant", "value": "12 s"}}
    cluster = {"compute": compute, "pass_overhead": "100 ms"}
    split = {"pipeline": 1, "micro_batches": 4, "order": order}
    found = lockstep.simulate(sized(1, cluster=cluster, parallelism=split, stop={"steps": 1}))
    assert found.metrics["duration_s"] == pytest.approx(12 + 4 * passes * 0.1)
