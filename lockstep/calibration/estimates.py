"""What a measurement found; and estimates from repeated timings, with 95% intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

RESAMPLES = 400


@dataclass(frozen=True)
class Estimates:
    """Values by the dotted key of a scenario's cluster, such as `network.latency`, in base units.

    `intervals`: 95% confidence, of those that have one. `evidence`: the numbers behind them, by name; plain
    lists, dicts, strings and numbers.
    """

    settings: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)


class Line(NamedTuple):
    """Seconds = `overhead` (s) + bytes ÷ `bandwidth` (bytes/s)."""

    overhead: float
    bandwidth: float


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
