"""Mixed precision: products are computed in 16 bits, parameters and gradients are float32.

torch's autocast decides which operations those are. In float16 small gradients would vanish, so the loss is
multiplied before the pass back, and the gradient divided (Micikevicius et al. 2018, "Mixed Precision
Training", section 3.2).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import Tensor

_TYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_LARGEST = 2.0**16


class Precision:
    """What a gradient is computed in.

    The scale of float16 begins at 2^16 for each gradient and is halved until no element overflows: unlike a
    scale that follows the run, it makes the gradient a function of its arguments.
    """

    def __init__(self, name: Literal["float32", "bf16", "fp16"]) -> None:
        self._type = _TYPES[name]

    @property
    def repeats(self) -> bool:
        """Whether a pass back may be made again."""
        return self._type == torch.float16

    def computing(self, device: torch.device) -> AbstractContextManager[None]:
        """Inside it, a device computes so."""
        return torch.autocast(device.type, self._type, enabled=self._type != torch.float32)

    def backward(self, back: Callable[[float, bool], Tensor]) -> Tensor:
        """Return the gradient, of float32. `back`: goes back from so many times the loss, and again if so."""
        if not self.repeats:
            return back(1.0, False)
        scale = _LARGEST
        while True:
            gradient = back(scale, scale > 1) / scale
            if scale == 1 or bool(gradient.isfinite().all()):
                return gradient
            scale /= 2
