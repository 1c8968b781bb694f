"""Layers that are cut between devices compute what uncut ones do, whatever they send."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.scenarios import ScenarioError
from tests.support.nightly import drawn
from tests.support.split_jobs import apart, job, parameters

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "fully connected": ("mlp", {"tensor": 2}),
    "uneven shares": ("mlp", {"tensor": 3}),
    "redundant neurons": ("mlp", {"tensor": 4, "redundancy": 2}),
    "everything on each": ("mlp", {"tensor": 2, "redundancy": 2}),
    "a pair cut by a stage": ("mlp", {"tensor": 2, "pipeline": 2}),
    "recomputed": ("mlp", {"tensor": 2, "recompute": True}),
    "channels, summed": ("cnn", {"tensor": 2}),
    "channels, put together": ("cnn", {"tensor": 2, "convolutions": "all-gather"}),
    "uneven channels": ("cnn", {"tensor": 3, "convolutions": "all-gather"}),
    "rows": ("cnn", {"tensor": 2, "convolutions": "halo"}),
    "rows and stages": ("cnn", {"tensor": 2, "pipeline": 2, "convolutions": "halo"}),
    "rows, zero-bubble": (
        "cnn",
        {"tensor": 2, "pipeline": 2, "convolutions": "halo", "order": "zero-bubble"},
    ),
    "channels and chunks": ("cnn", {"tensor": 2, "pipeline": 2, "order": "interleaved", "chunks": 2}),
    "heads": ("transformer", {"tensor": 2}),
    "uneven heads": ("transformer", {"tensor": 3}),
    "positions": ("transformer", {"tensor": 4, "sequence": True}),
    "positions and stages": ("transformer", {"tensor": 2, "pipeline": 2, "sequence": True}),
    "positions, recomputed": ("transformer", {"tensor": 2, "sequence": True, "recompute": True}),
    "heads, gpipe": ("transformer", {"tensor": 2, "pipeline": 3, "order": "gpipe", "micro_batches": 4}),
}


@cache
def uncut(replicas: int, model: str, steps: int, micro_batches: int = 2, precision: str = "float32") -> Any:
    """What a model comes to that is in one piece, which several tests compare with."""
    return parameters(job(replicas, model, steps, precision=precision, micro_batches=micro_batches))


@pytest.mark.parametrize("kind", drawn(KINDS, 6))
def test_after_many_steps_it_is_where_the_uncut_model_is(kind: str) -> None:
    """Until rounding decides which of two pixels is the largest of a pool: on some processors before step 40,
    on others not by step 50. The models are 1e-7 apart until then, and 2e-4 ten steps later.
    """
    model, split = KINDS[kind]
    steps = 50 if model == "mlp" else 20  # a transformer's take long
    whole = uncut(1, model, steps, split.get("micro_batches", 2))
    assert apart(parameters(job(1, model, steps, **split)), whole) < 1e-5


@pytest.mark.parametrize("kind", drawn(KINDS, 5))
def test_in_bf16_it_is_about_as_near_to_the_uncut_model_as_that_is_to_float32(kind: str) -> None:
    """Up to twice as far, by what parts of sums are rounded besides."""
    model, split = KINDS[kind]
    steps, micro = 5, split.get("micro_batches", 2)
    full, whole = (uncut(1, model, steps, micro, precision) for precision in ("float32", "bf16"))
    cut = parameters(job(1, model, steps, precision="bf16", **split))
    assert apart(cut, whole) < 4 * apart(whole, full)
    assert apart(cut, full) > 1e-5


@pytest.mark.parametrize("model", drawn(["mlp", "cnn", "transformer"], 3))
def test_stages_times_parts_times_replicas_are_two_workers(model: str) -> None:
    """P = 2, T = 2, D = 2."""
    steps = 20
    whole = uncut(2, model, steps)
    assert apart(parameters(job(2, model, steps, pipeline=2, tensor=2)), whole) < 1e-5


@pytest.mark.real
@pytest.mark.nightly
@pytest.mark.parametrize("model", ["mlp", "cnn", "transformer"])
def test_so_are_eight_real_processes(model: str) -> None:
    measured = lockstep.run(job(2, model, pipeline=2, tensor=2)).parameters
    assert measured is not None
    assert apart(measured, parameters(job(2, model))) < 1e-5


@pytest.mark.parametrize(
    "strategy",
    [
        "synchronous",
        {"name": "local-sgd", "averaging_period": 2},
        "d-psgd",
        {"name": "all-reduce", "buckets": 3},
    ],
)
def test_any_strategy_sees_a_slice(strategy: Any) -> None:
    whole = parameters(job(2, "cnn", 6, strategy))
    assert apart(parameters(job(2, "cnn", 6, strategy, tensor=2)), whole) < 1e-5


def test_pipedream_is_the_same_with_layers_cut() -> None:
    stages = {"pipeline": 2, "micro_batches": 1}
    whole = parameters(job(1, "cnn", 10, "pipedream", **stages))
    assert (
        apart(parameters(job(1, "cnn", 10, "pipedream", **stages, tensor=2, convolutions="halo")), whole)
        < 1e-5
    )


@pytest.mark.real
@pytest.mark.parametrize("kind", drawn(KINDS, 10))
def test_real_processes_come_to_the_simulators_bits(kind: str) -> None:
    model, split = KINDS[kind]
    scenario = job(1 if split.get("pipeline", 1) > 1 else 2, model, 4, **split)
    predicted, measured = lockstep.simulate(scenario), lockstep.run(scenario)
    np.testing.assert_array_equal(measured.parameters, predicted.parameters)
    assert measured.metrics["bytes_sent"] == predicted.metrics["bytes_sent"]


@pytest.mark.real
@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_real_processes_too_are_where_the_uncut_model_is_after_50_steps(kind: str) -> None:
    model, split = KINDS[kind]
    whole = parameters(job(1, model, micro_batches=split.get("micro_batches", 2)))
    measured = lockstep.run(job(1, model, **split)).parameters
    assert measured is not None
    assert apart(measured, whole) < 1e-5


IMPOSSIBLE: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "more devices than heads": (
        "transformer",
        {"tensor": 5},
        "tensor",
        "at most 4, the heads of block0.attention",
    ),
    "more devices than outputs": ("cnn", {"tensor": 12}, "tensor", "at most 10, the outputs of module 12"),
    "positions not divisible": ("transformer", {"tensor": 3, "sequence": True}, "sequence", "divide the 16"),
    "no sequences": ("mlp", {"tensor": 2, "sequence": True}, "sequence", "no sequences"),
    "too few rows": (
        "cnn",
        {"tensor": 4, "convolutions": "halo"},
        "tensor",
        "divide the 2 rows behind module 2: 1 or 2; not 4",
    ),
    "redundancy that does not divide": (
        "mlp",
        {"tensor": 4, "redundancy": 3},
        "redundancy",
        "divide tensor (4)",
    ),
    "positions of one part": ("mlp", {"tensor": 2, "redundancy": 2, "sequence": True}, "sequence", "are cut"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_be_cut_is_refused_with_one_message(case: str) -> None:
    model, split, key, said = IMPOSSIBLE[case]
    with pytest.raises(Exception) as error:  # noqa: PT011  # pydantic's, or ours
        lockstep.simulate(job(1, model, **split))
    assert said in str(error.value)
    if isinstance(error.value, ScenarioError):
        assert error.value.key == f"parallelism.{key}"


def test_a_model_of_others_cannot_be_cut() -> None:
    workload = {"dataset": "cifar10", "model": "resnet18", "batch_size": 4}
    with pytest.raises(ScenarioError, match=r"can be cut, not this model's \(it is no stack"):
        lockstep.simulate(job(1, workload=workload, tensor=2))


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_shares_of_parts_of_layers_learn_what_all_reduce_does(zero: int) -> None:
    """FSDP with layers cut: D = 2 workers that hold half of each layer, and own half of that."""
    units = {"units": 2} if zero == 3 else {"buckets": 2}
    whole = uncut(2, "cnn", 6)
    own = {"name": "fsdp", "zero": zero, **units}
    assert apart(parameters(job(2, "cnn", 6, own, tensor=2, convolutions="halo")), whole) < 1e-5
