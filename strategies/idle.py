"""What is given to a strategy and means nothing to it, or never comes about: warnings."""

from collections.abc import Mapping
from typing import Any

from lockstep.strategies.bounds import after
from lockstep.strategies.mistakes import one_of
from lockstep.strategies.strategy import Strategy


def unused(strategy: Strategy, name: str, values: Mapping[str, Any]) -> list[str]:
    """Warnings about parameters that a strategy does not have, or that lack what they belong to."""
    means_nothing = [key for key in values if key not in strategy.keys]
    warnings = [f"strategy.{key} means nothing to {name}: ignored" for key in means_nothing]
    usual = strategy.defaults.get("optimizer")
    if usual and "learning_rate" in values and "optimizer" not in values:
        warnings.append(
            f"strategy.learning_rate is {usual}'s, which {name} takes if strategy.optimizer is not given"
        )
    for key, marks in strategy.idle(values).items():
        wanted = ", or ".join(f"{mark.key} is {one_of(mark.values)}" for mark in marks)
        warnings.append(f"strategy.{key} means nothing unless {wanted}: ignored")
    return warnings


def never_acted(strategy: Strategy, values: Mapping[str, Any], made: Mapping[str, float]) -> list[str]:
    """Warnings about what a strategy was to do after more than a run had; `made`: how many of each unit."""
    warnings = []
    for key, parameter in strategy.parameters.items():
        unit, value = after(parameter.annotation), values.get(key, parameter.default)
        if unit is not None and value is not None and made[unit] <= value:
            given = "" if key in values else " (by default)"
            warnings.append(
                f"strategy.{key} is {value:g} {unit}{given}, and the run had {made[unit]:.4g}: "
                "what was to come after them did not; lower it, or raise a bound in stop"
            )
    return warnings
