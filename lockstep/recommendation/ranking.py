"""What the candidates are worth, which of them differ, and which one to take.

The search's own seed has favourites: of many candidates that are alike, the luckiest looks best. So the
best are simulated again with seeds that the search has not seen, the same for all, and only these count.
Two differ if the 95% interval of their differences, seed by seed, excludes zero.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lockstep.recommendation.in_step import in_step
from lockstep.recommendation.runs import Row, hosts, price
from lockstep.recommendation.space import Candidate, Target
from lockstep.scenarios import Scenario
from lockstep.scenarios import schema as stop

ALIKE = 0.02  # a difference for which nobody would let the workers fall out of step
CLOSE = 0.01  # and one of settings of the same strategy, for which nobody would make exchanges rarer
_NEVER = 1e12  # s; longer than anything


@dataclass(frozen=True)
class Goal:
    """What is optimised, of rows of the table of results; `learns`: until the scenario's target is reached.

    `at_most`: USD that it may cost, to the target or, without one, of a million samples. `until`: the target.
    """

    target: Target
    learns: bool
    at_most: float | None = None
    until: stop.Target | None = None

    @property
    def high(self) -> bool:
        """Whether more is better."""
        return self.target == "throughput"

    @property
    def unit(self) -> str:
        """What values are counted in."""
        each = "" if self.learns else " per million samples"
        spent = {"machine-hours": f"machine-hours{each}", "cost": f"USD{each}"}
        return {"time": "s", "throughput": "samples/s", **spent}[self.target]

    def value(self, row: Row) -> float | None:
        """What a run is worth; None if it failed, reached nothing, applied nothing or costs too much."""
        if row["status"] != "ok" or self.too_dear(row):
            return None
        if self.target == "cost":
            return self.cost(row)
        if self.learns:
            time: float | None = row["time_to_target_s"]
            return time if time is None or self.target == "time" else time * row["hosts"] / 3600
        rate: float | None = row["throughput"] if row.get("goodput") is None else row["goodput"]
        if not rate:
            return None
        return rate if self.high else row["hosts"] * 1e6 / rate / 3600

    def cost(self, row: Row) -> float | None:
        """The USD that a run needs to the target or, without one, for a million samples."""
        found: float | None = row.get(self.costs)
        return found

    @property
    def costs(self) -> str:
        """The column of that."""
        return "cost_to_target" if self.learns else "cost_of_million"

    def too_dear(self, row: Row) -> bool:
        """Whether a run needs more than it may cost."""
        cost = self.cost(row)
        return self.at_most is not None and cost is not None and cost > self.at_most

    def seconds(self, value: float, scenario: Scenario) -> float:
        """The time to the target that is worth a value, on the hosts of a scenario."""
        if self.target == "time":
            return value
        return value * 3600 / (hosts(scenario) if self.target == "machine-hours" else price(scenario) or 1.0)

    def score(self, row: Row) -> float:
        """The value as what is minimised; who missed target or budget: by how near it came."""
        value = self.value(row)
        if value is not None:
            return -value if self.high else value
        if row["status"] != "ok":
            return float("inf")
        if self.too_dear(row):
            return _NEVER * (2 - (self.at_most or 0.0) / (self.cost(row) or 1.0))
        return _NEVER * (1 + self._missed(row) + (row["loss"] is None))

    def _missed(self, row: Row) -> float:
        """By how much a run missed the target: the less, the better; at most 1."""
        if self.until is None or self.until.metric == "accuracy":
            return -(row["accuracy"] or 0)
        name = self.until.metric
        found = row.get(name if name == "loss" else f"metrics.{name}")
        return 1.0 if found is None else (away := abs(found - self.until.value)) / (1 + away)

    def ratio(self, better: float, worse: float) -> float:
        """How many times as good a value is as another one."""
        return (better / worse if self.high else worse / better) if better and worse else float("inf")


@dataclass(frozen=True)
class Ranked:
    """A candidate and its runs, one a seed."""

    candidate: Candidate
    rows: tuple[Row, ...]
    goal: Goal

    @property
    def values(self) -> list[float | None]:
        """What each run is worth, in `goal.unit`; None if it failed or did not reach the target."""
        return [self.goal.value(row) for row in self.rows]

    @property
    def reached(self) -> int:
        """How many runs have a value."""
        return sum(value is not None for value in self.values)

    @property
    def mean(self) -> float | None:
        """The mean of the runs that have a value, in `goal.unit`; None if none has."""
        return fmean(found) if (found := [value for value in self.values if value is not None]) else None

    @property
    def half(self) -> float:
        """Half the 95% interval of the mean (Student's t); 0 with one run."""
        return _half([value for value in self.values if value is not None])

    @property
    def in_step(self) -> bool:
        """Whether every update was one gradient of every worker: it learns as one with an n-fold batch."""
        return all(in_step(row) for row in self.rows)

    def average(self, column: str) -> float | None:
        """The mean of a column over the runs that have it."""
        found = [row[column] for row in self.rows if row.get(column) is not None]
        return fmean(found) if found else None

    @property
    def key(self) -> tuple[float, float]:
        """To sort by: who gets there in more of the runs comes first."""
        mean = self.mean
        never = fmean([self.goal.score(row) for row in self.rows])
        return -self.reached, never if mean is None else -mean if self.goal.high else mean

    def differs(self, other: "Ranked") -> bool:
        """Whether the two are distinguishable, run by run with the same seeds."""
        if (self.reached, other.reached) != (len(self.rows), len(other.rows)):
            return self.reached != other.reached
        differences = [
            a - b for a, b in zip(self.values, other.values, strict=True) if a is not None and b is not None
        ]
        return bool(differences) and abs(fmean(differences)) > _half(differences)


def _half(values: Sequence[float]) -> float:
    from lockstep.analysis.student import half_width_of

    return float(half_width_of(values)) if len(values) > 1 else 0.0


def same_run(row: Row) -> tuple[Any, ...]:
    """What two runs have in common that did the very same, under different names."""
    columns = ("duration_s", "samples", "updates", "bytes_sent", "staleness.histogram", "parameters_sha256")
    return tuple(row.get(column) for column in columns)


def ordered(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Best first; where nothing is learned, those in step come first: what the others lose is not known."""
    return sorted(ranked, key=lambda each: (not (each.goal.learns or each.in_step), each.key))


def peers(ranked: Sequence[Ranked], one: Ranked) -> list[Ranked]:
    """Those that are ranked with one: all or, where nothing is learned, those in step or the rest."""
    return [each for each in ranked if one.goal.learns or each.in_step == one.in_step]


def clearly_better(one: Ranked, other: Ranked) -> bool:
    """Whether one is better by more than chance and, where nothing is learned, by more than 2%."""
    if one.mean is None or one.key >= other.key or not one.differs(other):
        return False
    if other.mean is None or one.reached > other.reached:
        return True
    return one.goal.learns or one.goal.ratio(one.mean, other.mean) > 1 + ALIKE


def as_good(ranked: Sequence[Ranked], one: Ranked) -> bool:
    """Whether one is not worse than the first of its peers, as far as one can see, and is another."""
    first = peers(ranked, one)[0]
    return one.candidate != first.candidate and not clearly_better(first, one)


def firsts(ranked: Sequence[Ranked], usual: Sequence[Candidate] = ()) -> list[Ranked]:
    """The best of an ordered list; if that is in step, and nothing learned, also the one that is faster.

    Of those that are as good, one of the `usual` if there is one.
    """
    first = _leader(peers(ranked, ranked[0]), usual)
    faster = [each for each in ranked if clearly_better(each, first)] if first.in_step else []
    faster = [each for each in faster if not (each.goal.learns or each.in_step)]
    return [first, _leader(faster, usual)] if faster else [first]


def _leader(ranked: Sequence[Ranked], usual: Sequence[Candidate]) -> Ranked:
    first = ranked[0]
    same = (each for each in ranked if each.candidate in usual and not clearly_better(first, each))
    return next(same, first)


def best(ranked: Sequence[Ranked]) -> Ranked:
    """The one to take."""
    return firsts(ranked)[0]
