"""What the simulator predicts for a table's rows, given values of the free keys; each once."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import numpy as np
from scipy.special import stdtrit

import lockstep
from lockstep.analysis import metrics
from lockstep.fitting.estimate import STEP, Array
from lockstep.fitting.keys import Free
from lockstep.fitting.table import Measure, Row
from lockstep.pool import cores, pool
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.sweep import Changes
from lockstep.selection import only_its_own

Simulate = Callable[[Sequence[int], Sequence[Scenario]], list[float]]
"""The throughputs of scenarios, each of this row."""
_LONG_S = 0.02  # a simulation, from which on processes are worth their start
_NOTHING = -50.0  # the logarithm that stands for a throughput of nothing at all
_STEADY = 0.03  # relative: how near a short run has to come to the whole one
_SHORTEST = 8
_MANY = 10  # runs of a rough row that is to be predicted: as many as the accuracy suite's
_LOOKS = 4  # at each row, with values next to each other, at how rough predictions are
_SEEDS = 8  # with which whole runs are looked at
OF_SEEDS = float(stdtrit(_SEEDS - 1, 0.975))  # how many standard deviations 95% are that so many runs tell
_APART = 2e-3
_ROUGH = 5e-3  # relative standard deviation around a line, from which on means are taken
_SURE = 5e-3  # the standard error that a mean of whole runs is to have
_OF_ROUGHNESS = 5.0  # times it is the step of slopes


def throughput(scenario: Scenario) -> float:
    """Samples a second, by sizes only; 0 if nothing was applied."""
    return metrics.throughput(lockstep.simulate(scenario.sizes_only)) or 0.0


def _here(rows: Sequence[int], scenarios: Sequence[Scenario]) -> list[float]:
    return [throughput(scenario) for scenario in scenarios]


def _timed(scenario: Scenario) -> tuple[float, float]:
    begun = perf_counter()
    return throughput(scenario), perf_counter() - begun


@contextmanager
def simulations(some: Sequence[Scenario], jobs: int | None) -> Iterator[Simulate]:
    """What simulates many scenarios; in `jobs` processes or, if None, in one a core where that pays."""
    if jobs is None:
        throughput(some[0])  # which loads what it takes
        jobs = cores() if any(_timed(each)[1] > _LONG_S for each in some) else 1
    if jobs == 1:
        yield _here
        return
    took: dict[int, float] = {}  # seconds, by row
    with pool(jobs) as submit:

        def there(rows: Sequence[int], scenarios: Sequence[Scenario]) -> list[float]:
            # the longest first: else one of these may be the last, with nothing beside it
            order = sorted(range(len(rows)), key=lambda number: -took.get(rows[number], 0.0))
            futures = {number: submit(_timed, scenarios[number]) for number in order}
            found = [futures[number].result() for number in range(len(rows))]
            took.update(zip(rows, (seconds for _, seconds in found), strict=True))
            return [rate for rate, _ in found]

        yield there


def scenario_of(row: Row, values: Changes, changed: Callable[[Changes], Scenario]) -> Scenario:
    """The scenario of a row, with free values. Raises ScenarioError, with the row's place."""
    try:
        found = changed({**row.changes, **values})
    except ScenarioError as error:
        raise ScenarioError(error.problem, error.key, row.place) from None
    return only_its_own(found) if "strategy.name" in row.changes else found


_Run = tuple[int, tuple[float, ...], int]
"""A row, values of the free keys (logarithms), and how much is added to the seed."""


