"""Closed forms of waiting for compute: seconds per update and staleness, the network being negligible.

n workers draw independent compute times X; `mean` is E[X] of the exponential part, `shift` what every draw
has besides, both in seconds. The names are those of Dutta et al. 2018 ("Slow and stale gradients can win the
race"), whose run times these are unless a docstring says otherwise.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import comb, lgamma

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def harmonic(n: int) -> float:
    """H_n = 1 + 1/2 + … + 1/n."""
    return sum(1 / i for i in range(1, n + 1))


def exponential_order_statistic(k: int, n: int, mean: float, shift: float = 0.0) -> float:
    """E[X_{k:n}], the k-th smallest of n (shifted) exponentials: Δ + (H_n − H_{n−k})/μ. K-sync's run time."""
    return shift + mean * (harmonic(n) - harmonic(n - k))


def pareto_order_statistic(k: int, n: int, mean: float, shape: float) -> float:
    """E[X_{k:n}] of n Pareto variables: x_m·Γ(n+1)Γ(n−k+1−1/a)/(Γ(n−k+1)Γ(n+1−1/a)) (Malik 1966)."""
    least, a = mean * (shape - 1) / shape, 1 / shape
    return float(
        least * np.exp(lgamma(n + 1) + lgamma(n - k + 1 - a) - lgamma(n - k + 1) - lgamma(n + 1 - a))
    )


def uniform_order_statistic(k: int, n: int, low: float, high: float) -> float:
    """E[X_{k:n}] of n uniform variables: low + (high − low)·k/(n+1)."""
    return low + (high - low) * k / (n + 1)


def k_batch_sync(k: int, n: int, mean: float, shift: float = 0.0) -> float:
    """Seconds until n workers that start together have finished k mini-batches; k/(nμ) without a shift.

    ∫ P(fewer than k done by t) dt; each worker's count is a renewal process: P(N ≥ j) = P(jΔ + Erlang_j ≤ t).
    """

    def unfinished(t: Array) -> Array:
        at_least = [np.ones_like(t), *(_erlang(j, (t - j * shift) / mean) for j in range(1, k + 1))]
        one = [at_least[j] - at_least[j + 1] for j in range(k)]  # P(N = j), j < k
        total = [np.ones_like(t)] + [np.zeros_like(t)] * (k - 1)
        for _ in range(n):
            total = [sum((total[i] * one[j - i] for i in range(j + 1)), np.zeros_like(t)) for j in range(k)]
        return sum(total, np.zeros_like(t))

    return _integral(unfinished, [shift * j for j in range(k + 1)], mean * (k + 50))


def k_async(k: int, n: int, mean: float, shift: float = 0.0) -> float:
    """Seconds per update on k distinct workers' gradients when the others go on and finishers wait.

    At most E[X_{k:n}], and equal to it without a shift; with one, known here for 2k ≥ n only. When 2k > n the
    n−k that go on are past their shift at every update, so what they have left is exponential. When 2k = n
    they may, besides, be exactly those that began last, all with the same c seconds of shift left: c is a
    Markov chain, whose stationary distribution (an atom at 0 and a density) is found by fixed-point iteration
    on a grid (own derivation).
    """
    if shift == 0:
        return exponential_order_statistic(k, n, mean)  # who goes on is as good as fresh
    if 2 * k < n:
        raise ValueError("the state of k-async is one number only where 2k ≥ n")
    late = n - k

    def update_time(left: float) -> float:
        """E[time to the k-th finisher] when `late` workers have `left` of shift to go, and k all of it."""

        def unfinished(t: Array) -> Array:
            old, new = _erlang(1, (t - left) / mean), _erlang(1, (t - shift) / mean)
            done = np.zeros_like(t)
            for i in range(late + 1):
                for j in range(k + 1):
                    if i + j < k:
                        done += _binomial(late, i, old) * _binomial(k, j, new)
            return done

        return _integral(unfinished, sorted({0.0, left, shift}), mean * 50)

    if 2 * k > n:
        return update_time(0.0)
    # From c, the update comes at c + L if the last L of the late is done before anybody else can be, that is
    # c + L < Δ; then all k fresh ones go on, with Δ − c − L left. Otherwise everybody who goes on is past Δ.
    cells = 400
    width = shift / cells
    grid = (np.arange(cells) + 0.5) * width
    elapsed = shift - grid[:, None] - grid[None, :]  # from column's c to row's c'
    jump = np.where(elapsed > 0, _last_of_exponentials(k, elapsed / mean) / mean, 0.0) * width
    from_atom = _last_of_exponentials(k, np.asarray((shift - grid) / mean)) / mean
    density, atom = np.zeros(cells), 1.0
    for _ in range(200):
        density = atom * from_atom + jump @ density
        atom = 1 - density.sum() * width
    coarse = np.linspace(0, shift, 21)
    times = np.interp(grid, coarse, [update_time(float(c)) for c in coarse])
    return float(atom * update_time(0.0) + (density * times).sum() * width)


