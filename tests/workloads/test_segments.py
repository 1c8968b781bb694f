"""Stages compute what the whole model does: the same bits, wherever it is cut."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep import scenarios
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.parallelism import Parallelism
from lockstep.scenarios.workload import valid_workload
from lockstep.workloads import Learner, build, deterministic_threads, seeds
from lockstep.workloads.classifier import Classifier
from lockstep.workloads.layers import kept, layers
from lockstep.workloads.segments import Micro, Segment, segments

CNN = {"dataset": "digits", "model": "cnn", "batch_size": 12}
MLP = {"dataset": "digits", "model": "mlp", "batch_size": 12}
TRANSFORMER = {"dataset": "sentences", "model": "transformer", "sequence": 16, "hidden": 16, "batch_size": 12}
RESNET = {"dataset": "digits", "model": "resnet18", "batch_size": 12}
BF16: dict[str, Any] = {"precision": "bf16"}
CUTS = [
    *((MLP, bounds) for bounds in [(0, 2), (0, 1, 2)]),
    *((CNN, bounds) for bounds in [(0, 5), (0, 1, 5), (0, 2, 3, 5), (0, 1, 2, 3, 4, 5)]),
    *((TRANSFORMER, bounds) for bounds in [(0, 7), (0, 2, 3, 7), (0, *range(1, 8))]),
    pytest.param(RESNET, (0, 1, 4, 11), marks=pytest.mark.slow),
]


def shown(value: object) -> str | None:
    match value:
        case {"model": str(model)}:
            return f"{model}-bf16" if BF16.items() <= value.items() else model
        case tuple():
            return "-".join(map(str, value))
    return None


@pytest.fixture(autouse=True)
def _deterministic() -> Any:
    with deterministic_threads():
        yield


def workload(document: dict[str, Any]) -> scenarios.Workload:
    return valid_workload(document, {})  # type: ignore[return-value]


def learner(document: dict[str, Any], seed: int = 1) -> Learner:
    return build(workload(document), 2, seed)


def drawn(learner: Learner, seed: int = 0) -> Tensor:
    """Parameters that are not those at the beginning, where biases are equal."""
    noise = torch.randn(learner.sizes.parameters, generator=torch.Generator().manual_seed(seed))
    return learner.initial() + noise / 50


def whole(learner: Classifier, parameters: Tensor, micro: Micro, parts: int) -> tuple[Tensor, Tensor]:
    """(loss, gradient) of a micro-batch as plain PyTorch has them, with each dropout seeded for its layer."""
    leaves = [
        piece.clone().view_as(weight).requires_grad_()
        for piece, weight in zip(
            torch.split(parameters, [weight.numel() for weight in learner.module.parameters()]),
            learner.module.parameters(),
            strict=True,
        )
    ]
    names = [name for name, _ in learner.module.named_parameters()]
    x, y = learner.batch(micro.replica, micro.step)
    size = len(x) // parts
    x, y = (all_[micro.number * size : (micro.number + 1) * size] for all_ in (x, y))
    layer_of = {"5": 1, "9": 2}  # cnn's dropouts

    def seeded(name: str) -> Any:
        def hook(*_: object) -> None:
            torch.manual_seed(seeds.integer(learner.seed, "dropout", *micro, layer_of[name]))

        return hook

    hooks = [
        module.register_forward_pre_hook(seeded(name))
        for name, module in learner.module.named_modules()
        if isinstance(module, nn.Dropout)
    ]
    with torch.random.fork_rng(), learner.precision.computing(x.device):
        logits = torch.func.functional_call(learner.module, dict(zip(names, leaves, strict=True)), (x,))
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten()) / parts
    for hook in hooks:
        hook.remove()
    found = torch.autograd.grad(loss, leaves)
    return loss.detach().reshape(1), torch.cat([each.flatten() for each in found])


def chain(
    stages: list[Segment], parameters: Tensor, micro: Micro, split: bool = False
) -> tuple[Tensor, Tensor]:
    """(loss, gradient) of a micro-batch, through all stages and back."""
    travels: Tensor | None = None
    for stage in stages:
        travels = stage.forward(parameters[stage.owned], micro, travels)
    assert travels is not None
    loss, error, pieces = travels, None, []
    for stage in reversed(stages):
        if split:
            error, weights = stage.backward_inputs(micro, error), stage.backward_weights(micro)
        else:
            error, weights = stage.backward(micro, error)
        pieces.append(weights)
        assert stage.kept(micro) == 0
    assert error is None
    return loss, torch.cat(pieces[::-1])


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("parts", [1, 3, 4])
@pytest.mark.parametrize(
    ("document", "bounds"),
    [
        *CUTS,
        *((CNN | BF16, bounds) for bounds in [(0, 5), (0, 1, 2, 3, 4, 5)]),
        (TRANSFORMER | BF16, (0, 2, 3, 7)),
        pytest.param(RESNET | BF16, (0, 1, 4, 11), marks=pytest.mark.nightly),
    ],
    ids=shown,
)
def test_stages_give_the_bits_of_the_whole_model(
    document: dict[str, Any], bounds: tuple[int, ...], parts: int, recompute: bool
) -> None:
    """Losses and accumulated gradients, of both ways back; in mixed precision those of autocast."""
    known = learner(document)
    assert isinstance(known, Classifier)
    parameters = drawn(known)
    stages = segments(known, bounds, parts, Parallelism(recompute=recompute))
    assert [stage.owned.start for stage in stages[1:]] == [stage.owned.stop for stage in stages[:-1]]
    sums = [torch.zeros(known.sizes.parameters) for _ in range(3)]
    losses = [torch.zeros(1) for _ in range(3)]
    for number in range(parts):
        micro = Micro(1, 2, number)
        ways = (
            whole(known, parameters, micro, parts),
            chain(stages, parameters, micro),
            chain(stages, parameters, micro, split=True),
        )
        for place, (loss, gradient) in enumerate(ways):
            assert loss.dtype == gradient.dtype == torch.float32
            sums[place] += gradient
            losses[place] += loss
    assert torch.equal(sums[0], sums[1])
    assert torch.equal(sums[0], sums[2])
    assert losses[0] == losses[1] == losses[2]
    assert torch.isfinite(sums[0]).all()
    assert sums[0].abs().max() > 0


def test_the_sum_is_the_gradient_of_the_mini_batch() -> None:
    """To rounding; without dropout and normalisation."""
    known = learner(MLP)
    parameters = drawn(known)
    stages = segments(known, (0, 1, 2), 4)
    found = [chain(stages, parameters, Micro(1, 2, number)) for number in range(4)]
    gradient = known.gradient(parameters, 1, 2)
    assert torch.allclose(sum(each for _, each in found), gradient, atol=1e-7)  # type: ignore[arg-type]
    assert sum(float(loss) for loss, _ in found) == pytest.approx(known.loss, rel=1e-6)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_the_sum_is_the_mean_of_what_micro_batches_have_by_themselves(
    precision: str, recompute: bool
) -> None:
    """As mini-batches of a worker whose mini-batches are so small: halves of halves are exact in 16 bits."""
    whole, small = (learner(MLP | {"precision": precision, "batch_size": size}) for size in (12, 3))
    parameters = drawn(whole)
    (stage,) = segments(whole, (0, 2), 4, Parallelism(recompute=recompute))
    found, alone = torch.zeros(len(parameters)), torch.zeros(len(parameters))
    for number in range(4):
        found += chain([stage], parameters, Micro(1, 0, number))[1]
        alone += small.gradient(parameters, 1, number) / 4
    if precision == "fp16":  # but for what is smaller than its smallest
        assert torch.allclose(found, alone, rtol=1e-3, atol=1e-9)
    else:
        assert torch.equal(found, alone)


@pytest.mark.parametrize("recompute", [False, True])
def test_each_backward_pass_uses_the_weights_of_its_forward_pass(recompute: bool) -> None:
    """Several micro-batches are on their way, each with other weights, as in PipeDream."""
    known = learner(CNN)
    versions = [drawn(known, seed) for seed in range(3)]
    micros = [Micro(0, step, 0) for step in range(3)]
    stages = segments(known, (0, 2, 5), 1, Parallelism(recompute=recompute))
    alone = [chain(segments(known, (0, 2, 5), 1), *pair) for pair in zip(versions, micros, strict=True)]
    sent = []
    for micro, parameters in zip(micros, versions, strict=True):
        sent.append(stages[0].forward(parameters[stages[0].owned], micro))
    for micro, parameters, activation in zip(micros, versions, sent, strict=True):
        stages[1].forward(parameters[stages[1].owned], micro, activation)
    for micro, (_, gradient) in reversed(list(zip(micros, alone, strict=True))):
        error, last = stages[1].backward(micro)
        _, first = stages[0].backward(micro, error)
        assert torch.equal(torch.cat([first, last]), gradient)


@pytest.mark.parametrize("document", [MLP, MLP | BF16], ids=shown)
def test_parameters_changed_in_place_are_not_mistaken_for_those_before(document: dict[str, Any]) -> None:
    """Nor are those that autocast has made 16 bits of."""
    known = learner(document)
    (stage,) = segments(known, (0, 2), 1)
    parameters, other = drawn(known, 0), drawn(known, 1)
    chain([stage], parameters, Micro(0, 0, 0))
    parameters.copy_(other)
    assert torch.equal(
        chain([stage], parameters, Micro(0, 0, 0))[1], chain([stage], other, Micro(0, 0, 0))[1]
    )


def test_vectors_may_lie_anywhere() -> None:
    """What came over a network does not lie as torch's own memory does; the bits are the same."""

    def moved(vector: Tensor) -> Tensor:
        room = torch.empty(len(vector) + 1)
        room[1:] = vector
        assert room[1:].data_ptr() % 64
        return room[1:]

    known = learner(CNN)
    micro = Micro(0, 0, 0)
    one, two = segments(known, (0, 3, 5), 1)
    parameters = drawn(known)
    loss, gradient = chain([one, two], parameters, micro)
    sent = one.forward(moved(parameters[one.owned]), micro)
    assert torch.equal(loss, two.forward(moved(parameters[two.owned]), micro, moved(sent)))
    error, last = two.backward(micro)
    assert error is not None
    assert torch.equal(torch.cat([one.backward(micro, moved(error))[1], last]), gradient)


