"""Models by name: two small ones written out here, and every classification model of torchvision."""

import difflib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lockstep.scenarios import ScenarioError
from lockstep.workloads.streams import accelerated
from lockstep.workloads.torchvision_repair import import_torchvision

Shape = tuple[int, ...]  # channels, height, width


def mlp(shape: Shape, classes: int) -> nn.Module:
    """One hidden layer of 64."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Flatten(), nn.Linear(channels * height * width, 64), nn.ReLU(), nn.Linear(64, classes)
    )


class Pool(nn.MaxPool2d):
    """The largest of each 2 × 2. Only a gradient needs to know which it is: that takes ten times as long."""

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if torch.is_grad_enabled():
            return super().forward(x)  # type: ignore[no-any-return]
        height, width = (length // 2 * 2 for length in x.shape[-2:])
        x = x[..., :height, :width]
        x = torch.maximum(x[..., ::2], x[..., 1::2])
        return torch.maximum(x[..., ::2, :], x[..., 1::2, :])


def cnn(shape: Shape, classes: int) -> nn.Module:
    """The classic two-convolution network for MNIST: 9216→128→20→10 behind the convolutions at 28×28."""
    channels, height, width = shape
    flat = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
        *(Pool(), nn.Dropout(0.25), nn.Flatten()),
        *(nn.Linear(flat, 128), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Linear(128, 20), nn.ReLU(), nn.Linear(20, classes)),
    )


OWN: dict[str, Callable[[Shape, int], nn.Module]] = {"mlp": mlp, "cnn": cnn}


class _Grey(nn.Module):
    """A model for colour images, shown grey ones: the one channel is repeated."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        return self.model(x.expand(-1, 3, -1, -1))


def _torchvision(name: str, shape: Shape, classes: int) -> nn.Module:
    options: dict[str, Any] = {}
    if name in ("googlenet", "inception_v3"):
        options = {"aux_logits": False, "init_weights": True}  # one output, as the others have
    if name.startswith("vit_"):
        options = {"image_size": shape[1]}
    get_model = import_torchvision().models.get_model
    model: nn.Module = get_model(name, weights=None, num_classes=classes, **options)
    return _Grey(model) if shape[0] == 1 else model


def names() -> list[str]:
    """Return the names of all models."""
    models = import_torchvision().models
    return [*OWN, *models.list_models(module=models)]


def check(name: str) -> None:
    """Raise `ScenarioError` (key ``workload.model``), naming the nearest, if there is no such model."""
    if name not in OWN and name not in names():
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean '{near[0]}'?" if near else "give mlp, cnn or a classifier of torchvision"
        raise ScenarioError(f"unknown model {name[:60]!r}; {hint}", key="workload.model")


def build(name: str, input_shape: Shape, classes: int, seed: int) -> nn.Module:
    """Return the model in training mode, for images (samples, *input_shape), with logits (samples, classes).

    Its first parameters are a function of `seed`. A torchvision model repeats a single channel three times;
    GoogLeNet and Inception come without auxiliary heads, vision transformers for the input's size.
    Raises `ScenarioError` for an unknown name; that a model fits its input is for `workloads.sizes` to find.
    """
    with seeded(torch.device("cpu"), seed):
        return named(name, input_shape, classes)


def named(name: str, input_shape: Shape, classes: int) -> nn.Module:
    """As `build`, with first parameters from torch's generator."""
    check(name)
    return OWN.get(name, partial(_torchvision, name))(input_shape, classes)


def loss(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """The cross entropy of logits (…, classes) and labels (…)."""
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction=reduction)


def deterministic() -> AbstractContextManager[None]:
    """Inside it, cuDNN computes the same bits each time."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Seed torch's global generators of the CPU and `device` inside, and leave them as they were."""
    own = [device.index or 0] if accelerated(device) else []
    with torch.random.fork_rng(devices=own, device_type=device.type if own else "cuda"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also touch every other device
        for each in own:
            with torch.accelerator.device_index(each):
                torch.get_device_module(device).manual_seed(seed)
        yield
