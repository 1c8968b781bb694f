"""Least squares of logarithms: the values, how sure they are, and which cannot be told apart.

Values and what they predict are natural logarithms, so steps, slopes and errors are relative: a slope is
by how many percent a prediction changes where a value changes by one. Intervals are those of the profile
likelihood (Venzon and Moolgavkar 1988): a value is in it if, with the others fitted anew, the sum of squares
grows by no more than chance allows. Where errors are small that is the usual Gauss-Newton interval; where a
value can be as large as it likes, only this says so.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, least_squares
from scipy.special import stdtrit
from scipy.stats import chi2, norm, qmc

Array = NDArray[np.float64]
Predict = Callable[[Array], Array]
"""Points of shape (n, k), each the values' logarithms, to predictions' logarithms of shape (n, rows)."""

STEP = 0.01
_FAR = 1.0  # the step of slopes on the way there
SCANNED = 8  # points of the first look, for each value
STARTS = 3  # of them, the best, from which is gone downhill
_ITERATIONS = 10
COARSE, FINE = 1e-3, 1e-5  # relative: when going downhill ends
_EXACT, _FEATHER = 0.1, 1e-6  # relative, of residuals: beyond which they are exact, and of what pulls back
_LEAST_NOISE = 1e-3  # relative: what a simulation leaves out is no less, whatever the residuals
_UNKNOWN_NOISE = 0.01  # relative: where nothing says how large it is
_TELLS = math.log(2)  # a direction is flat if noise hides that values along it double
_CHANCE = 0.01  # below which a sum of squares is too large for the sd that were given
_CLOSE, _ROUNDS = 0.1, 10  # how near the end of an interval is found
_SAME_SLOPES = 0.05  # of logarithms: slopes, which are shares of time, are hardly others so near


class Problem(NamedTuple):
    """`measured`: logarithms, shape (rows,); `sd`: theirs, or None; `low`, `high`: of values, shape (k,).

    `step`: of the values' logarithms, over which slopes are taken; a longer one where predictions are rough.
    """

    predict: Predict
    measured: Array
    sd: Array | None
    low: Array
    high: Array
    step: float = STEP

    @property
    def weight(self) -> Array:
        """By which residuals are multiplied."""
        return np.ones_like(self.measured) if self.sd is None else 1 / self.sd

    @property
    def rough(self) -> bool:
        """Whether predictions are, so that slopes are taken over a longer step."""
        return self.step > STEP

    @property
    def spare(self) -> int:
        """How many rows more than values."""
        return len(self.measured) - len(self.low)

    def residuals(self, points: Array) -> Array:
        """Weighted, for points of shape (n, k); shape (n, rows)."""
        return np.asarray((self.predict(points) - self.measured) * self.weight)

    def without(self, row: int) -> "Problem":
        """The same with a row less."""
        keep = np.arange(len(self.measured)) != row
        sd = None if self.sd is None else self.sd[keep]
        return self._replace(
            predict=lambda points: self.predict(points)[:, keep], measured=self.measured[keep], sd=sd
        )


class Optimum(NamedTuple):
    """The best values' logarithms, shape (k,), weighted residuals there, (rows,), and slopes, (rows, k)."""

    values: Array
    residuals: Array
    slopes: Array

    @property
    def sum(self) -> float:
        """The sum of squares."""
        return float(self.residuals @ self.residuals)


def scan(problem: Problem, start: Array) -> list[Array]:
    """Where to begin: the best of the start and of points that fill the range (a Latin hypercube)."""
    count = SCANNED * len(start)
    places = qmc.LatinHypercube(len(start), seed=0).random(count)
    points = np.vstack([start, problem.low + places * (problem.high - problem.low)])
    sums = (problem.residuals(points) ** 2).sum(axis=1)
    return [points[number] for number in np.argsort(sums, kind="stable")[:STARTS]]


def slopes(problem: Problem, values: Array, central: bool = True) -> Array:
    """Differences of the weighted predictions, to both sides or to one, shape (rows, k)."""
    k = len(values)
    steps = problem.step * np.eye(k)
    above, below = np.minimum(values + steps, problem.high), np.maximum(values - steps, problem.low)
    if not central:  # to the side where there is more room
        up = (problem.high - values >= values - problem.low)[:, None]
        above, below = np.where(up, above, values), np.where(up, values, below)
    found = problem.predict(np.vstack([above, below]))
    width = np.diagonal(above - below)
    return np.asarray(((found[:k] - found[k:]) / width[:, None]).T * problem.weight[:, None])


