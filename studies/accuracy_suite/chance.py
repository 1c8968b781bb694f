"""Several runs of a point are one: their mean, and how sure chance leaves it.

Where queues form, training without barriers is chaotic: two runs of one scenario, real or simulated, that
differ by a microsecond somewhere differ by percents in the end. What is compared is therefore, on either
side, the mean of as many runs as chance asks for.
"""

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

from lockstep.studies.accuracy_suite.digest import Digest

_MEANS = (
    *("throughput", "duration_s", "step_time_s", "compute", "network", "wait", "utilisation", "stretch"),
    *("samples", "updates", "dropped"),
)


def wanting(runs: Sequence[Digest], least: int, most: int, error: float) -> bool:
    """Whether another run is needed: there are `least` at least, and `most` at most.

    In between it is needed while the standard error of their mean is more than `error`.
    """
    return len(runs) < least or (len(runs) < most and standard_error(runs) > error)


def standard_error(digests: Sequence[Digest]) -> float:
    """Of the mean of runs: of throughput or mean staleness, whichever is more, relative as in `scatter`.

    A single run tells that of its mean staleness, if that of each update is a draw by itself.
    """
    if len(digests) == 1:
        return _of_ages(digests[0])
    rates, ages = ([each[key] for each in digests] for key in ("throughput", "staleness_mean"))
    return scatter(rates, ages) / sqrt(len(digests))


def _of_ages(run: Digest) -> float:
    number, mean = sum(run["staleness_count"]), run["staleness_mean"]
    pairs = zip(run["staleness"], run["staleness_count"], strict=True)
    squares = sum(count * (age - mean) ** 2 for age, count in pairs)
    return sqrt(squares) / number / max(1.0, abs(mean)) if number else 0.0


def scatter(throughputs: Sequence[float | None], ages: Sequence[float | None]) -> float:
    """The standard deviation of runs' throughput or mean staleness, whichever is more.

    Relative to the mean; of staleness to one version, if that is more, as its error is.
    """
    rates, means = ([each for each in values if each is not None] for values in (throughputs, ages))
    found = stdev(rates) / fmean(rates) if len(rates) > 1 else 0.0
    return max(found, stdev(means) / max(1.0, abs(fmean(means)))) if len(means) > 1 else found


def pooled(digests: Sequence[Digest]) -> Digest:
    """The mean of several runs; all their staleness in one histogram; all else as in the first.

    `spread`: the standard deviation of their throughputs, relative to the mean.
    """
    first, throughputs = digests[0], [each["throughput"] for each in digests]
    if len(digests) == 1 or None in throughputs:
        return {**first, "spread": None}
    means = {key: fmean(each[key] for each in digests) for key in _MEANS if first[key] is not None}
    counts: Counter[int] = Counter()
    for each in digests:
        counts.update(dict(zip(each["staleness"], each["staleness_count"], strict=True)))
    ages = sorted(counts)
    return {
        **first,
        **means,
        "staleness": ages,
        "staleness_count": [counts[age] for age in ages],
        "staleness_mean": sum(age * counts[age] for age in ages) / counts.total() if ages else None,
        "warnings": [*dict.fromkeys(line for each in digests for line in each["warnings"])],
        "spread": stdev(throughputs) / means["throughput"],
    }
