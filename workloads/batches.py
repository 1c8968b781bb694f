"""Which samples a worker sees at which step."""

import numpy as np
from numpy.typing import NDArray

from scenarios import ScenarioError
from workloads import seeds

Indices = NDArray[np.int64]


class Batches:
    """Endless streams of training indices, one per worker, cut into mini-batches.

    A seeded permutation of the training set is dealt out to the workers like cards; each worker goes through
    its shard again and again, shuffled anew each time, so that a batch may reach across two such epochs.
    """

    def __init__(self, samples: int, workers: int, batch_size: int, seed: int) -> None:
        if workers > samples:
            problem = f"{workers} workers cannot share the {samples} samples of the training set"
            raise ScenarioError(problem, key="cluster.workers")
        order = seeds.generator(seed, "shards").permutation(samples)
        self.shards: list[Indices] = [order[worker::workers] for worker in range(workers)]
        self._size, self._seed = batch_size, seed
        self._epochs: dict[int, tuple[int, Indices]] = {}  # a worker's latest epoch: a cache

    def __call__(self, worker: int, step: int) -> Indices:
        """Return the indices of mini-batch number `step` (from 0) of `worker`, of shape (batch_size,)."""
        length, begin = len(self.shards[worker]), step * self._size
        first, last = begin // length, (begin + self._size - 1) // length
        stream = np.concatenate([self._epoch(worker, epoch) for epoch in range(first, last + 1)])
        return stream[begin - first * length :][: self._size]

    def _epoch(self, worker: int, epoch: int) -> Indices:
        if self._epochs.get(worker, (None,))[0] != epoch:
            rng = seeds.generator(self._seed, "epoch", worker, epoch)
            self._epochs[worker] = (epoch, rng.permutation(self.shards[worker]))
        return self._epochs[worker][1]
