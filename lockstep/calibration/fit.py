"""Which distribution of a scenario a sample of times comes from: maximum likelihood, and how good that is.

The likeliest by Akaike's criterion is chosen. Intervals and the p-value of the Kolmogorov–Smirnov distance
are by parametric bootstrap, because the parameters are fitted and some are ends of the range, where the usual
formulas do not hold (Efron and Tibshirani 1993; Stute et al. 1993). Successive times are alike, so a sample
counts as fewer draws than it has: n ÷ (1 + 2Σρ), with the sum over the correlations of neighbours.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Array = NDArray[np.float64]
REPLICATES = 400
_FLATTEST = 1.001  # tail index of a Pareto distribution that is tried
_MOST = 1000  # draws of a replicate: of a longer sample the intervals are scaled
_RELATED = 0.05  # a lower correlation counts as none


class Family(NamedTuple):
    """A distribution: its keys in a scenario, and what fits it.

    `fit` is given times of shape (…, n) and returns parameters of shape (…, k); `frozen` is given the
    parameters, each of shape (…,), and returns scipy's distribution.
    """

    keys: tuple[str, ...]
    fit: Callable[[Array], Array]
    frozen: Callable[..., Any]


@dataclass(frozen=True)
class Fit:
    """A distribution fitted to a sample; times in seconds."""

    distribution: str
    parameters: Mapping[str, float]  # by their keys in a scenario
    aic: float
    ks: float  # the largest distance between the sample's and the distribution's cumulative shares
    p: float | None = None  # how often a sample of the distribution itself is as far; None: not asked for
    intervals: Mapping[str, tuple[float, float]] | None = None  # 95%


def _uniform(x: Array) -> Array:
    return np.stack([x.min(-1), x.max(-1)], -1)


def _exponential(x: Array) -> Array:
    return np.asarray(x.mean(-1)[..., None])


def _shifted_exponential(x: Array) -> Array:
    return np.stack([x.min(-1), x.mean(-1) - x.min(-1)], -1)


def _lognormal(x: Array) -> Array:
    logs = np.log(x)
    variance = logs.var(-1)
    return np.stack([np.exp(logs.mean(-1) + variance / 2), np.sqrt(np.expm1(variance))], -1)


def _gamma(x: Array) -> Array:
    """The shape k solves log k − ψ(k) = log mean − mean log: Newton's steps from Minka's approximation."""
    mean = x.mean(-1)
    s = np.maximum(np.log(mean) - np.log(x).mean(-1), 1e-12)
    k = (3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    for _ in range(8):
        k = 1 / (1 / k + (np.log(k) - special.digamma(k) - s) / (k - k**2 * special.polygamma(1, k)))
    return np.stack([mean, k**-0.5], -1)


def _pareto(x: Array) -> Array:
    """The mean and the tail index, which is more than 1 where there is a mean."""
    least = x.min(-1)
    shape = np.maximum(1 / np.log(x / least[..., None]).mean(-1), _FLATTEST)
    return np.stack([shape * least / (shape - 1), shape], -1)


def _lognormal_of(mean: Array, cv: Array) -> Any:
    variance = np.log1p(cv**2)
    return stats.lognorm(np.sqrt(variance), scale=mean * np.exp(-variance / 2))


def _pareto_of(mean: float, shape: float) -> Any:
    least = mean * (shape - 1) / shape * (1 - 1e-12)  # rounded up, it would rule out the smallest time itself
    return stats.pareto(shape, scale=least)


FAMILIES = {
    "uniform": Family(("low", "high"), _uniform, lambda low, high: stats.uniform(low, high - low)),
    "exponential": Family(("mean",), _exponential, lambda mean: stats.expon(scale=mean)),
    "shifted-exponential": Family(
        ("shift", "mean"), _shifted_exponential, lambda shift, mean: stats.expon(shift, mean)
    ),
    "lognormal": Family(("mean", "cv"), _lognormal, _lognormal_of),
    "gamma": Family(("mean", "cv"), _gamma, lambda mean, cv: stats.gamma(cv**-2, scale=mean * cv**2)),
    "pareto": Family(("mean", "shape"), _pareto, _pareto_of),
}  # `constant` is for a sample without any spread


def fits(times: Any, seed: int = 0) -> list[Fit]:
    """All distributions that a sample of times (s) may come from, the likeliest first.

    The first one has intervals and a p-value; they are a function of the sample and the seed.
    """
    best, *others = candidates(times)
    return [with_intervals(best, times, seed), *others]


def candidates(times: Any) -> list[Fit]:
    """As `fits`, without intervals."""
    x = np.asarray(times, float)
    if np.ptp(x) == 0:
        return [Fit("constant", {"value": float(x[0])}, 0.0, 0.0)]
    found = []
    for name, family in FAMILIES.items():
        parameters = family.fit(x)
        if name != "pareto" or parameters[1] > _FLATTEST:
            likelihood = float(family.frozen(*parameters).logpdf(x).sum())
            aic = 2 * len(family.keys) - 2 * likelihood
            named = dict(zip(family.keys, map(float, parameters), strict=True))
            found.append(Fit(name, named, aic, float(_ks(family, parameters, x))))
    return sorted(found, key=lambda fit: fit.aic)


def independent_draws(times: Any) -> float:
    """How many independent draws say as much about the mean as these times, in their order; at least 10."""
    x = np.asarray(times, float) - np.mean(times)
    total, related = float(x @ x), 0.0
    for lag in range(1, len(x) // 2):
        correlation = float(x[lag:] @ x[:-lag]) / total
        if correlation < _RELATED:
            break
        related += correlation
    return max(10.0, len(x) / (1 + 2 * related))


def with_intervals(fit: Fit, times: Any, seed: int = 0) -> Fit:
    """The same fit with its intervals and p-value."""
    if fit.distribution == "constant":
        value = fit.parameters["value"]
        return replace(fit, p=1.0, intervals={"value": (value, value)})
    x = np.asarray(times, float)
    family, rng = FAMILIES[fit.distribution], np.random.default_rng(seed)
    estimate = np.array(list(fit.parameters.values()))
    draws = independent_draws(x)
    n = round(min(draws, _MOST))
    replicates = family.frozen(*estimate).rvs((REPLICATES, n), random_state=rng)
    again = family.fit(replicates)
    distances = _ks(family, again, replicates)
    p = float((1 + (np.sqrt(n) * distances >= np.sqrt(draws) * fit.ks).sum()) / (1 + REPLICATES))
    low, high = np.quantile(again - estimate, [0.025, 0.975], axis=0) * np.sqrt(n / draws)
    bounds = np.stack([np.maximum(estimate - high, 0.0), estimate - low], -1)
    intervals = {key: (float(a), float(b)) for key, (a, b) in zip(family.keys, bounds, strict=True)}
    return replace(fit, p=p, intervals=intervals)


def _ks(family: Family, parameters: Array, x: Array) -> Array:
    """Kolmogorov–Smirnov distances: x of shape (…, n), parameters of shape (…, k)."""
    n = x.shape[-1]
    expected = family.frozen(*np.moveaxis(parameters, -1, 0)[..., None]).cdf(np.sort(x, -1))
    above = np.arange(1, n + 1) / n - expected
    return np.asarray(np.maximum(above, expected - np.arange(n) / n).max(-1))
