"""Finds what a few measurements leave open, so that a scenario extrapolates them (docs/fit.md).

fit(source, table, free, overrides=(), *, jobs=None, progress=None) -> Fit

source     a scenario's file or name, or a Scenario
table      a CSV file or a data frame: dotted keys, `throughput` or `step_s`, `sd`, `use`
free       {key: None or (LOW, HIGH)}, ends as a file has them, such as ("1 Mbit/s", "10 Gbit/s")
Fit        .free {key: Found(value, low, high, unit)}, .rows (a data frame: keys, measured, predicted,
           error, use, …), .identifiable, .flat, .document (what --json prints), .scenario
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import lockstep
from lockstep import scenarios
from lockstep.fitting import estimate
from lockstep.fitting.estimate import Array, Noise, Optimum, Problem
from lockstep.fitting.keys import Ends, Free, free
from lockstep.fitting.model import (
    OF_SEEDS,
    Anchored,
    Model,
    of_means,
    repeats,
    roughness,
    scenario_of,
    simulations,
    slope_step,
    steady,
)
from lockstep.fitting.table import Measure, Row, Table, Use, read
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.sweep import Changes

_NOTICED = 1e-4  # relative: a key that changes no row by as much changes nothing
_ANCHORED, _SETTLED = 4, 5e-4  # times at most, and the relative change that needs no other time
_NEAR = 5  # iterations, from where it is nearly best
_WIDE = 0.05  # the step of slopes, of logarithms, far from the optimum
_WIDEST = 100.0  # half of a band, of logarithms: anything at all
_SIMULATIONS = 80  # about how many a row takes, for the bar


@dataclass(frozen=True)
class Found:
    """A free key's value in base units, and its 95% interval; None: these rows set no such end."""

    value: float
    low: float | None
    high: float | None
    unit: str


@dataclass(frozen=True)
class Together:
    """Keys that these rows cannot tell: changed together by these factors, no row changes by more."""

    factors: Mapping[str, float]
    change: float


@dataclass(frozen=True)
class Fit:
    """What came of a fit.

    `rows`: a row each of the table's, in its order: its keys, `measured`, `predicted`, `low` and `high` (95%
    of a new measurement, None where nothing says how far these scatter), `error` ((predicted − measured) ÷
    measured), `use`, and `left_out`: its error when the others alone were fitted, where the table does not
    say what its rows are for. `noise`: the standard deviation of a measurement, relative (None: not known).
    `more`: how many times larger the errors are than the table's `sd` can explain, else 1. `at_end`: keys
    whose best value is an end of their range. `scenario`: the scenario with what was found, and the `profile`
    that it named.
    """

    free: Mapping[str, Found]
    rows: pd.DataFrame
    measure: Measure
    flat: tuple[Together, ...]
    noise: float | None
    more: float
    at_end: tuple[str, ...]
    keys: tuple[Free, ...]
    scenario: Scenario
    profile: Path | None

    @property
    def identifiable(self) -> bool:
        """Whether the rows tell all values apart and, if their scatter is known, set both ends of each."""
        ends = [end for found in self.free.values() for end in (found.low, found.high)]
        return not self.flat and (self.noise is None or None not in ends)

    @property
    def document(self) -> dict[str, Any]:
        """What `--json` prints."""
        plain = self.rows.astype(object).where(self.rows.notna(), None)
        return {
            "schema": 1,
            "scenario": self.scenario.name,
            "measure": str(self.measure),
            "free": {key: vars(found) for key, found in self.free.items()},
            "rows": plain.to_dict("records"),
            "identifiable": self.identifiable,
            "flat": [{"factors": dict(each.factors), "change": each.change} for each in self.flat],
            "noise": self.noise,
        }


