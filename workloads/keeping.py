"""What autograd keeps from a forward pass for the backward pass, by storage: what shares one is kept once."""

from collections.abc import Collection

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


def storage_of(tensor: Tensor) -> StorageWeakRef:
    """The memory that a tensor lies in; two are equal if it is the same."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


class Keeping(torch.autograd.graph.saved_tensors_hooks):
    """Inside it, what is kept is noted in `kept`: bytes by storage, but for `others`, whoever keeps those."""

    def __init__(self, others: Collection[StorageWeakRef]) -> None:
        super().__init__(self._pack, lambda tensor: tensor)
        self.kept: dict[StorageWeakRef, int] = {}
        self._others = others

    @property
    def nbytes(self) -> int:
        """How much that is together."""
        return sum(self.kept.values())

    def note(self, tensor: Tensor) -> None:
        """Note what is kept besides."""
        storage = storage_of(tensor)
        if storage not in self._others:
            self.kept[storage] = tensor.untyped_storage().nbytes()

    def _pack(self, tensor: Tensor) -> Tensor:
        self.note(tensor)
        return tensor.detach()  # itself, if it is an output, would keep itself alive
