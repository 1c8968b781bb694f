"""The runs of a sweep, in a fixed order, each with a key by which it is known again."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import lockstep
from lockstep import scenarios
from lockstep.analysis.folders import INCOMPLETE
from lockstep.job.version import version
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.selection import only_its_own

_NAMES_A_FILE = ("file", "trace", "layer_times", "graph")
_RESULTS = {"points.jsonl"}, {"result.json", "records.parquet"}  # whose folder is one of results
_MOST_LISTED = 100_000  # files of a folder: what comes later is not looked at
Listing = list[tuple[str, int, int]]
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
    same, listings = 0, dict[str, Listing]()
    for changes, changed in expanded:
        each = changed
        if "strategy.name" in changes:
            each = only_its_own(changed)
            gone = {f"strategy.{name}" for name in changed.strategy.parameters} - {
                f"strategy.{name}" for name in each.strategy.parameters
            }
            changes = {key: value for key, value in changes.items() if key not in gone}
        before, key_of = len(runs), keys(each, engine, testbed, listings)
        for seed in scenarios.seeds(scenario.sweep, each.seed):
            name = key_of(seed)
            same += name in runs
            runs.setdefault(name, Run(len(points), name, each.model_copy(update={"seed": seed})))
        if len(runs) > before:
            points.append(changes)
    return Plan(scenario, list(runs.values()), points, same, engine, testbed)


def _splits(scenario: Scenario) -> bool:
    """Whether the sweep varies how the model is split."""
    swept = scenario.sweep
    names = [*swept, *swept.get("zip", {}), *(name for point in swept.get("points", ()) for name in point)]
    return any(name.startswith("parallelism") for name in names)


def keys(
    scenario: Scenario, engine: str, testbed: bool, listings: dict[str, Listing]
) -> Callable[[int], str]:
    """The name of a run by its seed: 16 hexadecimal digits of the hash of all that decides what comes of it.

    That is the scenario, the files that it names, the engine, the code and the libraries. `listings`: of the
    folders that it names, for the runs of one sweep.
    """
    document = scenario.model_dump(mode="json", exclude={"sweep"})
    found = [_content_of(place, listings) for place in _places(document)]

    def key(seed: int) -> str:
        seeded = {**document, "seed": seed}
        text = json.dumps([seeded, found, engine, testbed, version(engine)], sort_keys=True)
        return sha256(text.encode()).hexdigest()[:16]

    return key


def _places(value: Any) -> Iterator[str]:
    """The files that a scenario names, anywhere, and folders that options of a task are."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name in _NAMES_A_FILE and isinstance(item, str):
                yield from [item] * os.path.isfile(item)  # a strategy has a graph that is none
            elif name == "options":
                yield from (each for each in _texts(item) if os.path.isfile(each) or os.path.isdir(each))
            else:
                yield from _places(item)
    elif isinstance(value, list):
        for item in value:
            yield from _places(item)


def _texts(value: Any) -> Iterator[str]:
    """The texts in a value, anywhere."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _content_of(place: str, listings: dict[str, Listing]) -> str | Listing:
    """What tells a file's content, or a folder's, from another."""
    if os.path.isfile(place):
        return _content(place, os.stat(place).st_mtime_ns)
    if place not in listings:
        listings[place] = list(islice(_listed(place), _MOST_LISTED))
    return listings[place]


def _listed(folder: str) -> Iterator[tuple[str, int, int]]:
    """The files of a folder, their sizes and when they were last changed, but for results and bytecode."""
    for place, folders, files in os.walk(folder):
        if any(each <= {*files} for each in _RESULTS):
            folders.clear()
            continue
        folders[:] = sorted(each for each in folders if each not in ("__pycache__", INCOMPLETE))
        for name in sorted(files):
            with suppress(OSError):  # it is gone, or nobody may look
                its = os.stat(os.path.join(place, name))
                yield os.path.join(place, name), its.st_size, its.st_mtime_ns


@lru_cache(16)
def _content(file: str, changed: int) -> str:
    with open(file, "rb") as opened:
        return file_digest(opened, "sha256").hexdigest()
