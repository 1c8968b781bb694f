"""Models as layers: what they add up to, and where models can and cannot be cut."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from lockstep.scenarios import Data, Problem, ScenarioError, Sizes
from lockstep.workloads import counting, sizes, tracing
from lockstep.workloads.forms import FORMS
from lockstep.workloads.layers import Layer, kept, layers
from tests.support.nightly import drawn


def data(model: str, dataset: str = "cifar10", batch_size: int = 4) -> Data:
    return Data.model_validate({"dataset": dataset, "model": model, "batch_size": batch_size})


# Some of each kind, swin_v2 with work that a batch costs whatever its size.
SLOW = ["densenet121", "vit_b_32", "swin_v2_t", "regnet_y_400mf", "googlenet", "shufflenet_v2_x0_5"]
MODELS = ["mlp", "cnn", "resnet18", "vgg11"]


@pytest.mark.parametrize("model", MODELS + drawn(SLOW, one_in=6))
def test_the_layers_are_the_model(model: str) -> None:
    workload = data(model)
    found, whole = layers(workload), sizes(workload)
    assert sum(layer.parameters for layer in found) == whole.parameters
    assert sum(layer.flops for layer in found) * 4 == whole.flops
    assert len({layer.name for layer in found}) == len(found) > 1
    assert all(layer.parameters and layer.saved >= layer.shared >= 0 for layer in found)
    assert [layer.output > 0 for layer in found] == [True] * (len(found) - 1) + [False]
    assert all(behind.shared <= before.output for before, behind in pairwise(found))


def test_the_layers_of_a_perceptron_by_hand() -> None:
    first, second = layers(data("mlp", "digits", 8))
    assert (first.name, second.name) == ("1", "3")
    assert (first.parameters, second.parameters) == (64 * 64 + 64, 64 * 10 + 10)
    assert (first.forward_flops, first.backward_flops) == (2 * 64 * 64, 2 * 64 * 64)  # no gradient of pixels
    assert (second.forward_flops, second.backward_flops) == (2 * 640, 4 * 640)
    assert (first.output, second.output) == (64, 0)
    assert (first.saved, first.shared) == (64 + 64, 0)  # pixels, and what ReLU gave
    # of the loss: logarithms, labels of 8 bytes, and the weight of all samples together
    assert (second.saved, second.shared) == (64 + 10 + 2 + 1 / 8, 64)
    assert kept([first, second]) == 64 + 64 + 10 + 2 + 1 / 8


def test_a_residual_net_is_cut_between_blocks() -> None:
    names = [layer.name for layer in layers(data("resnet18"))]
    blocks = [f"layer{stage}.{block}" for stage in range(1, 5) for block in range(2)]
    assert names == ["conv1", "bn1", *blocks, "fc"]


def test_sizes_are_uniform() -> None:
    work = {"parameters": 10, "batch_size": 4, "flops": 12.0, "activation": "64 B"}
    found = layers(Sizes.model_validate(work), pipeline=4)
    assert [layer.parameters for layer in found] == [3, 3, 2, 2]
    assert {layer.forward_flops for layer in found} == {1.0}
    assert {layer.backward_flops for layer in found} == {2.0}
    assert [layer.output for layer in found] == [4, 4, 4, 0]  # 16 bytes a sample
    assert kept(found[1:3]) == 8
    assert len(layers(Sizes.model_validate(work | {"layers": 7}), pipeline=4)) == 7
    (alone,) = layers(Sizes.model_validate({"parameters": 10}))
    assert (alone.forward_flops, alone.backward_flops, alone.saved) == (20, 40, 0)


def test_a_problem_is_one_layer() -> None:
    (found,) = layers(Problem.model_validate({"problem": "logistic", "dimension": 20, "batch_size": 8}))
    assert (found.parameters, found.flops, found.saved) == (20, 80, 20)


class Tied(nn.Module):
    """The first layer's weight is the last one's too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = (nn.Linear(4, 4) for _ in range(3))
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.first(x)).relu())  # type: ignore[no-any-return]


class OutOfOrder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.second, self.first, self.third = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(self.first(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("build", "names", "tied"), [(Tied, 1, "first.weight"), (OutOfOrder, 2, "")])
def test_what_cannot_be_apart_is_one_layer(build: Callable[[], nn.Module], names: int, tied: str) -> None:
    found = tracing.pieces(build(), torch.empty(2, 4))
    assert len(found) == names
    assert found[0].tied == tied


def test_the_pieces_together_are_the_model() -> None:
    from lockstep.workloads import models

    model = models.build("resnet18", FORMS["digits"].shape, 10, seed=0)
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    y = x
    for piece in tracing.pieces(model, x):
        assert tuple(y.shape[1:]) == piece.inputs
        y = piece.module(y)
    assert torch.equal(y, model(x))


def test_a_micro_batch_that_cannot_be_normalised_is_refused() -> None:
    with pytest.raises(ScenarioError, match="resnet18 cannot be trained on digits in batches of 1") as caught:
        layers(data("resnet18", "digits"), samples=1)
    assert caught.value.key == "workload.model"


def test_counting_twice_is_counting_once() -> None:
    work = data("mlp", "digits")
    assert counting.layers(work, 4) is counting.layers(data("mlp", "digits"), 4)
    assert isinstance(counting.layers(work, 4)[0], Layer)
