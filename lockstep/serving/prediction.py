"""What the page shows of a setting, computed in a process of its own: numbers first, then pictures."""

from base64 import b64encode
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import lockstep
from lockstep.analysis import plots
from lockstep.analysis.differences import Pair, Side, differences
from lockstep.analysis.records import of
from lockstep.analysis.report.pictures import data_uri
from lockstep.analysis.result import Result
from lockstep.analysis.summary import main_metrics
from lockstep.analysis.words import number, percent
from lockstep.recommendation.runs import stopping
from lockstep.scenarios import Scenario
from lockstep.simulator.pilot import instant

__all__ = ["Picture", "Prediction", "compare", "learn", "predict"]

_EVENTS, _BYTES = 8_000, 2_000_000  # of a simulation that a change of a setting waits for
_FEWEST, _MOST = 3, 12  # iterations of the median worker that a Gantt chart draws
_WIDE = 5  # inches
_HEAVY = 600_000  # characters of a data URI
_MANY = 20_000  # records: too many bars for vectors
_EVERY_S = 0.2  # that a simulation tells how far it is
# What depends on how long a run is; a beginning says nothing about them.
_OF_LENGTH = ("duration", "updates", "dropped", "sent")
_LEARNED = ("held-out", "accuracy", "time to", "cost to", "duration")


@dataclass(frozen=True)
class Picture:
    """A picture as a data URI, and what it is called."""

    name: str
    source: str
    wide: bool

    @classmethod
    def of(cls, name: str, figure: Figure, much: bool = False) -> "Picture":
        """Vectors, or points where there is so `much` in it that vectors would be slow to show."""
        source = "" if much else data_uri(figure)
        return cls(
            name, source if 0 < len(source) < _HEAVY else _points(figure), figure.get_figwidth() > _WIDE
        )


@dataclass(frozen=True)
class Prediction:
    """The numbers of a simulated run."""

    headline: Mapping[str, str]
    """What people look for first, in words and units."""
    breakdown: Mapping[str, float]
    """What the mean worker did with its time: shares by activity."""
    bottleneck: str
    metrics: Mapping[str, str]
    """All that is worth telling, in words and units."""
    learned: Mapping[str, str]
    """Of these what was learned, and when."""
    warnings: tuple[str, ...]
    until: float | None
    """Seconds of virtual time of the beginning that was simulated; None: the whole run."""
    row: Mapping[str, Any]
    """The run as a row of a table (`analysis.table`)."""


def bounded(scenario: Scenario) -> tuple[Scenario, float | None]:
    """The scenario by sizes only, as much of it as takes a moment; and its seconds, None if that is all."""
    sizes = scenario.sizes_only
    lockstep.check(sizes)
    if sizes.with_faults:
        return sizes, None
    until = instant(sizes, _EVENTS, _BYTES)
    return (sizes, None) if until is None else (stopping(sizes, time=until), until)


def predict(scenario: Scenario) -> Iterator[float | Prediction | Picture]:
    """By sizes only: the fraction done now and then, the numbers, what was done in the first iterations."""
    short, until = bounded(scenario)
    result = yield from _watched(short)
    yield prediction(result, until)
    if result.span[1] > result.span[0]:
        first, iterations = beginning(result)
        yield Picture.of("gantt", plots.gantt([first], iterations), len(first.records) > _MANY)


def learn(scenario: Scenario) -> Iterator[float | Prediction | Picture]:
    """The whole run with its real gradients: the fraction done now and then, the numbers, the loss curve.

    The simulation runs in a thread, so that the fractions come while it does.
    """
    lockstep.check(scenario)
    result = yield from _watched(scenario)
    yield prediction(result, None)
    if len(result.curve):
        yield Picture.of("loss", plots.learning([result]))


def _watched(scenario: Scenario) -> Generator[float, None, Result]:
    """Simulate in a thread, and yield the fraction done while it goes on."""
    done = [0.0]
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(lockstep.simulate, scenario, lambda fraction: done.__setitem__(0, fraction))
        wait([future], timeout=_EVERY_S)
        while not future.done():
            yield done[0]
            wait([future], timeout=_EVERY_S)
        return future.result()


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Pair | Picture]:
    """What differs between two predictions' rows, and where the time of a step went."""
    (pair,) = differences(Side("A", pd.DataFrame([first])), Side("B", pd.DataFrame([second])))
    keys = {key: values for key, values in pair.keys.items() if not key.startswith("stop.")}
    yield replace(pair, keys=keys)
    if pair.step_s and not pair.same:
        yield Picture.of("step", plots.waterfall(pair))


def prediction(result: Result, until: float | None) -> Prediction:
    """The numbers of a run."""
    metrics = result.metrics
    main = main_metrics(result)
    if until is not None:
        main = {name: value for name, value in main.items() if name not in _OF_LENGTH}
    main.pop("bottleneck", None)
    return Prediction(
        headline(result),
        metrics["breakdown"],
        metrics["bottleneck"] or "",
        main,
        {name: text for name, text in main.items() if name.startswith(_LEARNED)},
        tuple(metrics["warnings"]),
        until,
        result.row,
    )


def headline(result: Result) -> dict[str, str]:
    """Throughput, speedup, the time of a step, staleness."""
    metrics, scenario = result.metrics, result.scenario
    rate = metrics["throughput"]
    step = scenario.workload.batch_size * scenario.replicas / rate if rate else None
    times = number(metrics["speedup"], "×")
    return {
        "throughput": number(rate, "samples/s"),
        "speedup": f"{times} ({percent(metrics['efficiency'])} of ideal)",
        "step time": number(step and step * 1000, "ms") if step and step < 1 else number(step, "s"),
        "mean staleness": number(metrics["staleness"]["mean"]),
    }


def beginning(result: Result) -> tuple[Result, int]:
    """The run with the records of its first iterations only, and how many a Gantt chart is to draw of them.

    Until something was applied, if that is soon.
    """
    records = result.records
    gradients = of(records, "gradient", ["node", "end"]).sort_values(["node", "end"])
    updates = of(records, "update", ["end"])["end"]
    if gradients.empty:
        return result, _FEWEST
    workers = gradients.groupby("node")["end"]
    until = updates.min() if len(updates) else 0.0
    made = int(workers.apply(lambda ends: (ends <= until).sum()).median()) + 1
    iterations = made if _FEWEST < made <= _MOST else _FEWEST
    last = workers.apply(lambda ends: ends.iloc[min(iterations + 1, len(ends)) - 1]).median()
    return replace(result, records=records[records["start"] <= last].reset_index(drop=True)), iterations


def _points(figure: Figure) -> str:
    with TemporaryDirectory() as folder:
        (file,) = plots.save(figure, Path(folder) / "picture", ["png"])
        return "data:image/png;base64," + b64encode(file.read_bytes()).decode()