def fit(
    source: "str | Path | Scenario",
    table: "str | Path | pd.DataFrame",
    free: Mapping[str, Ends],
    overrides: Sequence[str] = (),
    *,
    jobs: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Fit:
    """Find the values of the free keys that bring simulation and measurement together.

    See `lockstep.fit`, which this is. Raises ScenarioError.
    """
    measured = read(table)
    scenario, profile, changed = scenarios.changing(source, overrides, _checked)
    keys = _keys(free, scenario, changed, measured)
    rows = measured.rows
    done = 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(1 - math.exp(-done / (_SIMULATIONS * len(rows))))

    fitted = [number for number, row in enumerate(rows) if row.use is Use.FIT]
    start = np.log([key.start for key in keys])
    first = [scenario_of(row, {}, changed) for row in rows]
    with simulations(first, jobs) as simulate:
        whole = Model(rows, keys, measured.measure, changed, simulate, told)
        short = steady(whole, start, fitted)
        _require_effects(short, whole, keys, start, fitted)
        problem = _problem(Anchored(short, short), rows, fitted, keys)._replace(step=_WIDE)
        starts = estimate.scan(problem, start)
        far = any(slope_step(roughness(short, each)) > estimate.STEP for each in starts)
        begun = estimate.roughly(problem, starts, far)
        rough = roughness(short, begun.values)
        step = slope_step(rough)
        # workers may leave the step only in the course of a whole run, which short ones of few do not show
        predicted = [number for number, row in enumerate(rows) if row.use is Use.PREDICT]
        rough[predicted] = roughness(whole, begun.values, predicted)
        by_seed = whole.by_seed(begun.values)
        spread = by_seed.std(axis=0, ddof=1)
        many = repeats(rough, spread, predicted)
        model = Anchored(whole.repeated(many), short.repeated(repeats(rough)))
        # of a run, and of the mean of those that are simulated; in fitted rows the noise has it
        chance = np.square(np.maximum(rough, spread)) * (1 + 1 / np.array(many))
        chance[fitted] = 0.0
        common = of_means(by_seed, many)[np.ix_(fitted, fitted)]
        problem = _problem(model, rows, fitted, keys)._replace(step=step)
        best = _settled(model, problem, begun, fitted)
        model.anchor(best.values, range(len(rows)))
        for number in model.nothing(best.values):
            said = "nothing is applied before the run stops; give a later stop"
            raise ScenarioError(said, "stop", rows[number].place)
        return _result(model, problem, best, measured, fitted, chance, common, keys, changed, profile)


def _settled(model: Anchored, problem: Problem, best: Optimum, fitted: Sequence[int]) -> Optimum:
    """The best values by whole runs: where short ones, put right there, are best."""
    known = None
    for _ in range(_ANCHORED):
        if model.anchor(best.values, fitted) < _SETTLED:
            break
        end = estimate.COARSE if problem.rough else estimate.FINE
        best = estimate.downhill(problem, best.values, end, _NEAR, known)
        known = best.values, best.slopes
    else:
        model.anchor(best.values, fitted)
    return best._replace(residuals=problem.residuals(best.values[None])[0])


def _checked(scenario: Scenario) -> None:
    lockstep.check(scenario, fits=False)


def _keys(
    given: Mapping[str, Ends], scenario: Scenario, changed: Callable[[Changes], Scenario], table: Table
) -> tuple[Free, ...]:
    for row in table.rows:
        for key in given:
            if key in row.changes:
                raise ScenarioError("is a column of the table too; it is known there", f"--free {key}")
        scenario_of(row, {}, changed)
    keys = free(given, scenario, changed)
    count = sum(row.use is Use.FIT for row in table.rows)
    if count < len(keys):
        problem = f"{len(keys)} values cannot be found from {count} row{'s' * (count > 1)}: "
        raise ScenarioError(problem + "free fewer keys, or measure more rows", "--free")
    return keys


def _problem(model: Anchored, rows: Sequence[Row], fitted: Sequence[int], keys: Sequence[Free]) -> Problem:
    sds = [rows[number].sd for number in fitted]
    return Problem(
        lambda points: model.predict(points, fitted),
        np.log([rows[number].measured for number in fitted]),
        None
        if None in sds
        else np.array([sd / rows[number].measured for sd, number in zip(sds, fitted, strict=True) if sd]),
        np.log([key.low for key in keys]),
        np.log([key.high for key in keys]),
    )


def _require_effects(
    short: Model, whole: Model, keys: Sequence[Free], start: Array, rows: Sequence[int]
) -> None:
    """Raise ScenarioError for a key that changes nothing, from one end of its range to the other."""
    for number, (key, effect) in enumerate(zip(keys, _effects(short, keys, start, rows), strict=True)):
        if effect < _NOTICED and _effects(whole, keys, start, rows)[number] < _NOTICED:
            low, high = key.written(key.low, 3), key.written(key.high, 3)
            problem = f"changes nothing in the rows to fit, from {low} to {high}; leave it out"
            raise ScenarioError(problem, f"--free {key.key}")


def _effects(model: Model, keys: Sequence[Free], start: Array, rows: Sequence[int]) -> list[float]:
    """By how much each key can change any of these rows, as logarithms."""
    ends = np.repeat(start[None], 2 * len(keys), axis=0)
    for number, key in enumerate(keys):
        ends[2 * number, number], ends[2 * number + 1, number] = math.log(key.low), math.log(key.high)
    found = model.predict(np.vstack([start, ends]), rows)
    changes: list[float] = np.abs(found[1:] - found[0]).reshape(len(keys), -1).max(axis=1).tolist()
    return changes


def _result(
    model: Anchored,
    problem: Problem,
    best: Optimum,
    table: Table,
    fitted: Sequence[int],
    chance: Array,
    common: Array,
    keys: Sequence[Free],
    changed: Callable[[Changes], Scenario],
    profile: Path | None,
) -> Fit:
    noise = estimate.noise(problem, best, common)
    moved = estimate.moved(problem, best, noise, common)
    flat = tuple(_together(each, problem, best, keys) for each in estimate.flat(best, noise))
    lost = {key for each in flat if len(each.factors) > 1 for key in each.factors}
    found = {
        key.key: _found(key, number, problem, best, noise, moved, key.key in lost)
        for number, key in enumerate(keys)
    }
    written = {key.key: key.written(math.exp(value)) for key, value in zip(keys, best.values, strict=True)}
    inside = 1e-3 * (problem.high - problem.low)
    ends = (best.values < problem.low + inside) | (best.values > problem.high - inside)
    return Fit(
        found,
        _rows(model, problem, best, noise, moved, table, fitted, chance),
        table.measure,
        flat,
        noise.sd * float((1 / problem.weight).mean()) if noise.known else None,
        noise.more,
        tuple(key.key for key, end in zip(keys, ends, strict=True) if end),
        tuple(keys),
        changed(written),
        profile,
    )


def _together(direction: Array, problem: Problem, best: Optimum, keys: Sequence[Free]) -> Together:
    """A flat direction as factors: how much the rows change where its values double, or halve."""
    there = np.clip(best.values + math.log(2) * direction, problem.low, problem.high)
    change = problem.predict(there[None])[0] - problem.predict(best.values[None])[0]
    factors = {
        key.key: float(2.0**part) for key, part in zip(keys, direction, strict=True) if abs(part) > 0.1
    }
    return Together(factors, float(np.abs(np.expm1(change)).max()))


def _found(
    key: Free, number: int, problem: Problem, best: Optimum, noise: Noise, moved: Array, lost: bool
) -> Found:
    value = math.exp(best.values[number])
    if lost or not noise.known:
        return Found(value, None, None, key.unit)
    ends = estimate.interval(
        problem, best, noise, number, OF_SEEDS * math.sqrt(max(moved[number, number], 0.0))
    )
    low, high = (
        math.exp(end) if end is not None else (bound if firm else None)
        for end, bound, firm in zip(ends, (key.low, key.high), key.firm, strict=True)
    )
    return Found(value, low, high, key.unit)


def _rows(
    model: Anchored,
    problem: Problem,
    best: Optimum,
    noise: Noise,
    moved: Array,
    table: Table,
    fitted: Sequence[int],
    chance: Array,
) -> pd.DataFrame:
    """The table with what is predicted, and how far that may be off."""
    everything = Problem(
        model.predict, np.zeros(len(table.rows)), None, problem.low, problem.high, problem.step
    )
    logs = model.predict(best.values[None])[0]
    slopes = estimate.slopes(everything, best.values)
    unsure = estimate.covariance(problem, best, noise)
    spread, by_chance = (np.einsum("rk,kl,rl->r", slopes, each, slopes) for each in (unsure, moved))
    scatter = (noise.sd / problem.weight).mean() ** 2
    known = noise.quantile * np.sqrt(spread + scatter)
    half = np.minimum(np.hypot(known, OF_SEEDS * np.sqrt(np.maximum(by_chance, 0) + chance)), _WIDEST)
    out = None if table.divided else estimate.left_out(problem, best)
    found = []
    for number, row in enumerate(table.rows):
        predicted = math.exp(logs[number])
        found.append(
            {
                **row.changes,
                "measured": row.measured,
                "predicted": predicted,
                "low": predicted * math.exp(-half[number]) if noise.known else None,
                "high": predicted * math.exp(half[number]) if noise.known else None,
                "error": predicted / row.measured - 1,
                "use": str(row.use),
                "left_out": None if out is None else math.expm1(out[fitted.index(number)]),
            }
        )
    return pd.DataFrame(found)