def downhill(
    problem: Problem,
    start: Array,
    end: float = FINE,
    iterations: int = _ITERATIONS,
    known: tuple[Array, Array] | None = None,
) -> Optimum:
    """From a start to where the sum of squares is least nearby; `end`: how small steps, and gains, end it.

    `known`: values, and the slopes there. Slopes are taken anew only where they are others.

    Besides the rows there is a residual that never changes, so that gains in what is exact already are small,
    and one a value that pulls it back by a feather's weight, so that a flat valley has a lowest place.
    """
    origin, width = problem.low, problem.high - problem.low  # steps are judged by where values are from 0
    begun = np.clip(start - origin, 1e-9 * width, (1 - 1e-9) * width)
    weight, rows = float(problem.weight.mean()), len(problem.measured)

    def residuals(values: Array) -> Array:
        still = weight * math.sqrt(end * rows) * _EXACT
        return np.append(
            problem.residuals(origin + values[None])[0], [*(values - begun) * weight * _FEATHER, still]
        )

    def derivatives(values: Array) -> Array:
        nonlocal known
        here = origin + values
        if known is None or np.abs(here - known[0]).max() > _SAME_SLOPES:
            known = here, slopes(problem, here, central=end < COARSE)
        pull = np.eye(len(values) + 1, len(values)) * weight * _FEATHER
        return np.vstack([known[1], pull])

    found: OptimizeResult = least_squares(
        residuals,
        begun,
        jac=derivatives,
        bounds=(np.zeros_like(width), width),
        xtol=end / 10,
        ftol=end,
        gtol=None,
        max_nfev=iterations,
    )
    return Optimum(origin + found.x, found.fun[:rows], found.jac[:rows])


class Noise(NamedTuple):
    """`sd`: of a weighted residual; `quantile`: how many of it 95% reach to either side.

    `more`: how many times larger residuals are than the sd that were given can explain, else 1. `known`:
    whether anything says how large it is.
    """

    sd: float
    quantile: float
    more: float
    known: bool


def noise(problem: Problem, best: Optimum, chance: Array | None = None) -> Noise:
    """How far measurements scatter: as given or, where there are rows to spare, as they do.

    `chance`: as for `moved`; residuals have it as well, so that it explains some of what `sd` does not.
    """
    least = _LEAST_NOISE * float(problem.weight.mean())
    if problem.sd is not None:
        simulated = 0.0 if chance is None else np.diagonal(chance) * problem.weight**2
        left = float((best.residuals**2 / (1 + simulated)).sum())
        surprising = problem.spare > 0 and chi2.sf(left, problem.spare) < _CHANCE
        more = math.sqrt(left / problem.spare) if surprising else 1.0
        return Noise(max(more, least), float(norm.ppf(0.975)), more, True)
    if problem.spare > 0:
        sd = math.sqrt(best.sum / problem.spare)
        return Noise(max(sd, least), float(stdtrit(problem.spare, 0.975)), 1.0, True)
    return Noise(_UNKNOWN_NOISE, float(norm.ppf(0.975)), 1.0, False)


def flat(best: Optimum, noise: Noise) -> list[Array]:
    """The directions, of shape (k,), that noise hides, by singular values of the slopes; the largest is 1."""
    _, sizes, directions = np.linalg.svd(best.slopes)
    sizes = np.pad(sizes, (0, len(directions) - len(sizes)))
    found = []
    for size, direction in zip(sizes, directions, strict=True):
        largest = direction[np.argmax(np.abs(direction))]
        if noise.quantile * noise.sd > size * _TELLS / abs(largest):
            found.append(direction / largest)
    return found


def covariance(problem: Problem, best: Optimum, noise: Noise) -> Array:
    """Of the values' logarithms, shape (k, k); where nothing is known they are as wide as their range."""
    prior = ((problem.high - problem.low) / 4) ** -2
    return np.asarray(np.linalg.inv(best.slopes.T @ best.slopes / noise.sd**2 + np.diag(prior)))


def moved(problem: Problem, best: Optimum, noise: Noise, chance: Array) -> Array:
    """The covariance of the best values, shape (k, k), by the chance of simulated runs.

    `chance`: the covariance of the predictions' logarithms by it, shape (rows, rows).
    """
    by_rows = covariance(problem, best, noise) @ best.slopes.T / noise.sd**2
    weighted = chance * np.outer(problem.weight, problem.weight)
    return np.asarray(by_rows @ weighted @ by_rows.T)


