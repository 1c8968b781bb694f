"""95% intervals have the true value 95 times in 100, and the numbers behind them are those of textbooks."""

import numpy as np
import pytest
from scipy.stats import binomtest, t

from lockstep.fitting import estimate
from lockstep.fitting.estimate import Array, Noise, Problem
from lockstep.fitting.model import _mean, of_means

WORKERS = np.array([1, 2, 4, 8, 16, 24, 32], float)
CASES = 200


def ring(points: Array) -> Array:
    """log samples/s of workers that compute for exp(a) seconds and sum over a ring for 2 (n − 1)/n exp(b)."""
    compute, network = np.exp(points)[:, :, None].transpose(1, 0, 2)
    return np.asarray(np.log(WORKERS / (compute + 2 * (WORKERS - 1) / WORKERS * network)))


def rough(points: Array) -> Array:
    """As `ring`, 1% off with any small change of a value."""
    return ring(points) + 0.01 * np.sin(1e6 * points.sum(axis=1)[:, None] * np.arange(1, len(WORKERS) + 1))


def case(seed: int) -> tuple[Problem, Array]:
    """A table of seven rows, up to 5% off, and the values behind it."""
    rng = np.random.default_rng([19, seed])
    true = np.log([1.0, np.exp(rng.uniform(-2, 1))])
    measured = ring(true[None])[0] + rng.normal(0, rng.uniform(0.005, 0.05), len(WORKERS))
    low, high = true - np.log(100) * rng.uniform(0.5, 1, 2), true + np.log(100) * rng.uniform(0.5, 1, 2)
    return Problem(ring, measured, None, low, high), true


def test_intervals_have_the_true_value_95_times_in_100() -> None:
    """What is allowed is what a hundredth of all honest 95% intervals would not do."""
    hits = np.zeros(2, int)
    for seed in range(CASES):
        problem, true = case(seed)
        middle = (problem.low + problem.high) / 2
        best = estimate.downhill(problem, estimate.roughly(problem, [middle]).values)
        noise = estimate.noise(problem, best)
        for which in range(2):
            low, high = estimate.interval(problem, best, noise, which)
            assert low is None or low < best.values[which]
            assert high is None or high > best.values[which]
            hits[which] += (low or -9.0) <= true[which] <= (high or 9.0)
    print(f"the true value is in {hits[0]} and {hits[1]} of {CASES} intervals")
    for each in hits.tolist():
        assert binomtest(each, CASES, 0.95).pvalue > 0.01


def test_the_interval_of_a_mean_is_students() -> None:
    """One value that all rows are: the mean of their logarithms ± t s/√n."""
    measured = np.array([0.1, -0.2, 0.05, 0.3])
    problem = Problem(
        lambda points: np.repeat(points, 4, axis=1), measured, None, np.array([-3.0]), np.array([3.0])
    )
    best = estimate.downhill(problem, np.array([1.0]))
    low, high = estimate.interval(problem, best, estimate.noise(problem, best), 0)
    half = t.ppf(0.975, 3) * measured.std(ddof=1) / 2
    assert low == pytest.approx(measured.mean() - half, abs=0.02 * half)
    assert high == pytest.approx(measured.mean() + half, abs=0.02 * half)


def test_a_sum_that_only_counts_together_is_flat() -> None:
    """Rows that know a + b alone: the direction (1, −1) is flat, and the other is not."""
    rng = np.random.default_rng(1)

    def together(points: Array) -> Array:
        return np.repeat(points.sum(axis=1, keepdims=True), 5, axis=1)

    problem = Problem(together, rng.normal(0, 0.02, 5), None, np.full(2, -4.0), np.full(2, 4.0))
    best = estimate.downhill(problem, np.array([1.0, 1.0]))
    (flat,) = estimate.flat(best, estimate.noise(problem, best))
    assert flat == pytest.approx([1, -1], abs=1e-3) or flat == pytest.approx([-1, 1])


def test_the_row_that_is_left_out_does_not_pull() -> None:
    """Of a mean of n, a row is e·n/(n − 1) from the mean of the others."""
    measured = np.array([0.1, -0.2, 0.05, 0.3])
    problem = Problem(
        lambda points: np.repeat(points, 4, axis=1), measured, None, np.array([-3.0]), np.array([3.0])
    )
    out = estimate.left_out(problem, estimate.downhill(problem, np.array([1.0])))
    assert out == pytest.approx((measured.mean() - measured) * 4 / 3, abs=1e-3)


def test_too_large_errors_widen_what_sd_says() -> None:
    measured = np.array([1.0, -1.0, 1.0, -1.0])
    problem = Problem(
        lambda points: np.repeat(points, 4, axis=1),
        measured,
        np.full(4, 0.1),
        np.array([-3.0]),
        np.array([3.0]),
    )
    best = estimate.downhill(problem, np.array([0.5]))
    noise = estimate.noise(problem, best)
    assert noise.more == pytest.approx(np.sqrt(400 / 3), rel=1e-3)
    honest = problem._replace(measured=measured / 10)
    assert estimate.noise(honest, estimate.downhill(honest, np.array([0.5]))).more == 1.0


