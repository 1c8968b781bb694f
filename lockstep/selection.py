"""Choosing what a command goes through: cases and claims by patterns, strategies in place of the file's."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from lockstep.scenarios import Scenario, ScenarioError
from lockstep.strategies import own


class Named(Protocol):
    """Whatever has a name."""

    @property
    def name(self) -> str:
        """What patterns are looked for in."""


T = TypeVar("T", bound=Named)


def chosen(among: Sequence[T], patterns: Sequence[str], option: str, hint: str) -> list[T]:
    """Those whose names have one of the patterns in them (shell wildcards, any case); all without a pattern.

    Raises ScenarioError, with the command's `option`, for a pattern that is in no name; the `hint` follows.
    """
    for pattern in patterns:
        if not any(_has(each.name, pattern) for each in among):
            raise ScenarioError(f"no {option} has {pattern!r} in its name; {hint}", key=f"--{option}")
    return [each for each in among if not patterns or any(_has(each.name, pattern) for pattern in patterns)]


def _has(name: str, pattern: str) -> bool:
    return fnmatchcase(name.lower(), f"*{pattern.lower()}*")


def only_its_own(scenario: Scenario) -> Scenario:
    """Without the parameters that its strategy does not have: they are of the one that it stands in for."""
    strategy = scenario.strategy
    kept = own(strategy.name, strategy.parameters)
    changed = type(strategy).model_validate({"name": strategy.name, **kept})
    return scenario.model_copy(update={"strategy": changed})