def k_batch_async(k: int, n: int, mean: float) -> float:
    """Seconds per update on any k mini-batches when nobody waits: k·E[X]/n for any distribution."""
    return k * mean / n


def backup_workers(n: int, backups: int, mean: float) -> float:
    """Seconds per update on the first n gradients of the present version when late ones are not cancelled.

    Exponential compute. A round begins with n workers on the present version and b on an older one, whose
    gradients are dropped when they arrive and who then start on the present one. Absorbing Markov chain over
    (fresh, stale, got), own derivation.
    """

    @cache
    def left(fresh: int, stale: int, got: int) -> float:
        if got == n:
            return 0.0
        busy = fresh + stale
        on_time = fresh * left(fresh - 1, stale, got + 1) if fresh else 0.0
        too_late = stale * left(fresh + 1, stale - 1, got) if stale else 0.0
        return (mean + on_time + too_late) / busy

    return left(n, backups, 0)


def model_averaging_speedup(period: int, ratio: float) -> float:
    """Run time with averaging after every step ÷ with averaging every τ-th: (1+r)/(1+r/τ), r = D/Y.

    Constant compute Y and communication D (Wang and Joshi 2019, "Adaptive communication strategies").
    """
    return (1 + ratio) / (1 + ratio / period)


def model_averaging_step(period: int, n: int, mean: float, averaging: float) -> float:
    """Seconds per local step with averaging every τ-th, exponential compute: E[max of τ-averages] + D/τ.

    From the same paper. The sum of τ exponentials is Erlang: E[max] = ∫ 1 − F(x)^n dx.
    """
    slowest = _integral(lambda x: 1 - _erlang(period, x) ** n, [0.0], period + 12 * period**0.5 + 60)
    return mean * slowest / period + averaging / period


def asynchronous_rate(times: Sequence[float]) -> float:
    """Updates per second of workers that never wait and take h_i seconds each: Σ 1/h_i."""
    return sum(1 / h for h in times)


def synchronous_rate(times: Sequence[float]) -> float:
    """Gradients per second of workers that all wait for the slowest: n/max h."""
    return len(times) / max(times)


def mean_staleness(n: int, gradients: int = 1) -> float:
    """Mean staleness when nobody waits and an update has c gradients: (n−1)/c, whatever the compute times.

    Conservation (own derivation): each update makes the n−1 gradients under way older by one, and every
    gradient's staleness is what it has gathered so; an update uses up c of them.
    """
    return (n - 1) / gradients


def mean_staleness_k_async(n: int, k: int) -> float:
    """Mean staleness of k-async, whose finishers wait: n/k − 1. Each update ages the n−k that go on."""
    return n / k - 1


def geometric(n: int, staleness: NDArray[np.int64]) -> Array:
    """P(τ = k) = (1/n)(1−1/n)^k, of asynchronous workers with independent equal exponential times."""
    return np.asarray((1 / n) * (1 - 1 / n) ** staleness)


def _erlang(j: int, x: Array) -> Array:
    """P(sum of j unit exponentials ≤ x), for x up to 700: further on the terms overflow."""
    x = np.maximum(x, 0.0)
    term, total = np.ones_like(x), np.ones_like(x)
    for i in range(1, j):
        term = term * x / i
        total = total + term
    return np.asarray(1 - np.exp(-x) * total)


def _last_of_exponentials(k: int, x: Array) -> Array:
    """Density of the largest of k unit exponentials."""
    return np.asarray(k * (1 - np.exp(-x)) ** (k - 1) * np.exp(-x))


def _binomial(n: int, i: int, p: Array) -> Array:
    return np.asarray(comb(n, i) * p**i * (1 - p) ** (n - i))


def _integral(function: Callable[[Array], Array], corners: Sequence[float], tail: float) -> float:
    """Integrate from the first corner to `tail` beyond the last; smooth between corners (Gauss–Legendre)."""
    points, weights = np.polynomial.legendre.leggauss(20)
    edges = [
        edge
        for low, high in zip(corners, [*corners[1:], corners[-1] + tail], strict=True)
        for edge in np.linspace(low, high, 4 if high < corners[-1] + tail else 100)[:-1]
    ] + [corners[-1] + tail]
    low, high = np.array(edges[:-1])[:, None], np.array(edges[1:])[:, None]
    x = (low + high) / 2 + (high - low) / 2 * points
    return float((function(x) * weights * (high - low) / 2).sum())