def test_the_end_of_an_interval_without_limit_is_none() -> None:
    """Where a larger value changes nothing any more only the lower end is there."""
    problem = Problem(
        lambda points: np.repeat(-np.exp(-points), 6, axis=1),
        np.array([0.01, -0.01, 0.02, -0.02, 0.0, 0.0]), None, np.array([-3.0]), np.array([9.0]),
    )  # fmt: skip
    best = estimate.downhill(problem, np.array([1.0]))
    low, high = estimate.interval(problem, best, estimate.noise(problem, best), 0)
    assert high is None
    assert low is not None
    assert 3.0 < low < best.values[0]


def test_an_interval_of_rough_predictions_is_not_that_of_their_chances() -> None:
    """Predictions that are 1% off by chance, and another 1% with any small change of a value."""
    hits = 0
    for seed in range(30):
        problem, true = case(seed)

        problem = problem._replace(predict=rough, step=0.05)
        best = estimate.downhill(problem, estimate.roughly(problem, [true]).values)
        low, high = estimate.interval(problem, best, estimate.noise(problem, best), 0)
        hits += (low or -9.0) <= true[0] <= (high or 9.0)
    assert hits >= 25


def test_an_interval_goes_where_the_others_matter_more_than_at_the_best() -> None:
    """Rows that know a sum, fitted where one part is small: each part can be anything up to the whole sum."""

    def total(points: Array) -> Array:
        return np.repeat(np.log(np.exp(points).sum(axis=1, keepdims=True)), 6, axis=1)

    scatter = np.array([0.02, -0.02, 0.01, -0.01, 0.015, -0.015])
    problem = Problem(total, scatter, None, np.full(2, -5.0), np.full(2, 3.0))
    best = estimate.downhill(problem, np.array([0.0, -4.5]))
    assert best.values[1] < -4.0
    noise = estimate.noise(problem, best)
    half = noise.quantile * noise.sd / np.sqrt(6)
    for which in range(2):
        low, high = estimate.interval(problem, best, noise, which)
        assert low is None
        assert high == pytest.approx(np.log(np.exp(half) - np.exp(-5.0)), abs=half)


@pytest.mark.parametrize("factor", [0.03, 30.0])
def test_rough_predictions_are_not_lost_on_a_plateau(factor: float) -> None:
    """Begun where computing takes next to nothing, or the network, so that roughness hides how it counts."""
    for seed in range(40):
        problem, true = case(seed)
        problem = problem._replace(predict=rough, step=0.05, low=true - 5, high=true + 5)
        best = estimate.roughly(problem, [true + np.log(factor) * np.array([1, -1])], far=True)
        assert np.abs(problem.residuals(best.values[None])).max() < 0.25, seed


def mean_of(rows: int, sd: float | None) -> Problem:
    """One value that all rows are, measured as 0."""
    sds = None if sd is None else np.full(rows, sd)
    return Problem(
        lambda points: np.repeat(points, rows, axis=1), np.zeros(rows), sds, np.full(1, -3.0), np.full(1, 3.0)
    )


def test_what_the_chance_of_simulations_does_to_a_mean() -> None:
    """If all rows have it together the mean has it too; if each has its own, a root of the rows less."""
    problem = mean_of(4, 0.01)
    best = estimate.downhill(problem, np.array([0.5]))
    noise = Noise(1.0, 1.96, 1.0, True)
    together, apart = np.full((4, 4), 0.02**2), np.diag(np.full(4, 0.02**2))
    assert estimate.moved(problem, best, noise, together)[0, 0] == pytest.approx(0.02**2, rel=1e-3)
    assert estimate.moved(problem, best, noise, apart)[0, 0] == pytest.approx(0.02**2 / 4, rel=1e-3)


def test_means_of_other_numbers_of_runs_have_but_the_first_in_common() -> None:
    """By draws: rows that are the same chance, of one run and of ten."""
    draws = np.random.default_rng(3).normal(0, 1, (40_000, 10))
    means = np.stack([draws[:, 0], 3 * draws.mean(axis=1)])
    single = np.random.default_rng(4).normal(0, 1, 4000)
    single -= single.mean()
    found = of_means(np.stack([single, 3 * single], axis=1), [1, 10])
    assert found == pytest.approx(np.cov(means), abs=0.05)


def test_residuals_that_simulations_explain_are_no_surprise() -> None:
    problem = mean_of(4, 0.001)._replace(measured=np.array([0.01, -0.01, 0.01, -0.01]))
    best = estimate.downhill(problem, np.array([0.5]))
    assert estimate.noise(problem, best).more > 10
    assert estimate.noise(problem, best, np.diag(np.full(4, 0.01**2))).more == 1.0


def test_a_mean_of_runs_is_nothing_if_one_applies_nothing() -> None:
    assert _mean([1.0, 2.0, -50.0]) == -50.0
    assert _mean([1.0, 2.0]) == 1.5
