"""A task's data set as batches on a device: of tensors that lie there, or of samples that are collated."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.data import TensorDataset, default_collate

from lockstep.workloads.datasets import Shipped
from lockstep.workloads.models import seeded
from lockstep.workloads.partition import Indices

CHUNK = 512  # samples of a test set at once
Seed = Callable[[int], int]  # of what is random in the sample at a place of the batch
_CPU = torch.device("cpu")
_OF_BATCH = 0x5851F42D4C957F2D  # other seeds than those of samples


class Samples(Protocol):
    """A data set as batches; each call returns the same for the same arguments."""

    def __len__(self) -> int:
        """How many samples there are."""

    def batch(self, indices: Indices, seed: Seed) -> Any:
        """Return the batch of these samples."""

    def range(self, start: int, stop: int) -> Any:
        """Return the batch of the samples from `start` to before `stop`, or the last one."""

    def labels(self) -> NDArray[np.generic] | None:
        """Return each sample's label, shape (samples,), if the data set tells."""


Collate = Callable[[list[Any]], Any] | None


def of(dataset: Any, collate: Collate, device: torch.device) -> Samples:
    """Return a task's data set as batches on a device. Raises what reading it raises."""
    if in_memory(dataset, collate):
        return _Tensors(dataset, device)
    return Collated(dataset, collate or default_collate, device)


class _Tensors:
    """All samples lie on the device; the first dimension of each tensor is theirs."""

    def __init__(self, dataset: TensorDataset, device: torch.device) -> None:
        self.tensors = tuple(tensor.to(device) for tensor in dataset.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def batch(self, indices: Indices, seed: Seed) -> Any:
        there = torch.from_numpy(indices).to(self.tensors[0].device)
        return tuple(tensor[there] for tensor in self.tensors)

    def range(self, start: int, stop: int) -> Any:
        return tuple(tensor[start:stop].clone() for tensor in self.tensors)  # a loss may work in place

    def labels(self) -> NDArray[np.generic] | None:
        return _labels(self.tensors[-1])


def _labels(last: Tensor) -> NDArray[np.generic] | None:
    """What a data set's last tensor has, if that is whole numbers."""
    return None if last.dim() != 1 or last.is_floating_point() else last.cpu().numpy()


class Collated:
    """Samples are read one by one, and batches moved to the device."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any], device: torch.device) -> None:
        self.dataset, self.collate, self._device = dataset, collate, device

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Indices, seed: Seed) -> Any:  # noqa: D102
        return self.moved(collated(self.collate, list(self._read(indices.tolist(), seed)), seed(0)))

    def range(self, start: int, stop: int) -> Any:  # noqa: D102
        where = range(start, min(stop, len(self)))
        return self.moved(collated(self.collate, list(self._read(where, lambda place: start + place)), start))

    def moved(self, batch: Any) -> Any:
        """Return a batch that others have collated, on the device."""
        return moved(batch, self._device)

    def labels(self) -> NDArray[np.generic] | None:  # noqa: D102
        targets = getattr(self.dataset, "targets", None)  # as torchvision's data sets have them
        if targets is None and isinstance(self.dataset, TensorDataset):
            return _labels(self.dataset.tensors[-1])
        return None if targets is None else np.asarray(targets)

    def _read(self, indices: Any, seed: Seed) -> Iterator[Any]:
        for place, index in enumerate(indices):
            with everything_seeded(seed(place)):
                yield self.dataset[index]


def collated(collate: Callable[[list[Any]], Any], samples: list[Any], first: int) -> Any:
    """Return a batch of samples; what is random in that is a function of the seed of the first of them."""
    with everything_seeded(first ^ _OF_BATCH):
        return collate(samples)


def in_memory(dataset: Any, collate: Collate) -> bool:
    """Whether a task's data set lies on the device as a whole, as tensors: nothing is read.

    Not one that inherits from `TensorDataset` and makes its samples itself, such as noisy ones.
    """
    if collate is not None or not isinstance(dataset, TensorDataset):
        return False
    kind, plain = type(dataset), TensorDataset
    return kind is Shipped or (kind.__getitem__, kind.__len__) == (plain.__getitem__, plain.__len__)


def meta(dataset: Any, collate: Collate) -> Callable[[int], Any]:
    """Return what makes batches of so many samples on the meta device; it does not keep the data set.

    The first sample's tensors stand for all. Raises what reading it raises.
    """
    if isinstance(dataset, Shipped):  # known without the data
        shapes = [*dataset.shapes]
    elif in_memory(dataset, collate):
        shapes = [(tensor.shape[1:], tensor.dtype) for tensor in dataset.tensors]
    else:
        with everything_seeded(0):
            sample = dataset[0]
        return lambda count: moved((collate or default_collate)([sample] * count), torch.device("meta"))
    return lambda count: tuple(
        torch.empty(count, *shape, dtype=kind, device="meta") for shape, kind in shapes
    )


def nbytes(dataset: Any) -> int:
    """Return the bytes that lie in memory; 0 for what is read from somewhere, or not loaded yet."""
    if isinstance(dataset, Shipped) or not isinstance(dataset, TensorDataset):
        return 0
    return sum(tensor.nbytes for tensor in dataset.tensors)


def moved(batch: Any, device: torch.device) -> Any:
    """A batch on a device: tensors in lists, tuples and dictionaries, or what has a `to` of its own."""
    if not isinstance(batch, Tensor) and hasattr(batch, "to"):
        return batch.to(device)
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), batch)


@contextmanager
def everything_seeded(seed: int, device: torch.device = _CPU) -> Iterator[None]:
    """Seed the generators that others' code draws from: torch's, Python's, numpy's. They are put back.

    device: beside the CPU's.
    """
    python, array = random.getstate(), np.random.get_state()
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        with seeded(device, seed):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
