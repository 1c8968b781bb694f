"""Data sets: whole, in memory, normalised, with a fixed split into training and test."""

import functools
import gzip
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.workload import Data, Transformer
from lockstep.workloads import sentences
from lockstep.workloads.forms import FORMS, Form, form
from lockstep.workloads.torchvision_repair import import_torchvision

# The class in torchvision.datasets, the folder it reads below the data directory, and what lies there.
DOWNLOADS = {
    "mnist": ("MNIST", "MNIST", "raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte"),
    "fashion-mnist": ("FashionMNIST", "FashionMNIST", "raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte"),
    "cifar10": ("CIFAR10", "cifar-10-batches-py", "{data_batch_1..5,test_batch,batches.meta}"),
}


@dataclass(frozen=True)
class Dataset:
    """Images, float32 of shape (samples, channels, height, width), and labels, int64 of shape (samples,).

    Each channel of the training images has mean 0 and variance 1. Or characters, int64 of shape (samples,
    sequence), and as labels those that follow them. Shared by all callers: read only.
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int


class Shipped(TensorDataset):
    """A part of a workload's data set, which is loaded when somebody takes samples; raises as `load` then."""

    def __init__(self, workload: Data | Transformer, part: Literal["train", "test"]) -> None:
        self._workload, self._part, self._form = workload, part, form(workload)

    @property
    def shapes(self) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Of a sample's tensors, and their types."""
        if isinstance(self._workload, Data):
            return [(self._form.shape, torch.float32), ((), torch.long)]
        return [(self._form.shape, torch.long)] * 2

    @property
    def tensors(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Samples and labels."""
        its = self._workload
        data = load(its.dataset) if isinstance(its, Data) else _sentences(self._form)
        return (data.train_x, data.train_y) if self._part == "train" else (data.test_x, data.test_y)

    def __len__(self) -> int:
        return self._form.train if self._part == "train" else self._form.test


@functools.cache
def load(name: str) -> Dataset:
    """Load a data set of `FORMS`, downloading it to ``$LOCKSTEP_DATA`` or ``~/.cache/lockstep`` where needed.

    Raises `ScenarioError` (key ``workload.dataset``) when it is neither there nor to be had.
    """
    read = {"digits": _digits, "fake": _fake}.get(name)
    train_x, train_y, test_x, test_y = read() if read else _torchvision(name)
    # The images hold small integers, so these sums are exact: the same on every machine, with any threads.
    pixels = train_x.double()
    mean = pixels.mean((0, 2, 3), keepdim=True)
    spread = (pixels.square().mean((0, 2, 3), keepdim=True) - mean.square()).sqrt()
    normal_train, normal_test = (((x.double() - mean) / spread).float() for x in (train_x, test_x))
    return Dataset(normal_train, train_y.long(), normal_test, test_y.long(), FORMS[name].classes)


Split = tuple[Tensor, Tensor, Tensor, Tensor]


@functools.cache
def _sentences(its: Form) -> Dataset:
    number = {character: place for place, character in enumerate(sentences.ALPHABET)}
    tokens = torch.tensor([number[character] for character in sentences.text().characters])

    def cut(start: int, samples: int) -> tuple[Tensor, Tensor]:
        length = samples * its.shape[0]
        both = tokens[start : start + length], tokens[start + 1 : start + 1 + length]
        return both[0].view(samples, -1), both[1].view(samples, -1)

    return Dataset(*cut(0, its.train), *cut(sentences.TRAIN, its.test), its.classes)


def _digits() -> Split:
    """Of scikit-learn's `load_digits`, whose import, with all of SciPy, takes as long as PyTorch's."""
    found = find_spec("sklearn")
    assert found is not None
    assert found.origin is not None
    with gzip.open(Path(found.origin).parent / "datasets/data/digits.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",")
    table = table[np.random.default_rng(0).permutation(len(table))]
    x = torch.tensor(table[:, :-1]).view(-1, 1, 8, 8)
    y = torch.tensor(table[:, -1])
    train = FORMS["digits"].train
    return x[:train], y[:train], x[train:], y[train:]


def _fake() -> Split:
    torchvision, form = import_torchvision(), FORMS["fake"]
    transform = torchvision.transforms.PILToTensor()
    count = form.train + form.test
    data = torchvision.datasets.FakeData(count, form.shape, form.classes, transform)
    pairs = [data[index] for index in range(count)]
    x, y = torch.stack([image for image, _ in pairs]), torch.tensor([label for _, label in pairs])
    return x[: form.train], y[: form.train], x[form.train :], y[form.train :]


def _torchvision(name: str) -> Split:
    root = Path(os.environ.get("LOCKSTEP_DATA") or "~/.cache/lockstep").expanduser()
    class_name, folder, files = DOWNLOADS[name]
    kind = getattr(import_torchvision().datasets, class_name)
    try:
        train, test = _read_or_download(kind, root, folder)
    except Exception as error:  # no network, no space, no permission, files that are something else, …
        reason = " ".join(str(error).split())
        problem = (
            f"the data set {name} is not whole in {root / folder} and could not be downloaded ({reason}). "
            f"To place it by hand, put the unpacked files {files} there, or point LOCKSTEP_DATA at a "
            f"directory that has {folder}/. The data set digits needs no download."
        )
        raise ScenarioError(problem, key="workload.dataset") from error
    return *_images(train), *_images(test)


def _read_or_download(kind: Any, root: Path, folder: str) -> tuple[Any, Any]:
    """Read the two parts; if they are not there, download beside them and move them into place when whole."""
    try:
        return kind(root, train=True), kind(root, train=False)
    except RuntimeError:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as staging:
            parts = kind(staging, train=True, download=True), kind(staging, train=False)
            with suppress(OSError):  # another process may have been faster
                (Path(staging) / folder).rename(root / folder)
        return parts


def _images(part: Any) -> tuple[Tensor, Tensor]:
    x = torch.as_tensor(part.data)
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x.unsqueeze(1), torch.as_tensor(part.targets)
