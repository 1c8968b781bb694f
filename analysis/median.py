"""The median, without numpy.ma, which numpy's own loads: a hundredth of a small simulation."""

from typing import Any

import numpy as np


def median(values: Any) -> Any:
    """That of values of shape (…, count), none of them nan; shape (…), with the bits of np.median."""
    ordered = np.sort(np.asarray(values, float))
    count = ordered.shape[-1]
    return (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2
