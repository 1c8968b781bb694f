"""Conditions on what has changed, for somebody's CI: `--fail-if 'throughput<-5%'`."""

import re
from typing import NamedTuple

from lockstep.analysis.differences import Change
from lockstep.comparison import Comparison
from lockstep.scenarios import ScenarioError

_FORM = re.compile(r"\s*([\w.]+)\s*([<>])\s*([+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*(%?)\s*", re.IGNORECASE)


class Condition(NamedTuple):
    """`metric` changes by less, or by more, than `limit`: a share of the first if `relative`."""

    text: str
    metric: str
    less: bool
    limit: float
    relative: bool

    def holds(self, change: Change) -> bool:
        """Whether that has happened, and the runs can tell that anything has."""
        value = change.relative if self.relative else change.change
        if value is None or not change.certain:
            return False
        return value < self.limit if self.less else value > self.limit


def parsed(text: str) -> Condition:
    """Raises ScenarioError for what is no condition."""
    found = _FORM.fullmatch(text)
    if found is None:
        problem = f"{text!r} is no condition; give a metric, < or >, and a change: 'throughput<-5%'"
        raise ScenarioError(problem, key="--fail-if")
    metric, sign, number, percent = found.groups()
    limit = float(number) / 100 if percent else float(number)
    return Condition(text, metric, sign == "<", limit, bool(percent))


def failed(conditions: list[Condition], comparison: Comparison) -> list[str]:
    """What has come true, a sentence each. Raises ScenarioError for a metric that no pair has."""
    said = []
    for condition in conditions:
        having = [pair for pair in comparison.pairs if condition.metric in pair.metrics]
        if not having:
            there = ", ".join(sorted({name for pair in comparison.pairs for name in pair.metrics}))
            problem = f"no metric {condition.metric!r} on both sides (there are: {there})"
            raise ScenarioError(problem, key="--fail-if")
        for pair in having:
            change = pair.metrics[condition.metric]
            if condition.holds(change):
                where = ", ".join(f"{key}={value}" for key, value in pair.where.items())
                place = f" ({where})" if where else ""
                said.append(f"{condition.text}: {change.first:.6g} became {change.second:.6g}{place}")
    return said