@pytest.mark.parametrize(("document", "bounds"), [*CUTS, (RESNET, (0, *range(1, 12)))], ids=shown)
def test_what_is_kept_is_what_the_layers_say(document: dict[str, Any], bounds: tuple[int, ...]) -> None:
    known, parts, micro = learner(document), 3, Micro(0, 0, 0)
    parameters, travels = drawn(known), None
    described = layers(workload(document), samples=4)
    for stage, (start, stop) in zip(segments(known, bounds, parts), pairwise(bounds), strict=True):
        travels = stage.forward(parameters[stage.owned], micro, travels)
        assert stage.kept(micro) == pytest.approx(4 * 4 * kept(described[start:stop]), rel=0.02)
        assert stage.kept(Micro(0, 0, 1)) == 0


def test_recomputation_keeps_what_comes_in() -> None:
    known, micro = learner(CNN), Micro(0, 0, 0)
    parameters = drawn(known)
    one, two = segments(known, (0, 2, 5), 3, Parallelism(recompute=True))
    sent = one.forward(parameters[one.owned], micro)
    assert one.kept(micro) == 0
    two.forward(parameters[two.owned], micro, sent)
    described = layers(workload(CNN), samples=4)
    assert two.kept(micro) == 4 * 4 * described[1].output == sent.nbytes
    two.backward_inputs(micro)
    assert two.kept(micro) == pytest.approx(4 * 4 * kept(described[2:]), rel=0.02)