class Model:
    """Predictions for rows as logarithms of what they measure.

    `steps` bounds the mini-batches per worker. `repeats`: for each row, of how many simulations a prediction
    is the mean; they have consecutive seeds, and values a little apart, the same for all predictions.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        keys: Sequence[Free],
        measure: Measure,
        changed: Callable[[Changes], Scenario],
        simulate: Simulate,
        told: Callable[[int], None],
        steps: int | None = None,
        repeats: Sequence[int] = (),
    ) -> None:
        self._rows, self._keys, self._measure = rows, keys, measure
        self._changed, self._simulate, self._told = changed, simulate, told
        self._steps, self._repeats = steps, repeats or [1] * len(rows)
        self._known: dict[_Run, float] = {}
        # rows that are alike are simulated once
        changes = [row.changes for row in rows]
        self._alike = [changes.index(each) for each in changes]

    def __len__(self) -> int:
        return len(self._rows)

    def _like(self, steps: int | None, repeats: Sequence[int]) -> "Model":
        its = self._rows, self._keys, self._measure, self._changed, self._simulate, self._told
        return Model(*its, steps, repeats)

    def bounded(self, steps: int) -> "Model":
        """The same with shorter runs."""
        return self._like(steps, self._repeats)

    def repeated(self, repeats: Sequence[int]) -> "Model":
        """The same with means of so many runs of each row."""
        return self if [*repeats] == [*self._repeats] else self._like(self._steps, repeats)

    def scenario(self, row: int, values: Sequence[float], more_seed: int = 0) -> Scenario:
        """That of a row, with values of the free keys (logarithms)."""
        written = {
            key.key: key.written(min(max(math.exp(value), key.low), key.high))
            for key, value in zip(self._keys, values, strict=True)
        }
        found = scenario_of(self._rows[row], written, self._changed)
        stop = found.stop
        if self._steps is not None:
            stop = stop.model_copy(update={"steps": min(stop.steps or self._steps, self._steps)})
        return found.model_copy(update={"seed": found.seed + more_seed, "stop": stop})

    def predict(self, points: Array, rows: Sequence[int] | None = None) -> Array:
        """Logarithms, of shape (points, rows), for points of shape (points, keys); of these rows, or all."""
        rows = range(len(self._rows)) if rows is None else rows
        found = self._simulated([self._runs(row, point) for point in points for row in rows])
        return np.array([_mean(many) for many in found]).reshape(len(points), len(rows))

    def by_seed(self, values: Array) -> Array:
        """How runs with other seeds differ from their mean, shape (seeds, rows); often by nothing."""

        def runs(seeds: int) -> Array:
            each = [[(row, tuple(values), seed) for seed in range(seeds)] for row in self._alike]
            return np.array(self._simulated(each)).T

        two = runs(2)
        found = np.repeat(two[:1], _SEEDS, axis=0) if (two[0] == two[1]).all() else runs(_SEEDS)
        return np.asarray(found - found.mean(axis=0))

    def _runs(self, row: int, values: Array) -> list[_Run]:
        shifts = _shifts(self._repeats[row])
        return [(self._alike[row], tuple(values + shift), seed) for seed, shift in enumerate(shifts)]

    def _simulated(self, wanted: Sequence[Sequence[_Run]]) -> list[list[float]]:
        """The logarithms of these runs' results; each is simulated once."""
        each = dict.fromkeys(one for many in wanted for one in many)
        new = [one for one in each if one not in self._known]
        scenarios = [self.scenario(*one) for one in new]
        found = self._simulate([row for row, *_ in new], scenarios)
        for one, scenario, rate in zip(new, scenarios, found, strict=True):
            self._known[one] = self._logarithm(scenario, rate)
        self._told(len(new))
        return [[self._known[one] for one in many] for many in wanted]

    def _logarithm(self, scenario: Scenario, found: float) -> float:
        rate = math.log(found) if found > 0 else _NOTHING
        if self._measure is Measure.THROUGHPUT:
            return rate
        return math.log(scenario.workload.batch_size * scenario.replicas) - rate


