"""Accelerators, such as GPUs, of whatever kind torch finds: they compute on while Python does."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, device


def accelerated(device: "device") -> bool:
    """Whether it is one."""
    return device.type not in ("cpu", "meta")


def finished(vector: "Tensor") -> "Tensor":
    """Return a vector once it is there: what the current stream has been told so far has been done."""
    if accelerated(vector.device):
        import torch

        torch.accelerator.current_stream(vector.device).synchronize()
    return vector
