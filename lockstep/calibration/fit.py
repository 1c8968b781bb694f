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
from scipy import stats

Array = NDArray[np.float64]
REPLICATES = 400
_FLATTEST = 1.001  # tail index of a Pareto distribution that is tried
_MOST = 1000  # draws of a replicate: of a longer sample the intervals are scaled
_RELATED = 0.05  # a lower correlation counts as none


class Family(NamedTuple):
    """A distribution: scipy's, what of it is fixed in a fit, and its keys in a scenario.

    `named` makes values of the keys of scipy's parameters, `frozen` scipy's distribution of such values, or
    of arrays of them.
    """

    keys: tuple[str, ...]
    of: Any
    fixed: Mapping[str, float]
    named: Callable[..., tuple[float, ...]]
    frozen: Callable[..., Any]

    def fit(self, x: Array) -> Array:
        """The likeliest values of the keys, for times of shape (n,)."""
        return np.array(self.named(*self.of.fit(x, **self.fixed)))

    def ks(self, parameters: Array, x: Array) -> Array:
        """Kolmogorov–Smirnov distances: x of shape (…, n), the keys' values of shape (…, k).

        `stats.ks_1samp`, which takes one sample at a time, is ten times slower over the bootstrap's.
        """
        n = x.shape[-1]
        expected = self.frozen(*np.moveaxis(parameters, -1, 0)[..., None]).cdf(np.sort(x, -1))
        above = np.arange(1, n + 1) / n - expected
        return np.asarray(np.maximum(above, expected - np.arange(n) / n).max(-1))


@dataclass(frozen=True)
class Fit:
    """A distribution fitted to a sample; times in seconds."""

    distribution: str
    parameters: Mapping[str, float]  # by their keys in a scenario
    aic: float
    ks: float  # the largest distance between the sample's and the distribution's cumulative shares
    p: float | None = None  # how often a sample of the distribution itself is as far; None: not asked for
    intervals: Mapping[str, tuple[float, float]] | None = None  # 95%


def _lognormal(s: float, _: float, scale: float) -> tuple[float, float]:
    return scale * np.exp(s**2 / 2), np.sqrt(np.expm1(s**2))


def _lognormal_of(mean: Array, cv: Array) -> Any:
    variance = np.log1p(cv**2)
    return stats.lognorm(np.sqrt(variance), scale=mean * np.exp(-variance / 2))


def _gamma(shape: float, _: float, scale: float) -> tuple[float, float]:
    return shape * scale, shape**-0.5


def _gamma_of(mean: Array, cv: Array) -> Any:
    return stats.gamma(cv**-2, scale=mean * cv**2)


def _pareto(shape: float, _: float, least: float) -> tuple[float, float]:
    shape = max(shape, _FLATTEST)  # more than 1, where there is a mean
    return shape * least / (shape - 1), shape


def _pareto_of(mean: Array, shape: Array) -> Any:
    least = mean * (shape - 1) / shape * (1 - 1e-12)  # rounded up, it would rule out the smallest time itself
    return stats.pareto(shape, scale=least)


_FROM_0 = {"floc": 0.0}
FAMILIES = {
    "uniform": Family(
        ("low", "high"),
        stats.uniform,
        {},
        lambda low, width: (low, low + width),
        lambda low, high: stats.uniform(low, high - low),
    ),
    "exponential": Family(
        ("mean",), stats.expon, _FROM_0, lambda _, mean: (mean,), lambda mean: stats.expon(scale=mean)
    ),
    "shifted-exponential": Family(
        ("shift", "mean"), stats.expon, {}, lambda shift, mean: (shift, mean), stats.expon
    ),
    "lognormal": Family(("mean", "cv"), stats.lognorm, _FROM_0, _lognormal, _lognormal_of),
    "gamma": Family(("mean", "cv"), stats.gamma, _FROM_0, _gamma, _gamma_of),
    "pareto": Family(("mean", "shape"), stats.pareto, _FROM_0, _pareto, _pareto_of),
}  # fmt: skip; `constant` is for a sample without any spread


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
            found.append(Fit(name, named, aic, float(family.ks(parameters, x))))
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
    again = np.array([family.fit(each) for each in replicates])
    distances = family.ks(again, replicates)
    p = float((1 + (np.sqrt(n) * distances >= np.sqrt(draws) * fit.ks).sum()) / (1 + REPLICATES))
    low, high = np.quantile(again - estimate, [0.025, 0.975], axis=0) * np.sqrt(n / draws)
    bounds = np.stack([np.maximum(estimate - high, 0.0), estimate - low], -1)
    intervals = {key: (float(a), float(b)) for key, (a, b) in zip(family.keys, bounds, strict=True)}
    return replace(fit, p=p, intervals=intervals)
