"""An embedding that learns, and which rows of it a mini-batch touches: as for recommendations."""

import functools
from math import nan
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from lockstep.scenarios.workload import Problem
from lockstep.workloads import seeds
from lockstep.workloads.base import Evaluation, Ready
from lockstep.workloads.batches import Batches, part
from lockstep.workloads.partition import deal
from lockstep.workloads.sizes import EMBEDDING_HELD_OUT, EMBEDDING_SAMPLES, sizes

_LOGIT = 3.0  # the standard deviation of the truth
_START = 0.3  # that of a number at first: at 0 there is no gradient


class Pairs(NamedTuple):
    """Who met what, and whether it was liked: rows, shape (samples, 2), and labels of 0 and 1."""

    rows: NDArray[np.int64]
    labels: NDArray[np.float32]


@functools.lru_cache(8)
def drawn(count: int, width: int, seed: int) -> Pairs:
    """Training samples, then those held out, of a table of `count` rows: users first, then as many items.

    Of either kind row k is drawn as often as 1/(k + 1) (Zipf). The label is 1 with probability
    σ(3u·v/√width), u and v drawn from N(0, I).
    """
    rng, each = seeds.generator(seed, "embedding"), count // 2
    often = 1 / np.arange(1, each + 1)
    truth = rng.standard_normal((count, width))
    number = EMBEDDING_SAMPLES + EMBEDDING_HELD_OUT
    rows = np.stack([rng.choice(each, number, p=often / often.sum()) + k * each for k in range(2)], axis=1)
    logits = _LOGIT / width**0.5 * truth[rows].prod(1).sum(1)
    return Pairs(rows, (logits > rng.logistic(size=number)).astype(np.float32))


def dealt(workload: Problem, workers: int, seed: int) -> tuple[Pairs, Batches]:
    """All samples, and which of them each worker has in which mini-batch."""
    pairs = drawn(workload.dimension // workload.width, workload.width, seed)
    shares = deal(pairs.labels[:EMBEDDING_SAMPLES], workers, seed, workload.partition)
    return pairs, Batches(shares, workload.batch_size, seed)


class Touched:
    """The rows that mini-batches touch, each a run of the parameters."""

    def __init__(self, workload: Problem, workers: int, seed: int) -> None:
        self.rows = [
            slice(start, start + workload.width) for start in range(0, workload.dimension, workload.width)
        ]
        self._pairs, self._batches = dealt(workload, workers, seed)

    def __call__(self, worker: int, step: int) -> list[int]:
        """The numbers of the rows that mini-batch `step` of a worker touches, rising."""
        return np.unique(self._pairs.rows[self._batches(worker, step)]).tolist()  # type: ignore[no-any-return]


def first_parameters(count: int, seed: int) -> Tensor:
    """Return what an embedding of so many parameters begins with."""
    rng = seeds.generator(seed, "table")
    return torch.from_numpy(_START * rng.standard_normal(count)).float()


class Embedding:
    """Matrix factorisation: a sample is a user and an item, liked with probability σ(u·v) of their rows.

    The loss is the mean log loss; a gradient is zero but for the rows of its mini-batch. The start is drawn.
    """

    def __init__(self, workload: Problem, workers: int, seed: int, device: str) -> None:
        self.sizes = sizes(workload)
        self._width, self._seed, self._device = workload.width, seed, device
        pairs, self._batches = dealt(workload, workers, seed)
        rows, labels = (torch.from_numpy(array).to(device) for array in pairs)
        self._rows, self._labels = rows[:EMBEDDING_SAMPLES], labels[:EMBEDDING_SAMPLES]
        self._held_out = rows[EMBEDDING_SAMPLES:], labels[EMBEDDING_SAMPLES:]
        self.loss = nan

    def initial(self) -> Tensor:
        """Return normal numbers of a standard deviation of 0.3."""
        return first_parameters(self.sizes.parameters, self._seed).to(self._device)

    def epoch(self, worker: int) -> int:
        """Return the mini-batches in one pass over the worker's share, rounded up."""
        return self._batches.in_epoch(worker)

    def gradient(self, parameters: Tensor, worker: int, step: int, ready: Ready | None = None) -> Tensor:
        """Return the gradient of the mean log loss over the batch, new, of shape (dimension,)."""
        return self.part(parameters, worker, step, 0, 1)

    def part(self, parameters: Tensor, worker: int, step: int, number: int, parts: int) -> Tensor:
        """Return the gradient of the mean log loss over one of the equal parts of a mini-batch."""
        batch = torch.from_numpy(part(self._batches(worker, step), number, parts)).to(self._device)
        rows, labels = self._rows[batch], self._labels[batch]
        table = parameters.to(self._device).view(-1, self._width)
        both = table[rows]
        logits = both.prod(1).sum(1)
        self.loss = functional.binary_cross_entropy_with_logits(logits, labels).item()
        errors = (torch.sigmoid(logits) - labels) / len(labels)
        found = torch.zeros_like(table)  # index_put_ adds in one order, on a GPU too
        found.index_put_((rows.flatten(),), (errors[:, None, None] * both.flip(1)).flatten(0, 1), True)
        return found.flatten()

    def evaluate(self, parameters: Tensor) -> Evaluation:
        """Return the mean log loss and the accuracy on the held-out samples."""
        rows, labels = self._held_out
        logits = parameters.to(self._device).view(-1, self._width)[rows].prod(1).sum(1)
        loss = functional.binary_cross_entropy_with_logits(logits, labels)
        return Evaluation(loss.item(), ((logits > 0) == (labels > 0.5)).double().mean().item())