class Anchored:
    """What short runs predict, put right by what whole ones say at one point, the anchor."""

    def __init__(self, whole: Model, short: Model) -> None:
        self._whole, self._short = whole, short
        self._off: Array = np.full(len(whole), math.nan)

    def anchor(self, values: Array, rows: Sequence[int]) -> float:
        """Put the predictions of these rows right there; the largest change of any, inf at first."""
        places, before = [*rows], self._off.copy()
        off = self._whole.predict(values[None], rows)[0] - self._short.predict(values[None], rows)[0]
        self._off[places] = off
        change = np.abs(off - before[places])
        return math.inf if np.isnan(change).any() else float(change.max())

    def predict(self, points: Array, rows: Sequence[int] | None = None) -> Array:
        """As `Model.predict`."""
        off = self._off if rows is None else self._off[[*rows]]
        return self._short.predict(points, rows) + np.nan_to_num(off)

    def nothing(self, values: Array) -> list[int]:
        """The rows in which nothing was applied."""
        found = np.abs(self.predict(values[None])[0])
        return [row for row, each in enumerate(found.tolist()) if each > -_NOTHING / 2]


def steady(model: Model, values: Array, rows: Sequence[int]) -> Model:
    """The model with runs as short as say nearly the same at these values; itself, if none are."""
    whole = model.predict(values[None], rows)
    longest = max((model.scenario(row, values.tolist()).stop.steps or 2**20) for row in rows)
    steps = _SHORTEST
    while 2 * steps < longest:
        shorter = model.bounded(steps)
        if np.abs(shorter.predict(values[None], rows) - whole).max() < _STEADY:
            return shorter
        steps *= 2
    return model


def _mean(logarithms: Sequence[float]) -> float:
    """That of a row's runs; nothing, if in any of them nothing was applied."""
    farthest = max(logarithms, key=abs)
    return farthest if abs(farthest) > -_NOTHING / 2 else float(np.mean(logarithms))


def of_means(by_seed: Array, counts: Sequence[int]) -> Array:
    """The covariance of the means of so many runs of each row, shape (rows, rows).

    `by_seed`: of single runs, as `Model.by_seed`. All have the same seeds: the mean of more runs has all
    those of the other.
    """
    single = by_seed.T @ by_seed / (len(by_seed) - 1)
    return np.asarray(single / np.maximum.outer(counts, counts))


def _shifts(count: int) -> list[float]:
    """How far the values of so many runs are apart from those of their mean."""
    return [0.0] if count == 1 else (_APART * np.linspace(-1, 1, count)).tolist()


def roughness(model: Model, values: Array, rows: Sequence[int] | None = None) -> Array:
    """How far predictions of these rows, or all, scatter around a line over a short way.

    Relative standard deviations, shape (rows,), and 0 for rows that are smooth. Where workers queue at
    servers any small change can give another order: a prediction is then as rough as if it were random,
    although the seed is the same. Smooth ones are a straight line over a short way.
    """
    shifts = np.array(_shifts(_LOOKS))
    found = model.predict(values + shifts[:, None], rows)
    line = np.vander(shifts, 2)
    off = found - line @ np.linalg.lstsq(line, found, rcond=None)[0]
    rough: Array = np.sqrt((off**2).sum(axis=0) / (_LOOKS - 2))
    return np.where(rough > _ROUGH, rough, 0.0)


def repeats(rough: Array, spread: Array | None = None, predicted: Sequence[int] = ()) -> list[int]:
    """Of how many runs each row's predictions should be means.

    `spread`: the standard deviations of whole runs with other seeds, where those count.
    `predicted`: the rows that are not fitted.
    """
    found = [_LOOKS if each else 1 for each in rough.tolist()]
    if spread is None:
        return found
    wanted = np.clip(np.ceil((spread / _SURE) ** 2), 1, _MANY).astype(int).tolist()
    return [
        _MANY if number in predicted and count > 1 else max(count, more)
        for number, (count, more) in enumerate(zip(found, wanted, strict=True))
    ]


def slope_step(rough: Array) -> float:
    """Over which step slopes should be taken."""
    return max(STEP, _OF_ROUGHNESS * float((rough / math.sqrt(_LOOKS)).max(initial=0.0)))
