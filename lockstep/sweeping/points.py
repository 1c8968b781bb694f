"""The runs of a sweep, in a fixed order, each with a key by which it is known again."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, NamedTuple

import lockstep
from lockstep import scenarios
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.selection import only_its_own
from lockstep.sweeping.version import version

_NAMES_A_FILE = ("file", "trace", "layer_times", "graph")
ENGINES = ("simulator", "executor")


class Run(NamedTuple):
    """One run of a point, whose runs differ in the seed; `key` is the run's name."""

    point: int
    key: str
    scenario: Scenario


class Plan(NamedTuple):
    """What a sweep has to do.

    `points`: what each changes. `same`: how many runs were left out, because they are others once more.
    """

    scenario: Scenario
    runs: list[Run]
    points: list[dict[str, Any]]
    same: int
    engine: str
    testbed: bool

    @property
    def swept(self) -> list[str]:
        """The keys that vary."""
        return list(dict.fromkeys(key for changes in self.points for key in changes))


def plan(
    source: str | Path | Scenario,
    overrides: Iterable[str] = (),
    engine: str = "simulator",
    testbed: bool = False,
) -> Plan:
    """All runs of a file's, or a scenario's, sweep; without one, the scenario itself. Raises ScenarioError.

    Where the strategy's name varies, each has its own parameters only, so that points may be the same.
    """
    if engine not in ENGINES:
        raise ScenarioError(f"must be {' or '.join(ENGINES)}, not {engine!r}", key="--engine")
    if testbed and engine != "executor":
        raise ScenarioError("is for real runs; say --engine executor too", key="--testbed")
    # where it varies how the model is split it asks what fits: runs fail that do not
    asks = [_splits(source)] if isinstance(source, Scenario) else []

    def check(each: Scenario) -> None:
        if not asks:  # the file's own comes first, and has the sweep
            asks.append(_splits(each))
        lockstep.check(each, testbed=testbed, fits=not asks[0])

    scenario, expanded = scenarios.points(source, list(overrides), check)
    runs: dict[str, Run] = {}
    points: list[dict[str, Any]] = []
    same = 0
    for changes, changed in expanded:
        each = changed
        if "strategy.name" in changes:
            each = only_its_own(changed)
            gone = {f"strategy.{name}" for name in changed.strategy.parameters} - {
                f"strategy.{name}" for name in each.strategy.parameters
            }
            changes = {key: value for key, value in changes.items() if key not in gone}
        before = len(runs)
        for seed in scenarios.seeds(scenario.sweep, each.seed):
            seeded = each.model_copy(update={"seed": seed})
            name = key(seeded, engine, testbed)
            same += name in runs
            runs.setdefault(name, Run(len(points), name, seeded))
        if len(runs) > before:
            points.append(changes)
    return Plan(scenario, list(runs.values()), points, same, engine, testbed)


def _splits(scenario: Scenario) -> bool:
    """Whether the sweep varies how the model is split."""
    swept = scenario.sweep
    names = [*swept, *swept.get("zip", {}), *(name for point in swept.get("points", ()) for name in point)]
    return any(name.startswith("parallelism") for name in names)


def key(scenario: Scenario, engine: str, testbed: bool) -> str:
    """A run's name: 16 hexadecimal digits of the hash of all that decides what comes of it.

    That is the scenario, the files that it names, the engine, the code and the libraries.
    """
    document = scenario.model_dump(mode="json", exclude={"sweep"})
    files = [_content_of(place) for place in _files(document)]
    text = json.dumps([document, files, engine, testbed, version(engine)], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def _files(value: Any) -> Iterator[str]:
    """The files that a scenario names, anywhere."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name in _NAMES_A_FILE and isinstance(item, str):
                yield from [item] * os.path.exists(item)  # a strategy has a graph that is none
            elif name == "options":  # of a task: any may be a file or a folder
                yield from (each for each in _texts(item) if os.path.exists(each))
            else:
                yield from _files(item)
    elif isinstance(value, list):
        for item in value:
            yield from _files(item)


def _texts(value: Any) -> Iterator[str]:
    """The texts in a value, anywhere."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _content_of(place: str) -> Any:
    """What tells a file's content from another; of a folder, its files' names, sizes and last changes."""
    if not os.path.isdir(place):
        return _content(place, os.stat(place).st_mtime_ns)
    found = ((each, each.stat()) for each in sorted(Path(place).rglob("*")) if each.is_file())
    return [(str(each), its.st_size, its.st_mtime_ns) for each, its in found]


@lru_cache(16)
def _content(file: str, changed: int) -> str:
    with open(file, "rb") as opened:
        return file_digest(opened, "sha256").hexdigest()
