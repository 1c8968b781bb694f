"""From a run as it is to what its devices could do at best, one change after the other: values, and words."""

from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.analysis.words import number, percent

NOW, IDEAL = "now", "ideal"
MATTERS = 0.01  # of the time: what a change saves at least to be named as one that matters
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

    def most(self) -> tuple[str, float] | None:
        """The change that saves most, in words, and its share of the time now; None if none matters.

        Those that it comes after are named if they matter, too.
        """
        now = self.steps[0].seconds
        if not now:
            return None
        saved = [(step.change, -(more or 0.0) / now) for step, more in self.changes if step.change != IDEAL]
        place = max(range(len(saved)), key=lambda each: saved[each][1], default=None)
        if place is None or saved[place][1] < MATTERS:
            return None
        before = [change for change, share in saved[:place] if share >= MATTERS]
        after = f", after {', '.join(before)}" if before else ""
        return saved[place][0] + after, saved[place][1]

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
