"""From a run as it is to what its devices could do at best, one change after the other: values, and words."""

from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.analysis.words import number, percent

NOW, IDEAL = "now", "ideal"
UNTIL = {"time_to_target_s": "time to the target", "million_s": "time for a million samples"}


@dataclass(frozen=True)
class Step:
    """What was changed, besides all before it, and how long the run then takes."""

    change: str
    """ "now" of the first, "ideal" of the last, such as "2× bandwidth" of others."""
    seconds: float | None
    """None: the target was not reached."""


@dataclass(frozen=True)
class WhatIf:
    """The way from now to the ideal."""

    metric: str
    """What the seconds are: "time_to_target_s", or "million_s" where there is no target."""
    steps: tuple[Step, ...]

    @property
    def changes(self) -> Iterator[tuple[Step, float | None]]:
        """Each step but the first, and the seconds that it adds to the last known before it."""
        known = self.steps[0].seconds
        for step in self.steps[1:]:
            both = known is not None and step.seconds is not None
            yield step, step.seconds - known if both else None  # type: ignore[operator]
            known = known if step.seconds is None else step.seconds

    @property
    def rows(self) -> list[dict[str, str]]:
        """A row a step, in words: what is changed, how long it takes, and what that is to now."""
        first = self.steps[0].seconds
        return [
            {
                "what if": step.change if number_ == 0 or step.change == IDEAL else f"and {step.change}",
                UNTIL[self.metric]: "not reached" if step.seconds is None else number(step.seconds, "s"),
                "than now": percent(step.seconds / first - 1, sign=True) if step.seconds and first else "",
            }
            for number_, step in enumerate(self.steps)
        ]
