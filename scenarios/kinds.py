"""Workers that are not alike: `cluster.kinds`."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated

from pydantic import Field

from lockstep.scenarios.section import Count, Factor, Section
from lockstep.scenarios.units import PositiveSize, fail, shown


class Kind(Section):
    """`count` consecutive workers, each with a device of `speed` 1 or another, and so much `memory`.

    A gradient takes 1 / `speed` times as long. `price`: USD an hour of one device (docs/cost.md).
    """

    name: str = Field(min_length=1, description="a name, such as 'name: a100'")
    count: Count = Field(description="how many consecutive workers, such as 'count: 4'")
    speed: Factor = 1.0
    memory: PositiveSize | None = None
    price: Annotated[float, Field(ge=0, le=1e6)] | None = None


def check(kinds: Sequence[Kind], workers: int, memory: float | None) -> None:
    """Raise a validation error unless every worker is of one kind, and kinds differ in name.

    And unless all or none have a limit of memory.
    """
    if kinds and (total := sum(kind.count for kind in kinds)) != workers:
        fail(f"their counts must add up to cluster.workers ({workers}), not to {total}", "kinds")
    names = [kind.name for kind in kinds]
    for place, name in enumerate(names):
        if name in names[:place]:
            fail(f"{shown(name)} is the name of another kind too; give each its own", "kinds", place, "name")
    given = [kind.memory is not None for kind in kinds]
    if memory is None and any(given) and not all(given):
        place = given.index(False)
        fail("missing; give it for every kind, or cluster.memory for the others", "kinds", place, "memory")


def kind_of(kinds: Sequence[Kind], worker: int) -> int | None:
    """The place of a worker's kind in the list; None where workers are all alike."""
    ends = accumulate(kind.count for kind in kinds)
    return next((place for place, end in enumerate(ends) if worker < end), None)


def first(kinds: Sequence[Kind], workers: int) -> tuple[Kind, ...]:
    """The kinds of the first so many workers."""
    before = [0, *accumulate(kind.count for kind in kinds)]
    return tuple(
        kind.model_copy(update={"count": min(kind.count, workers - start)})
        for kind, start in zip(kinds, before, strict=False)
        if start < workers
    )
