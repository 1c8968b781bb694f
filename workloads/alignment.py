"""Vectors where torch would have put them: the last bits of a result can depend on that."""

from torch import Tensor

_ALIGNMENT = {"cpu": 64, "meta": 1}  # bytes: where what torch allocates begins
_OF_ACCELERATORS = 512


def aligned(vector: Tensor) -> Tensor:
    """Return it, or a copy if it does not lie as torch's own memory does."""
    begins = _ALIGNMENT.get(vector.device.type, _OF_ACCELERATORS)
    return vector if vector.data_ptr() % begins == 0 else vector.clone()