@pytest.mark.parametrize("name", ["quadratic", "logistic"])
def test_a_problem_accumulates(name: str) -> None:
    known = learner({"problem": name, "batch_size": 12, "noise": 0.0})
    parameters = drawn(known)
    (stage,) = segments(known, (0, 1), 4)
    found = [chain([stage], parameters, Micro(1, 2, number)) for number in range(4)]
    gradient = known.gradient(parameters, 1, 2)
    assert torch.allclose(sum(each for _, each in found), gradient, atol=1e-6)  # type: ignore[arg-type]
    assert sum(float(loss) for loss, _ in found) == pytest.approx(known.loss, rel=1e-5)


def test_the_noise_of_a_quadratic_is_that_of_the_mini_batch() -> None:
    known = learner({"problem": "quadratic", "dimension": 1000, "batch_size": 16, "noise": 0.8})
    (stage,) = segments(known, (0, 1), 4)
    start = torch.zeros(1000)
    exact = learner({"problem": "quadratic", "dimension": 1000, "noise": 0.0}).gradient(start, 0, 0)
    sums = [
        sum(chain([stage], start, Micro(0, step, number))[1] for number in range(4)) for step in range(10)
    ]
    assert (torch.stack(sums) - exact).std().item() == pytest.approx(0.8 / 4, rel=0.02)  # type: ignore[arg-type]


def test_micro_batches_divide_the_mini_batch() -> None:
    with pytest.raises(ScenarioError, match="must divide the mini-batch of 12 samples, not 5") as caught:
        segments(learner(MLP), (0, 2), 5)
    assert caught.value.key == "parallelism.micro_batches"


def test_nothing_random_outside_changes() -> None:
    known = learner(CNN)
    before = torch.random.get_rng_state()
    chain(segments(known, (0, 3, 5), 1), drawn(known), Micro(0, 0, 0))
    assert torch.equal(before, torch.random.get_rng_state())
