"""Dropout by sample: which of a sample's values are dropped does not depend on what it is computed with.

The mask of a sample is a function of the seed, the replica, the step, the sample's position in its mini-batch
and the number of the layer among those that drop values. However the mini-batch or the model is cut, each
sample has the masks that it has in one piece. They are drawn on the CPU, whatever device computes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.workloads import seeds


class Samples(NamedTuple):
    """Which samples are computed: of a replica's mini-batch `step`, from position `first` on."""

    seed: int
    replica: int
    step: int
    first: int


_computed: ContextVar[Samples | None] = ContextVar("computed", default=None)


@contextmanager
def computing(samples: Samples) -> Iterator[None]:
    """Inside it, the layers drop what is to be dropped of these samples."""
    token = _computed.set(samples)
    try:
        yield
    finally:
        _computed.reset(token)


class BySample(nn.Dropout):
    """Dropout, or stochastic depth if `whole` samples are dropped; outside of `computing` at random."""

    def __init__(self, p: float, number: int, whole: bool) -> None:
        """number: of this layer, from 0, among all such layers of the model."""
        super().__init__(p)
        self._number, self._whole = number, whole

    def forward(self, x: Tensor) -> Tensor:
        """Times 0 or 1 / (1 − p), element by element or sample by sample."""
        samples = _computed.get()
        if not self.training:
            return x
        shape = [1] * (x.dim() - 1) if self._whole else [*x.shape[1:]]
        if samples is None:
            return x * nn.functional.dropout(x.new_ones(len(x), *shape), self.p)
        masks = [self._mask(samples, samples.first + place, shape) for place in range(len(x))]
        return x * torch.from_numpy(np.stack(masks)).to(x.device, x.dtype)

    def _mask(self, samples: Samples, position: int, shape: list[int]) -> np.ndarray:
        key = samples.replica, samples.step, position, self._number
        drawn = seeds.generator(samples.seed, "dropout of a sample", *key).random(shape, np.float32)
        return np.float32(1 / (1 - self.p) if self.p < 1 else 0) * (drawn >= self.p)


def by_sample(model: nn.Module) -> None:
    """Replace what is random in a model's layers: dropout, and stochastic depth."""
    for number, (name, module) in enumerate(random_layers(model)):
        whole = not isinstance(module, nn.Dropout)
        model.set_submodule(name, BySample(float(module.p), number, whole))  # type: ignore[arg-type]


def random_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers that drop values, with their names."""
    named = model.named_modules()
    return [(name, each) for name, each in named if _drops(each) and each.p]


def _drops(module: nn.Module) -> bool:
    """torchvision's models have stochastic depth by sample alone (mode "row")."""
    return isinstance(module, nn.Dropout) or type(module).__name__ == "StochasticDepth"
