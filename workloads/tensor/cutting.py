"""How many of something each device of a group has."""

from collections.abc import Sequence

from lockstep.scenarios import ScenarioError

Range = tuple[int, int]


def shares(count: int, parts: int) -> list[Range]:
    """Consecutive ones, the first devices one more if they cannot be dealt out evenly."""
    return [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def share(count: int, parts: int, part: int, what: str) -> Range:
    """A device's; raises ScenarioError (key ``parallelism.tensor``) if some device would have none."""
    if count < parts:
        problem = f"must be at most {count}, the {what}; {parts} devices cannot share them"
        raise ScenarioError(problem, key="parallelism.tensor")
    return shares(count, parts)[part]


def lengths(ranges: Sequence[Range]) -> list[int]:
    """Of ranges."""
    return [stop - start for start, stop in ranges]
