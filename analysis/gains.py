"""What a run would gain if something of its cluster were a tenth faster: values, and their words."""

from collections.abc import Sequence
from dataclasses import dataclass

LEAST = 0.001
"""Of the run's time: a gain that is said."""


@dataclass(frozen=True)
class Gain:
    """What was gained when a resource was made a tenth faster, and nothing else."""

    kind: str
    """The resource: "computing", "workers' links", … (`lockstep.resources.RESOURCES`)."""
    who: str
    """What it is called in the scenario: "the hosts' links"."""
    gain: float
    """The share of the run's time that it saves: up to 1 − 1/1.1, but for chance; below 0 if it loses."""


def in_words(gain: Gain) -> str:
    """ "5.2% less time"."""
    return f"{abs(gain.gain):.1%} {'less' if gain.gain >= 0 else 'more'} time"


def lines(gains: Sequence[Gain]) -> list[tuple[str, str]]:
    """What would gain or lose something, and how much, the most first; at last what would not, in a line."""
    said = [(each.who, in_words(each)) for each in gains if abs(each.gain) >= LEAST]
    rest = [each.who for each in gains if abs(each.gain) < LEAST]
    return [*said, *([(", ".join(rest), "nothing")] if rest else [])]


def most(gains: Sequence[Gain]) -> str | None:
    """The sentence about the first: "the servers' links, a tenth faster, would save 5.2% of the time"."""
    if not gains:
        return None
    first = gains[0]
    if first.gain < LEAST:
        return "nothing that was made a tenth faster saved any time"
    return f"{first.who}, a tenth faster, would save {first.gain:.1%} of the time"