def interval(
    problem: Problem, best: Optimum, noise: Noise, which: int, more: float = 0.0
) -> tuple[float | None, float | None]:
    """95% of a value's logarithm, by profile likelihood; None for an end that is not within the range.

    `more`: how far something else, too, may have moved it to either side, at 95%.
    """
    here = float(best.values[which])
    low, high = _likely(problem, best, noise, which)
    if low is not None:
        low = here - math.hypot(here - low, more)
        low = low if low > problem.low[which] else None
    if high is not None:
        high = here + math.hypot(high - here, more)
        high = high if high < problem.high[which] else None
    return low, high


def _likely(problem: Problem, best: Optimum, noise: Noise, which: int) -> tuple[float | None, float | None]:
    width = noise.quantile * math.sqrt(covariance(problem, best, noise)[which, which])
    if problem.rough:  # what is rough has no likelihood to follow
        return best.values[which] - width, best.values[which] + width
    low, high = (_end(problem, best, noise, which, sign * width) for sign in (-1, 1))
    return low, high


def _end(problem: Problem, best: Optimum, noise: Noise, which: int, width: float) -> float | None:
    allowed = (noise.quantile * noise.sd) ** 2
    bound = (problem.high if width > 0 else problem.low)[which] - best.values[which]
    inside, outside = 0.0, math.inf
    for _ in range(_ROUNDS):
        width = bound if abs(width) >= abs(bound) else width
        rise = _profile(problem, best, which, width) - best.sum
        if rise < allowed and width == bound:
            return None
        if abs(rise / allowed - 1) < _CLOSE:
            break
        if rise < allowed:
            inside = width
        else:
            outside = width
        told = rise > 0.01 * allowed  # the root of the rise is nearly a straight line, where it is not flat
        guess = width * math.sqrt(allowed / rise) if told else 3 * width
        between = told and min(inside, outside) < guess < max(inside, outside)
        width = guess if outside == math.inf or between else (inside + outside) / 2
    else:
        rise = allowed
    return float(best.values[which] + width * math.sqrt(allowed / rise))


def _profile(problem: Problem, best: Optimum, which: int, width: float) -> float:
    """The least sum of squares with one value so far from the best, the others fitted anew."""
    others = np.arange(len(best.values)) != which
    if not others.any():
        residuals = problem.residuals(np.array([[best.values[which] + width]]))[0]
        return float(residuals @ residuals)

    def whole(points: Array) -> Array:
        full = np.empty((len(points), len(best.values)))
        full[:, others], full[:, which] = points, best.values[which] + width
        return problem.predict(full)

    along = np.linalg.lstsq(best.slopes[:, others], -best.slopes[:, which] * width, rcond=1e-3)[0]
    rest = problem._replace(predict=whole, low=problem.low[others], high=problem.high[others])
    known = (best.values[others], best.slopes[:, others]) if abs(width) < _SAME_SLOPES else None
    return downhill(rest, best.values[others] + along, COARSE, known=known).sum


def left_out(problem: Problem, best: Optimum) -> Array | None:
    """For each row its prediction's logarithm less the measured one, fitted to the others; None: too few."""
    if problem.spare < 1:
        return None
    if problem.rough:  # to first order (Cook's leverage): to fit rough ones anew finds other chances
        hat = best.slopes @ np.linalg.pinv(best.slopes)
        free = np.maximum(1 - np.diagonal(hat), 1e-3)
        return np.asarray(best.residuals / free / problem.weight)
    found: list[float] = []
    for row in range(len(problem.measured)):
        known = best.values, np.delete(best.slopes, row, axis=0)
        values = downhill(problem.without(row), best.values, COARSE, 4, known).values
        found.append(float(problem.predict(values[None])[0, row] - problem.measured[row]))
    return np.array(found)


def roughly(problem: Problem, starts: Sequence[Array], far: bool = False) -> Optimum:
    """The best of where it goes downhill to.

    `far`: first by slopes over long steps. On a plateau, where hardly anything waits for a key, rough
    predictions hide the slope of short ones.
    """
    first = problem._replace(step=_FAR) if far else problem
    best = min((downhill(first, start, COARSE) for start in starts), key=lambda optimum: optimum.sum)
    if not far:
        return best
    return min(best, downhill(problem, best.values, COARSE), key=lambda optimum: optimum.sum)
