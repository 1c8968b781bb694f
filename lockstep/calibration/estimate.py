"""Estimates from repeated timings, with 95% intervals."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

RESAMPLES = 400


class Line(NamedTuple):
    """Seconds = `overhead` (s) + bytes ÷ `bandwidth` (bytes/s)."""

    overhead: float
    bandwidth: float


def median_interval(values: Sequence[float]) -> list[float]:
    """The order statistics between which the median lies with 95%, by the binomial distribution."""
    ordered, n = sorted(values), len(values)
    reach = 0.98 * n**0.5 + 0.5
    return [ordered[max(0, int(n / 2 - reach))], ordered[min(n - 1, int(n / 2 + reach))]]


def line(nbytes: Sequence[float], seconds: Sequence[float]) -> Line:
    """Through the smallest and the largest size, which come first and last."""
    per_byte = (seconds[-1] - seconds[0]) / (nbytes[-1] - nbytes[0])
    return Line(max(0.0, seconds[0] - nbytes[0] * per_byte), 1 / per_byte if per_byte > 0 else np.inf)


def rate(nbytes: Any, seconds: Any) -> float:
    """Bytes/s: the geometric mean of those of each size."""
    return float(np.exp(np.log(np.asarray(nbytes, float) / np.asarray(seconds, float)).mean()))


def resampled(
    estimate: Callable[[list[float]], Any], samples: Sequence[Sequence[float]]
) -> tuple[Any, list[tuple[float, float]]]:
    """`estimate` of the samples' medians, a tuple or number, and the interval of each of its numbers.

    The bootstrap draws anew from each sample.
    """
    rng = np.random.default_rng(0)
    found = estimate([float(np.median(times)) for times in samples])
    drawn = [np.median(rng.choice(times, (RESAMPLES, len(times))), axis=1) for times in samples]
    again = np.array([np.atleast_1d(estimate(list(medians))) for medians in zip(*drawn, strict=True)])
    # Of those drawn, not between two of them: where a rate is infinite there is nothing between.
    low, high = np.quantile(again, [0.025, 0.975], axis=0, method="inverted_cdf")
    return found, [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
