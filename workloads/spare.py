"""Large vectors that are made again and again, such as gradients, in memory that stays with its process.

From 32 MiB on a piece of memory is the system's (heap.py), which gives it out anew filled with zeros: with
63 MB that was a third of a worker's processor time, where a gradient itself took next to none.
"""

import mmap
import weakref
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from lockstep.workloads.heap import LARGEST


class Spare:
    """Vectors like another one: what one lay in is another's as soon as nothing refers to it any more."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._free: list[mmap.mmap] = []

    def vector(self) -> Tensor:
        """One of which no number is set."""
        if self._like.device.type != "cpu" or self._like.nbytes < LARGEST:
            return torch.empty_like(self._like)
        memory = self._free.pop() if self._free else _new(self._like.nbytes)
        found = np.frombuffer(memory, np.uint8)
        weakref.finalize(found, self._free.append, memory).atexit = False
        return torch.from_numpy(found).view(self._like.dtype)


def _new(nbytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # not on this system, or not in its kernel
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
