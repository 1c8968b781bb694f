"""Student's 95% confidence interval of a mean."""

from typing import Any

import numpy as np


def half_width(standard_error: Any, count: Any) -> Any:
    """Half of the interval, in the unit of the standard error, for means of `count` independent values.

    Numbers or arrays of the same shape. A single value has no standard error; give 0 for it.
    """
    from scipy.special import stdtrit  # which takes longer to load than a small simulation

    return standard_error * stdtrit(np.maximum(np.subtract(count, 1), 1), 0.975)


def half_width_of(values: Any) -> Any:
    """That of the mean of values of shape (count, …), at least two; shape (…)."""
    values = np.asarray(values, float)
    return half_width(values.std(0, ddof=1) / len(values) ** 0.5, len(values))
