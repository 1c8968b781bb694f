"""What a claim is made of: a scenario in variants, what a run of it is asked, and when the claim holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf
from typing import Any, Literal

import numpy as np

import lockstep
from lockstep.analysis.student import half_width_of
from lockstep.scenarios import Scenario, override
from lockstep.studies.reproductions.metrics import Array, learned

Metrics = dict[str, float]
Verdict = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and the ends of its 95% confidence interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, sample: Array) -> "Interval":
        """By Student's t, of independent values, shape (seeds,), at least two."""
        mean = float(sample.mean())
        half = float(half_width_of(sample))
        return cls(mean, mean - half, mean + half)

    @classmethod
    def of_ratio(cls, numerator: Array, denominator: Array) -> "Interval":
        """Of the geometric mean of the seeds' ratios, which are to be positive, both of shape (seeds,)."""
        logarithm = cls.of(np.log(numerator / denominator))
        return cls(exp(logarithm.mean), exp(logarithm.low), exp(logarithm.high))


@dataclass(frozen=True)
class Check:
    """Something that is so if the claim holds: a metric whose mean is `above` and `below` given values.

    Without either it is there for the reader and decides nothing.
    """

    what: str
    value: Interval
    above: float = -inf
    below: float = inf

    @property
    def holds(self) -> bool | None:
        """Whether the whole interval is on the right side; None if it is on both."""
        if self.value.low > self.above and self.value.high < self.below:
            return True
        return False if self.value.high <= self.above or self.value.low >= self.below else None


def verdict(checks: Sequence[Check]) -> Verdict:
    """A claim holds if all of its checks do, and does not hold if any of them does not.

    However many checks there are, the chance that all hold while one is not true is at most that of one
    error, 2.5% (an intersection-union test).
    """
    if any(check.holds is False for check in checks):
        return "does not hold"
    return "holds" if all(check.holds for check in checks) else "undecided"


class Runs:
    """The metrics of a claim's runs: `runs[variant, metric]`, shape (seeds,).

    Values of two variants at one index are of the same seed, so that differences of them are paired.
    """

    def __init__(self, rows: Mapping[tuple[str, int], Metrics]) -> None:
        """Of (variant, seed) → metric → value."""
        self._rows = rows
        self._seeds = sorted({seed for _, seed in rows})

    def __getitem__(self, key: tuple[str, str]) -> Array:
        variant, metric = key
        return np.array([self._rows[variant, seed][metric] for seed in self._seeds])

    def mean(self, variant: str, metric: str) -> Interval:
        """Over the seeds."""
        return Interval.of(self[variant, metric])

    def tuned(self, variants: Sequence[str], by: str, metric: str | None = None) -> Array:
        """For each seed, the metric of the variant whose mean `by` is the least on the other seeds.

        A choice by the very runs that are then compared would favour the strategy with more variants. Shape
        (seeds,); without a `metric` it is the one that is chosen by.
        """
        chosen_by = np.array([self[variant, by] for variant in variants])
        on_others = chosen_by.sum(1, keepdims=True) - chosen_by
        values = np.array([self[variant, metric or by] for variant in variants])
        return np.asarray(values[on_others.argmin(0), np.arange(len(self._seeds))])


@dataclass(frozen=True)
class Claim:
    """Something that was published, and how it is tried.

    The scenario is scenarios/claims/NAME.yaml; a variant changes dotted keys of it, and each is run with
    `seeds` seeds, counted up from the scenario's. `measure` runs one and returns what is kept of it.
    """

    name: str
    statement: str
    source: str
    published: str
    variants: Mapping[str, Mapping[str, Any]]
    checks: Callable[[Runs], list[Check]]
    measure: Callable[[Scenario], Metrics] = learned
    seeds: int = 5

    def scenarios(self) -> dict[tuple[str, int], Scenario]:
        """The scenario of each run, by variant and seed."""
        base, found = lockstep.load(f"claims/{self.name}"), {}
        for variant, changes in self.variants.items():
            scenario = base
            for key, value in changes.items():
                scenario = override(scenario, key, value)
            lockstep.check(scenario)
            for seed in range(base.seed, base.seed + self.seeds):
                found[variant, seed] = scenario.model_copy(update={"seed": seed})
        return found
