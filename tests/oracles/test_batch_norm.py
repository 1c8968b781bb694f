"""Synchronised batch normalisation: replicas compute what one device does with the samples of all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import lockstep
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.parallelism import Parallelism
from lockstep.scenarios.workload import valid_workload
from lockstep.workloads import build, deterministic_threads, models, tracing
from lockstep.workloads.classifier import Classifier
from lockstep.workloads.segments import Micro, Segment, segments
from lockstep.workloads.tensor.norms import normalised, norms, statistics
from lockstep.workloads.tensor.part import CutPart
from tests.support.nightly import drawn
from tests.support.split_jobs import apart, job, parameters
from tests.support.tasks import task, written

SHUFFLENET = {"dataset": "fake", "model": "shufflenet_v2_x0_5", "batch_size": 4, "batch_norm": "synchronised"}
MODELS = ["mobilenet_v3_small", "resnet18"]
LARGE = pytest.param("vgg11_bn", marks=pytest.mark.nightly)  # 133 million parameters


@pytest.mark.parametrize("mean", [0, 10])
def test_a_layer_is_torchs_over_all_values(mean: float) -> None:
    """Also where values are ten deviations from 0: the variance is a difference of squares."""
    x = torch.randn(16, 5, 6, 6, generator=torch.Generator().manual_seed(0)) + mean
    weight, bias = torch.linspace(0.5, 2, 5), torch.linspace(-1, 1, 5)
    total = statistics(x[:8]) + statistics(x[8:])
    found = torch.cat([normalised(half, total, weight, bias, 1e-5) for half in (x[:8], x[8:])])
    right = torch.nn.functional.batch_norm(x.double(), None, None, weight.double(), bias.double(), True)
    assert float((found - right).abs().max() / right.abs().max()) < 1e-5


def test_sums_of_16_bits_are_float32() -> None:
    """1,001 values are 1,000 in bfloat16; what is normalised has the type that torch's layer gives it."""
    x = torch.randn(1001, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    total, weight = statistics(x), torch.ones(3)
    assert total.equal(statistics(x.float()))
    right = torch.nn.functional.batch_norm(x, None, None, weight, torch.zeros(3), True)
    found = normalised(x, total, weight, torch.zeros(3), 1e-5)
    assert found.dtype == right.dtype
    assert float((found - right).abs().max()) < 0.04  # the next number after 4 is 4.03


def learner(model: str, batch: int) -> Classifier:
    document = {"dataset": "fake", "model": model, "batch_size": batch, "batch_norm": "synchronised"}
    found = build(valid_workload(document, {}), 2, 1)  # type: ignore[arg-type]
    assert isinstance(found, Classifier)
    for module in found.module.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # the two have masks of their own
    return found


def together(parts: list[Segment], parameters: Tensor, micros: list[Micro]) -> tuple[float, Tensor]:
    """The mean loss and gradient of devices that each compute a micro-batch, and add up where they meet."""

    def met(found: list[Any], exchange: str | None) -> list[Any]:
        assert exchange in (None, "all-reduce")
        return found if exchange is None else [torch.stack(found).sum(0)] * len(found)

    (cut,) = {part._cut.forward[0]: part._cut for part in parts if isinstance(part, CutPart)}.values()
    given: list[Any] = [None] * len(parts)
    for segment, turn in enumerate(cut.forward):
        found = [
            each.forward(parameters, micro, came, segment)
            for each, micro, came in zip(parts, micros, given, strict=True)
        ]
        given = met(found, turn.exchange)
    losses, given = given, [None] * len(parts)
    for segment, turn in enumerate(cut.backward):
        both = [
            each.backward(micro, came, segment)
            for each, micro, came in zip(parts, micros, given, strict=True)
        ]
        given = met([error for error, _ in both], turn.exchange)
    gradients = [gradient for _, gradient in both]
    return float(sum(losses)) / len(parts), sum(gradients[1:], gradients[0]) / len(parts)


def in_one_batch(known: Classifier, parameters: Tensor, micros: list[Micro]) -> tuple[float, Tensor]:
    """The loss and gradient of all these samples at once, by torch's own layers.

    In float32, as the devices have it: in float64 some ReLU is on where it is off in float32, which moves
    gradients by a thousandth, those of torch's own layers too.
    """
    batches = [known.batch(micro.replica, micro.step) for micro in micros]
    x, y = (torch.cat([batch[place] for batch in batches]) for place in (0, 1))
    weights, pieces = {}, torch.split(parameters, [each.numel() for each in known.module.parameters()])
    for (name, weight), piece in zip(known.module.named_parameters(), pieces, strict=True):
        weights[name] = piece.clone().view_as(weight).requires_grad_()
    loss = models.loss(torch.func.functional_call(known.module, weights, (x,)), y)
    gradients = torch.autograd.grad(loss, [*weights.values()])
    return loss.item(), torch.cat([each.flatten() for each in gradients])


@pytest.mark.parametrize("model", [*drawn(MODELS, 2), LARGE])
def test_two_halves_of_a_batch_have_the_gradient_of_the_whole(model: str) -> None:
    known = learner(model, 8)
    layers = len(tracing.pieces(known.module, known.batch(0, 0)[0]))
    given, micros = known.initial(), [Micro(0, 0, 0), Micro(1, 0, 0)]
    with deterministic_threads():
        parts = [segments(known, (0, layers), 1, Parallelism())[0] for _ in micros]
        loss, gradient = together(parts, given, micros)
        right_loss, right = in_one_batch(known, given, micros)
    assert loss == pytest.approx(right_loss, rel=1e-5)
    assert float((gradient - right).norm() / right.norm()) < 1e-5


SPLITS: dict[str, dict[str, Any]] = {
    "one device": {"micro_batches": 1},
    "accumulation": {"micro_batches": 2},
    "recomputed": {"micro_batches": 2, "recompute": True},
    "stages": {"pipeline": 2, "micro_batches": 1},
    "stages, two micro-batches": {"pipeline": 2},
    "stages, zero-bubble": {"pipeline": 2, "order": "zero-bubble"},
    "stages, recomputed": {"pipeline": 3, "recompute": True, "micro_batches": 2},
    "chunks": {"pipeline": 2, "order": "interleaved", "chunks": 2},
}


def run_of(split: dict[str, Any], strategy: Any = "all-reduce", **workload: Any) -> Any:
    return job(2, "shufflenet", 2, strategy, SHUFFLENET | workload, **split)


SMALL = """
def block(into):
    return nn.Sequential(nn.Linear(into, 8), nn.BatchNorm1d(8), nn.ReLU())
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A model with four normalisations of a user's, which takes a tenth of the time."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, task(f"nn.Sequential(block(2), {3 * 'block(8), '}nn.Linear(8, 2))", more=SMALL))
    return {"task": "my_task:f", "batch_size": 8, "batch_norm": "synchronised"}


@pytest.mark.parametrize("split", SPLITS)
def test_wherever_a_small_model_is_cut_it_has_the_same_bits(split: str, small: dict[str, Any]) -> None:
    whole = {"micro_batches": SPLITS[split].get("micro_batches", 2)}
    cut, uncut = (parameters(job(2, "", 4, "all-reduce", small, **each)) for each in (SPLITS[split], whole))
    np.testing.assert_array_equal(cut, uncut)


@pytest.mark.parametrize(
    ("split", "precision"),
    [
        *drawn([(split, "float32") for split in SPLITS], 8),
        *(pytest.param(split, "bf16", marks=pytest.mark.nightly) for split in ("stages", "chunks")),
    ],
)
def test_wherever_the_model_is_cut_it_has_the_same_bits(split: str, precision: str) -> None:
    whole = {"micro_batches": SPLITS[split].get("micro_batches", 2)}
    cut, uncut = (parameters(run_of(each, precision=precision)) for each in (SPLITS[split], whole))
    np.testing.assert_array_equal(cut, uncut)


@pytest.mark.parametrize("strategy", drawn(["synchronous", "fsdp", "hsdp"], 3))
def test_strategies_that_compute_the_same_learn_the_same(strategy: str) -> None:
    one = {"micro_batches": 1}
    assert apart(parameters(run_of(one, strategy)), parameters(run_of(one))) < 1e-5


@pytest.mark.slow
def test_it_is_not_what_local_statistics_come_to() -> None:
    one = {"micro_batches": 1}
    assert apart(parameters(run_of(one, batch_norm="local")), parameters(run_of(one))) > 1e-2


@pytest.mark.parametrize("split", [{}, {"pipeline": 2}], ids=str)
def test_each_layer_sends_two_values_a_channel_and_a_count_each_way(split: dict[str, Any]) -> None:
    """Around a ring of two: twice what one of them has, for each of two micro-batches and two steps."""
    split, asleep = {"micro_batches": 2} | split, {"learning": False}
    there, without = (
        lockstep.simulate(run_of(split, **asleep, batch_norm=kind)).metrics["bytes_sent"]
        for kind in ("synchronised", "local")
    )
    layers = norms(models.build("shufflenet_v2_x0_5", (3, 32, 32), 10, seed=0))
    values = sum(2 * layer.num_features + 1 for layer in layers)  # type: ignore[misc, operator]
    assert there - without == 2 * 2 * 2 * 2 * 4 * values


@pytest.mark.real
@pytest.mark.parametrize("split", drawn(SPLITS, 8))
def test_real_processes_come_to_the_simulators_bits(split: str, small: dict[str, Any]) -> None:
    same_in_both_engines(job(2, "", 2, "all-reduce", small, **SPLITS[split]))


@pytest.mark.real
@pytest.mark.nightly
@pytest.mark.parametrize("split", SPLITS)
def test_real_processes_with_a_large_model_do_too(split: str) -> None:
    same_in_both_engines(run_of(SPLITS[split]))


def same_in_both_engines(scenario: lockstep.Scenario) -> None:
    predicted, measured = lockstep.simulate(scenario), lockstep.run(scenario)
    np.testing.assert_array_equal(measured.parameters, predicted.parameters)
    assert measured.metrics["bytes_sent"] == predicted.metrics["bytes_sent"]


@pytest.mark.parametrize(
    ("model", "strategy", "split", "key", "said"),
    [
        ("mlp", "all-reduce", {}, "workload.batch_norm", "the model mlp has no batch normalisation"),
        ("resnet18", "all-reduce", {"tensor": 2}, "parallelism.tensor", "must be 1 with workload.batch_norm"),
        (
            "resnet18",
            "asynchronous",
            {},
            "strategy.name",
            "synchronous, all-reduce, fsdp, hsdp, not asyn",
        ),
        ("resnet18", "local-sgd", {}, "strategy.name", "not local-sgd"),
        ("resnet18", "d-psgd", {}, "strategy.name", "not d-psgd"),
        ("resnet18", "k-sync", {}, "strategy.name", "not k-sync"),
        ("resnet18", "pipedream", {"micro_batches": 1, "pipeline": 2}, "strategy.name", "not pipedream"),
        (
            *("resnet18", {"name": "synchronous", "consistency": "soft-sync"}, {}, "strategy.name"),
            "not synchronous, with these factors",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_synchronised_is_refused_with_one_message(
    model: str, strategy: Any, split: dict[str, Any], key: str, said: str
) -> None:
    workload = SHUFFLENET | {"model": model, "batch_size": 4}
    with pytest.raises(ScenarioError, match=said) as error:
        lockstep.simulate(job(2, model, 2, strategy, workload, **split))
    assert error.value.key == key
