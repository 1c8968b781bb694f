"""Which samples a worker sees at which step."""

from collections.abc import Sequence
from math import ceil

import numpy as np

from lockstep.workloads import seeds
from lockstep.workloads.partition import Indices


def part(batch: Indices, number: int, parts: int) -> Indices:
    """Return part `number` (from 0) of so many equal parts of a mini-batch."""
    size = len(batch) // parts
    return batch[number * size :][:size]


class Batches:
    """Endless streams of training indices, one per worker, cut into mini-batches.

    Each worker goes through its share of the samples (partition.py) again and again, shuffled anew each time,
    so that a batch may reach across two such epochs.
    """

    def __init__(self, shares: Sequence[Indices], batch_size: int, seed: int) -> None:
        self.shares = shares
        self._size, self._seed = batch_size, seed
        self._epochs: dict[int, tuple[int, Indices]] = {}  # a worker's latest epoch: a cache

    def in_epoch(self, worker: int) -> int:
        """Return the mini-batches in one pass over the worker's share, rounded up."""
        return ceil(len(self.shares[worker]) / self._size)

    def __call__(self, worker: int, step: int) -> Indices:
        """Return the indices of mini-batch number `step` (from 0) of `worker`, of shape (batch_size,)."""
        length, begin = len(self.shares[worker]), step * self._size
        first, last = begin // length, (begin + self._size - 1) // length
        stream = np.concatenate([self._epoch(worker, epoch) for epoch in range(first, last + 1)])
        return stream[begin - first * length :][: self._size]

    def _epoch(self, worker: int, epoch: int) -> Indices:
        if self._epochs.get(worker, (None,))[0] != epoch:
            rng = seeds.generator(self._seed, "epoch", worker, epoch)
            self._epochs[worker] = (epoch, rng.permutation(self.shares[worker]))
        return self._epochs[worker][1]
