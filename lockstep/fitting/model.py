"""What the simulator predicts for a table's rows, given values of the free keys; each once."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import numpy as np

import lockstep
from lockstep.analysis import metrics
from lockstep.fitting.estimate import Array
from lockstep.fitting.keys import Free
from lockstep.fitting.table import Measure, Row
from lockstep.pool import cores, pool
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.sweep import Changes
from lockstep.selection import only_its_own

Simulate = Callable[[Sequence[Scenario]], list[float]]
_LONG_S = 0.02  # a simulation, from which on processes are worth their start
_NOTHING = -50.0  # the logarithm that stands for a throughput of nothing at all
_STEADY = 0.01  # relative: how near a short run has to come to the whole one
_SHORTEST = 8


def throughput(scenario: Scenario) -> float:
    """Samples a second, by sizes only; 0 if nothing was applied."""
    return metrics.throughput(lockstep.simulate(scenario.sizes_only)) or 0.0


def _here(scenarios: Sequence[Scenario]) -> list[float]:
    return [throughput(scenario) for scenario in scenarios]


@contextmanager
def simulations(some: Sequence[Scenario], jobs: int | None) -> Iterator[Simulate]:
    """What simulates many scenarios; in `jobs` processes or, if None, in one a core where that pays."""
    if jobs is None:
        _here(some[:1])  # which loads what it takes
        begun = perf_counter()
        _here(some[:1])
        jobs = cores() if perf_counter() - begun > _LONG_S else 1
    if jobs == 1:
        yield _here
        return
    with pool(jobs) as submit:

        def there(scenarios: Sequence[Scenario]) -> list[float]:
            futures = [submit(throughput, scenario) for scenario in scenarios]
            return [future.result() for future in futures]

        yield there


def scenario_of(row: Row, values: Changes, changed: Callable[[Changes], Scenario]) -> Scenario:
    """The scenario of a row, with free values. Raises ScenarioError, with the row's place."""
    try:
        found = changed({**row.changes, **values})
    except ScenarioError as error:
        raise ScenarioError(error.problem, error.key, row.place) from None
    return only_its_own(found) if "strategy.name" in row.changes else found


class Model:
    """Predictions for rows as logarithms of what they measure; `steps` bounds the mini-batches per worker."""

    def __init__(
        self,
        rows: Sequence[Row],
        keys: Sequence[Free],
        measure: Measure,
        changed: Callable[[Changes], Scenario],
        simulate: Simulate,
        told: Callable[[int], None],
        steps: int | None = None,
    ) -> None:
        self._rows, self._keys, self._measure = rows, keys, measure
        self._changed, self._simulate, self._told, self._steps = changed, simulate, told, steps
        self._known: dict[tuple[int, tuple[float, ...]], float] = {}

    def bounded(self, steps: int | None) -> "Model":
        """The same with other bounds."""
        return Model(self._rows, self._keys, self._measure, self._changed, self._simulate, self._told, steps)

    def scenario(self, row: int, values: Sequence[float]) -> Scenario:
        """That of a row, with values of the free keys (logarithms)."""
        written = {
            key.key: key.written(min(max(math.exp(value), key.low), key.high))
            for key, value in zip(self._keys, values, strict=True)
        }
        found = scenario_of(self._rows[row], written, self._changed)
        if self._steps is None:
            return found
        steps = min(found.stop.steps or self._steps, self._steps)
        return found.model_copy(update={"stop": found.stop.model_copy(update={"steps": steps})})

    def predict(self, points: Array, rows: Sequence[int] | None = None) -> Array:
        """Logarithms, of shape (points, rows), for points of shape (points, keys); of these rows, or all."""
        rows = range(len(self._rows)) if rows is None else rows
        wanted = [(row, tuple(point)) for point in points.tolist() for row in rows]
        new = [each for each in dict.fromkeys(wanted) if each not in self._known]
        scenarios = [self.scenario(*each) for each in new]
        for each, scenario, found in zip(new, scenarios, self._simulate(scenarios), strict=True):
            self._known[each] = self._logarithm(scenario, found)
        self._told(len(new))
        return np.array([self._known[each] for each in wanted]).reshape(len(points), len(rows))

    def _logarithm(self, scenario: Scenario, found: float) -> float:
        rate = math.log(found) if found > 0 else _NOTHING
        if self._measure is Measure.THROUGHPUT:
            return rate
        return math.log(scenario.workload.batch_size * scenario.replicas) - rate

    def nothing(self, values: Array, rows: Sequence[int]) -> list[int]:
        """The rows in which nothing was applied."""
        found = np.abs(self.predict(values[None], rows)[0])
        return [row for row, each in zip(rows, found.tolist(), strict=True) if each > -_NOTHING / 2]


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
