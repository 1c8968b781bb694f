"""Mini-batches that processes of their own read ahead for one worker: torch's DataLoader over its stream."""

import ctypes
import signal
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset

from lockstep.workloads.elsewhere import Elsewhere
from lockstep.workloads.loading_time import AHEAD
from lockstep.workloads.samples import collated, everything_seeded

_PR_SET_PDEATHSIG = 1
Sample = tuple[int, int]  # its index, and the seed of what is random in it
Collating = Callable[[list[Any]], Any]
Stream = Callable[[int, int], list[Sample]]  # of a worker and a step: the samples of the mini-batch


class Loaders:
    """What reads the mini-batches of `worker`, in the order of steps; without processes, when asked.

    Each batch is what the data set's own reading would make of it, whoever reads it. The last one is kept:
    asking for it again takes no time. A loss that changes it in place is given copies from then on, as one is
    that is given more than tensors. A mini-batch is read as a whole, and its `parts` are collated each by
    itself.
    """

    def __init__(
        self, dataset: Any, collate: Collating, stream: Stream, worker: int, processes: int, parts: int
    ) -> None:
        self.worker, self.parts = worker, parts
        self._last: tuple[int, list[Any]] = (-1, [])
        self._as_read: list[list[int]] = []  # the versions of its tensors
        self._copies = False  # whether copies are handed out, as a loss changes what it is given, or may
        self._next = -1  # the step that comes next
        self._batches: Iterator[Any] = iter(())
        self._begin: Callable[[int], Iterator[Any]] = lambda step: iter(
            DataLoader(
                _Seeded(dataset),
                batch_sampler=_Steps(stream, worker, step),
                num_workers=processes,
                collate_fn=partial(_in_parts, collate, parts),
                worker_init_fn=_end_with_parent if processes else None,
                multiprocessing_context="fork" if processes else None,
                prefetch_factor=AHEAD if processes else None,
                generator=torch.Generator("cpu"),  # else it would draw from what others draw from
            )
        )

    def batch(self, step: int, number: int) -> Any:
        """Return a part of mini-batch `step`, both from 0, on the CPU.

        Raises `Elsewhere` for what reading it raises.
        """
        if step != self._last[0]:
            self._read(step)
        elif not self._copies and _versions(self._last[1][number]) != self._as_read[number]:
            self._copies = True
            self._read(step)
        part = self._last[1][number]
        return deepcopy(part) if self._copies else part

    def _read(self, step: int) -> None:
        if step != self._next:
            self._batches = self._begin(step)
        found = next(self._batches)
        if isinstance(found, Elsewhere):
            raise found
        self._last, self._next = (step, found), step + 1
        self._copies = self._copies or not _is_plain(found)
        self._as_read = [_versions(part) for part in found]

    def end(self) -> None:
        """Let the processes go."""
        self._batches, self._next = iter(()), -1


class _Seeded(Dataset[Any]):
    """A data set whose samples are seeded as they are read."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, sample: Sample) -> Any:
        index, seed = sample
        try:
            with everything_seeded(seed):
                return seed, self._dataset[index]
        except Exception as error:  # which torch would make one of its own, with a traceback for its message
            return seed, Elsewhere.of(error)


class _Steps:
    """The mini-batches of a worker from a step on, without end."""

    def __init__(self, stream: Stream, worker: int, step: int) -> None:
        self._stream, self._worker, self._step = stream, worker, step

    def __iter__(self) -> Iterator[list[Sample]]:
        step = self._step
        while True:
            yield self._stream(self._worker, step)
            step += 1


def _is_plain(batch: Any) -> bool:
    """Whether it is tensors and numbers alone, of which is known whether they were changed."""
    return all(isinstance(leaf, torch.Tensor | int | float | str | None) for leaf in tree_leaves(batch))


def _versions(batch: Any) -> list[int]:
    return [leaf._version for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]


def _in_parts(collate: Collating, parts: int, read: list[tuple[int, Any]]) -> list[Any] | Elsewhere:
    seeds, samples = zip(*read, strict=True)
    for sample in samples:
        if isinstance(sample, Elsewhere):
            return sample
    size = len(samples) // parts
    try:
        return [
            collated(collate, [*samples[first : first + size]], seeds[first])
            for first in range(0, parts * size, size)
        ]
    except Exception as error:
        return Elsewhere.of(error)


def _end_with_parent(_loader: int) -> None:
    """Never outlive who reads, however that ends; its signals are not this process's to handle."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
