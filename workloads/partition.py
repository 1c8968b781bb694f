"""Who has which samples: the training set dealt out to the workers, evenly or not.

Every sample goes to exactly one worker, and every worker has at least one. A function of the labels, the
number of workers, the seed and the partition alone. Loads no torch.
"""

import numpy as np
from numpy.typing import NDArray

from lockstep.scenarios import ScenarioError, Workload
from lockstep.scenarios.workload import Data, Dirichlet, Labels, Partition, Problem, UserTask
from lockstep.workloads import seeds

Indices = NDArray[np.int64]


def deal(labels: NDArray[np.generic], workers: int, seed: int, partition: Partition = "iid") -> list[Indices]:
    """Return each worker's samples, as indices into `labels`, of shape (samples,).

    Raises `ScenarioError` where there are too few samples or labels.
    """
    samples = len(labels)
    if workers > samples:
        problem = f"{workers} workers cannot share the {samples} samples of the training set"
        raise ScenarioError(problem, key="cluster.workers")
    rng = seeds.generator(seed, "shards")
    order = rng.permutation(samples)
    match partition:
        case Dirichlet():
            return _by_dirichlet(order, labels, workers, partition.dirichlet, rng)
        case Labels():
            return _by_labels(order, labels, workers, partition.labels, rng)
        case _:  # like cards
            return [order[worker::workers] for worker in range(workers)]


def _by_dirichlet(
    order: Indices, labels: NDArray[np.generic], workers: int, alpha: float, rng: np.random.Generator
) -> list[Indices]:
    """Cut the samples of each label in shares drawn from Dirichlet(α) (Yurochkin et al. 2019).

    Workers differ in their labels, and in how many samples they have. Hsu et al. 2019 draw the labels of each
    worker instead, all with as many samples, so some samples go to several workers and some to none.
    """
    shares: list[list[Indices]] = [[] for _ in range(workers)]
    for label in np.unique(labels):
        own = order[labels[order] == label]
        parts = rng.dirichlet(np.full(workers, alpha)).cumsum()[:-1]
        for share, part in zip(shares, np.split(own, (parts * len(own)).astype(np.int64)), strict=True):
            share.append(part)
    dealt = [np.concatenate(share) for share in shares]
    counts = np.array([len(share) for share in dealt])
    for empty in np.flatnonzero(counts == 0).tolist():  # takes one from who has most
        most = int(counts.argmax())
        dealt[most], dealt[empty] = dealt[most][:-1], dealt[most][-1:]
        counts[most], counts[empty] = counts[most] - 1, 1
    return dealt


def _by_labels(
    order: Indices, labels: NDArray[np.generic], workers: int, each: int, rng: np.random.Generator
) -> list[Indices]:
    """Sort by label, cut into `each` equal pieces a worker, and deal these out (McMahan et al. 2017).

    Where a label ends inside a piece, that piece has another one too.
    """
    key, known = "workload.partition.labels", len(np.unique(labels))
    if each > known:
        raise ScenarioError(f"must be at most {known}, as there are labels, not {each}", key=key)
    if each * workers > len(order):
        problem = f"{workers} workers with {each} labels each cannot share {len(order)} samples"
        raise ScenarioError(f"{problem}; must be at most {len(order) // workers}", key=key)
    pieces = np.array_split(order[labels[order].argsort(kind="stable")], each * workers)
    hands = rng.permutation(len(pieces)).reshape(workers, each)
    return [np.concatenate([pieces[number] for number in hand]) for hand in hands]


def unused(workload: Workload) -> list[str]:
    """Warnings about a partition of samples that nobody will look at."""
    if (
        isinstance(workload, Data | Problem | UserTask)
        and not workload.learns
        and workload.partition != "iid"
    ):
        return ["workload.partition means nothing where nothing is learned: ignored"]
    return []
