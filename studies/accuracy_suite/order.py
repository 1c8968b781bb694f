"""The order of the suite's points: whatever number of them is taken from the front is an even sample.

Of five points two are of the ranking blocks, in which all strategies are on the same cluster; two are chosen
so that levels, and pairs of levels, of the factors come up as evenly as they can, the second of them on the
cables that the campaign has drawn; one learns.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from lockstep.studies.accuracy_suite.grid import STRATEGIES, USUAL, Cables, grid, point, shards_of
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


def suite(drawn: Cables | None = None) -> Iterator[Point]:
    """All points in their order, with the grid on drawn cables too if there are any. No chance is in it."""
    usual = _Grid(USUAL)
    other = _Grid(drawn) if drawn else usual
    blocks, learners = _blocks(), iter(learning())

    def of_a_block() -> Point | None:
        return next((each for each in blocks if usual.take(each)), None)

    while usual.left or other.left:
        for choose in (of_a_block, usual.evenly, lambda: next(learners, None), of_a_block, other.evenly):
            chosen = choose()
            if chosen is not None:
                yield chosen


class _Grid:
    """What is left of a grid's points."""

    def __init__(self, cables: Cables) -> None:
        self.left = {point.name: point for point in grid(cables)}
        self._levels = {name: _levels(point) for name, point in self.left.items()}
        self._seen: Counter[tuple[object, ...]] = Counter()

    def take(self, chosen: Point) -> bool:
        """Take a point out; False if it is not there any more."""
        if self.left.pop(chosen.name, None) is None:
            return False
        self._seen.update(self._levels[chosen.name])
        return True

    def evenly(self) -> Point | None:
        """Take out one whose levels have come up least."""

        def come_up(name: str) -> int:
            return sum(map(self._seen.__getitem__, self._levels[name]))

        name = min(self.left, key=come_up, default=None)
        if name is None:
            return None
        chosen = self.left[name]
        self.take(chosen)
        return chosen


def _blocks() -> Iterator[Point]:
    for workers, shards, regime, stragglers in _BLOCKS:
        for strategy in STRATEGIES:
            its = shards_of(strategy)
            yield point(strategy, workers, shards if shards in its else its[0], regime, stragglers)


def _levels(chosen: Point) -> list[tuple[object, ...]]:
    """The levels of its factors, and their pairs."""
    levels = [(name, chosen.factors[name]) for name in FACTORS]
    return [*((level,) for level in levels), *combinations(levels, 2)]
