"""Fits what is free in each series, and predicts all of its rows."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

import lockstep
from lockstep import Scenario, scenarios
from lockstep.pool import results
from lockstep.scenarios.document import parse
from lockstep.selection import only_its_own
from lockstep.studies.published.table import Series, Table, series_of

Progress = Callable[[float], None]


class Fitted(NamedTuple):
    """A series with what was found: `free` in base units with their `unit`; `at_end`: of its range.

    `scenario`: that of the table with these values.
    """

    series: Series
    free: dict[str, dict[str, Any]]
    at_end: tuple[str, ...]
    scenario: Scenario


def study(
    tables: Sequence[Table], progress: Progress | None = None, jobs: int | None = None
) -> tuple[list[Fitted], pd.DataFrame]:
    """Fit every series of the tables, then predict every row.

    The data frame has a row a row: `table`, `series`, `label`, `workers`, `use`, `cause`, `modelled`,
    `simulated`, `mended`, `measured`, `predicted` and `error` ((predicted − measured) ÷ measured), as in the
    tables.
    `progress` is told the fraction done; `jobs` processes, or one a core.
    """
    every = [series for table in tables for series in series_of(table)]
    fits = list(_made([partial(fitted, series) for series in every], jobs, progress, 0.0, 0.4))
    return fits, _rows(fits, jobs, progress, 0.4, 0.8)


def once(
    fits: Sequence[Fitted], rows: pd.DataFrame, progress: Progress | None = None, jobs: int | None = None
) -> tuple[list[Fitted], pd.DataFrame]:
    """The same with what belongs to a machine found once: all keys but the first.

    It is found by the series there that shows most of it: of those with as many rows to fit as keys that with
    the most parameters, then the smallest mini-batch, then the first. Others are given that, and only find
    their first key, by their first row to fit; their second one is predicted. `fits` and `rows` are those of
    `study`.
    """
    calls = {place: call for place, call in enumerate(given_the_machine(fits)) if call is not None}
    again = dict(zip(calls, _made([*calls.values()], jobs, progress, 0.8, 0.9), strict=True))
    changed = _rows([*again.values()], jobs, progress, 0.9, 1.0)
    other = {(fit.series.table.name, fit.series.name) for fit in again.values()}
    kept = rows[[pair not in other for pair in zip(rows["table"], rows["series"], strict=True)]]
    found = pd.concat([kept, changed], ignore_index=True)
    return [again.get(place, fit) for place, fit in enumerate(fits)], found


def given_the_machine(fits: Sequence[Fitted]) -> Iterator[Callable[[], Fitted] | None]:
    """What fits each series once more; None: it is the one by which its machine is known."""
    leaders: dict[Hashable, Fitted] = {}
    for fit in fits:
        machine = _machine(fit)
        shows_all = len(fit.free) == len(fit.series.table.free)
        if shows_all and (machine not in leaders or _shows(fit) > _shows(leaders[machine])):
            leaders[machine] = fit
    for fit in fits:
        leader, series = leaders.get(_machine(fit), fit), fit.series
        if leader is fit:
            yield None
            continue
        facts = series.facts.copy()
        facts.loc[facts.index[facts["use"] == "fit"][1:], "use"] = "predict"
        first = dict([*series.free.items()][:1])
        yield partial(fitted, series._replace(facts=facts, free=first), leader.scenario)


def _machine(fit: Fitted) -> Hashable:
    table = fit.series.table
    if table.machine is None:
        return table.name, fit.series.name
    return table.name, *fit.series.facts[[*table.machine]].iloc[0]


def _shows(fit: Fitted) -> tuple[int, int]:
    """The more, the more of its step is the network's: parameters, and how small its mini-batches are."""
    first = fit.series.facts.iloc[0]
    return int(first.get("workload.parameters", 0)), -int(first.get("workload.batch_size", 0))


