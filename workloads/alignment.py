"""Vectors where torch would have put them: the last bits of a result can depend on that."""

from torch import Tensor

ALIGNMENT = {"cpu": 64, "cuda": 512, "meta": 1}  # bytes: where what torch allocates begins


def aligned(vector: Tensor) -> Tensor:
    """Return it, or a copy if it does not lie as torch's own memory does."""
    return vector if vector.data_ptr() % ALIGNMENT[vector.device.type] == 0 else vector.clone()
