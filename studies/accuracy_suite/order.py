"""The order of the suite's points: whatever number of them is taken from the front is an even sample.

Of five points two are of the ranking blocks, in which all strategies are on the same cluster; two are chosen
so that levels, and pairs of levels, of the factors come up as evenly as they can; one learns.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from lockstep.studies.accuracy_suite.grid import STRATEGIES, grid, point, shards_of
from lockstep.studies.accuracy_suite.learning import learning
from lockstep.studies.accuracy_suite.point import FACTORS, Point

DEFAULT = 150  # points: 35 minutes
_BLOCKS = (
    (4, 1, "balanced", "none"),
    (8, 2, "network", "random"),
    (12, 4, "compute", "constant"),
    (8, 1, "compute", "spells"),
    (12, 2, "balanced", "random"),
    (4, 4, "network", "spells"),
)  # workers, shards, regime, stragglers


def suite() -> Iterator[Point]:
    """All points in their order. No chance is in it."""
    left = {point.name: point for point in grid()}
    levels = {name: _levels(point) for name, point in left.items()}
    seen: Counter[tuple[object, ...]] = Counter()
    blocks, learners = _blocks(), iter(learning())

    def of_a_block() -> Point | None:
        return next((each for each in blocks if each.name in left), None)

    def evenly() -> Point | None:
        name = min(left, key=lambda each: sum(map(seen.__getitem__, levels[each])), default=None)
        return None if name is None else left[name]

    def learner() -> Point | None:
        return next(learners, None)

    while left:
        for choose in (of_a_block, evenly, learner, of_a_block, evenly):
            chosen = choose()
            if chosen is not None:
                if left.pop(chosen.name, None):
                    seen.update(levels[chosen.name])
                yield chosen


def _blocks() -> Iterator[Point]:
    for workers, shards, regime, stragglers in _BLOCKS:
        for strategy in STRATEGIES:
            its = shards_of(strategy)
            yield point(strategy, workers, shards if shards in its else its[0], regime, stragglers)


def _levels(chosen: Point) -> list[tuple[object, ...]]:
    """The levels of its factors, and their pairs."""
    levels = [(name, chosen.factors[name]) for name in FACTORS]
    return [*((level,) for level in levels), *combinations(levels, 2)]