def _rows(
    fits: Sequence[Fitted], jobs: int | None, progress: Progress | None, begin: float, end: float
) -> pd.DataFrame:
    rows = [(fit, place) for fit in fits for place in fit.series.facts.index]
    # the longest first, so that they are not left to the end
    order = sorted(range(len(rows)), key=lambda each: -_workers(*rows[each]))
    calls = [partial(predicted, *rows[each]) for each in order]
    found = dict(zip(order, _made(calls, jobs, progress, begin, end), strict=True))
    return pd.DataFrame([_row(*rows[each], found[each]) for each in range(len(rows))])


def fitted(series: Series, scenario: Scenario | None = None) -> Fitted:
    """Find the free values of a series from its rows to fit; scenario: with other values than the table's."""
    table = series.table
    facts = series.facts[series.facts["use"] == "fit"]
    columns = [key for key in map(str, facts) if "." in key or key in (table.measure, "use")]
    ends = {key: tuple(parse(end, {}) for end in text.split("..")) for key, text in series.free.items()}
    found = lockstep.fit(scenario or _scenario(table), facts[columns], ends, jobs=1)
    free = {key: {"value": value.value, "unit": value.unit} for key, value in found.free.items()}
    return Fitted(series, free, found.at_end, found.scenario)


def predicted(fit: Fitted, place: int) -> float:
    """What was measured in a row, in its unit, as the simulator says with the values found."""
    scenario, table = _of_row(fit, place), fit.series.table
    if scenario.stop.steps is None:  # workers go on until all together have made so many updates
        return float(lockstep.simulate(scenario).metrics["throughput"])
    seconds = _seconds(scenario, scenario.stop.steps) - _seconds(scenario, table.settles)
    steps = scenario.stop.steps - table.settles
    samples = steps * scenario.workload.batch_size * scenario.replicas
    return samples / seconds if table.measure == "throughput" else seconds / steps


def _seconds(scenario: Scenario, steps: int | None) -> float:
    """How long so many steps take, from the first mini-batch to the last update."""
    if not steps:
        return 0.0
    stop = scenario.stop.model_copy(update={"steps": steps})
    begin, end = lockstep.simulate(scenario.model_copy(update={"stop": stop})).span
    return end - begin


def _of_row(fit: Fitted, place: int) -> Scenario:
    changed = scenarios.changing(fit.scenario).changed
    cells = fit.series.facts.loc[place]
    changes = {str(key): parse(cell, {}) for key, cell in cells.items() if "." in str(key) and cell}
    scenario = changed(changes)
    return only_its_own(scenario) if "strategy.name" in changes else scenario


def _scenario(table: Table) -> Scenario:
    return Scenario.model_validate(table.scenario)


def _workers(fit: Fitted, place: int) -> int:
    return _of_row(fit, place).cluster.workers


def _made(
    calls: Sequence[Callable[[], Any]], jobs: int | None, progress: Progress | None, begin: float, end: float
) -> list[Any]:
    made = []
    with results(calls, jobs) as found:
        for each in found:
            made.append(each)
            if progress is not None:
                progress(begin + (end - begin) * len(made) / len(calls))
    return made


def _row(fit: Fitted, place: int, value: float) -> dict[str, Any]:
    series, cells = fit.series, fit.series.facts.loc[place]
    table = series.table
    measured = float(str(cells[table.measure]))
    return {
        "table": table.name,
        "series": series.name,
        "label": _label(series, place),
        "workers": int(str(cells.get("devices", _workers(fit, place)))),  # a worker may be a host
        "measure": table.measure,
        "use": cells["use"],
        "cause": cells["cause"],
        "modelled": not cells["cause"],
        "simulated": table.simulated,
        "mended": table.mended,
        "measured": measured,
        "predicted": value,
        "error": value / measured - 1,
    }


def _label(series: Series, place: int) -> str:
    """What tells a row from the others of its series, such as "8 devices, 2 servers"."""
    cells = series.facts.loc[place]
    return ", ".join(f"{cells[key]} {word}".strip() for key, word in series.table.label.items())
