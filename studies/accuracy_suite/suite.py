"""`lockstep validate --suite`: measure points, predict them, and write what came of it."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lockstep.analysis.whole import put_text
from lockstep.attempts import ATTEMPTS
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.profile import Profile
from lockstep.studies.accuracy_suite import campaign, profiles
from lockstep.studies.accuracy_suite.campaign import Campaign
from lockstep.studies.accuracy_suite.comparing import KNEE, compare
from lockstep.studies.accuracy_suite.grid import Cables, crowded, grid, on_drawn_cables
from lockstep.studies.accuracy_suite.learning import learning
from lockstep.studies.accuracy_suite.lengths import settle, settled
from lockstep.studies.accuracy_suite.measuring import Tell, measure
from lockstep.studies.accuracy_suite.order import DEFAULT, suite
from lockstep.studies.accuracy_suite.point import Point
from lockstep.studies.accuracy_suite.predicting import predict_all
from lockstep.studies.accuracy_suite.shared_layers import shared_layers
from lockstep.studies.accuracy_suite.splits import pipelines
from lockstep.studies.accuracy_suite.summary import summarise
from lockstep.studies.accuracy_suite.tables import markdown
from lockstep.validation import parameters

Progress = Callable[[float], None]


class Set(NamedTuple):
    """Points that are measured together. `words`: what they are; `calibrated`: so is their network."""

    words: str
    points: Callable[[Cables | None], Iterable[Point]]
    calibrated: bool = False


SETS = {
    "": Set("models in one piece", lambda drawn: suite(drawn)),  # by name, so that tests can take fewer
    "--pipelines": Set("split models", lambda _: pipelines()),
    "--tensor": Set("shared layers", lambda _: shared_layers()),
    "--crowded": Set("crowded cores", lambda _: crowded(), calibrated=True),
}
"""By the option that asks for them."""


def chosen(name: str) -> Point:
    """The point of that name, whose run lasts as long as it must. Raises ScenarioError."""
    return settled(named(name))


def named(name: str) -> Point:
    """The point of that name, as it is in its grid. Raises ScenarioError."""
    from lockstep.scenarios.section import did_you_mean

    every = {point.name: point for point in [*grid(), *learning(), *pipelines(), *shared_layers()]}
    found = every.get(name) or on_drawn_cables(name)
    if found is None:
        raise ScenarioError(
            f"no point has the name {name!r}{did_you_mean(name, sorted(every))}", key="--point"
        )
    return found


def measure_first(
    out: Path,
    testbed: bool,
    limit: int | None = None,
    files: Sequence[Path] = (),
    tell: Tell | None = None,
    which: str = "",
    attempts: int = ATTEMPTS,
    calibrate: Callable[[Scenario], str] | None = None,
) -> None:
    """Measure the first points of one of the `SETS` into a folder.

    It goes on where an earlier call stopped. Raises ScenarioError if that measured the others.
    `calibrate`: gives a profile of a scenario's testbed. Without profiles in `files` a set that is
    `calibrated` has one from before each round of runs and one from after the last, as a machine's speed
    changes meanwhile.
    """
    earlier = campaign.load(out) if (out / "measured.parquet").exists() else []
    if earlier:
        name = earlier[0]["name"]
        theirs = next(
            each for each, its in SETS.items() if any(point.name == name for point in its.points(None))
        )
        if theirs != which:
            said = f"{str(out)!r} has runs of {SETS[theirs].words}; give another folder"
            raise ScenarioError(said, key="--out")
    begun = Campaign.read(out) if (out / "campaign.json").exists() else None
    drawn = begun.drawn if begun else Cables.drawn(np.random.default_rng())
    points = list(islice(SETS[which].points(drawn), limit or max(DEFAULT, len(earlier))))
    profiles.with_profile(points[0], profiles.read_profiles(files))
    largest = max(parameters(point.scenario) for point in points)
    calibrated = calibrate is not None and testbed and SETS[which].calibrated and not files
    begun = Campaign.begin(out, testbed, largest, drawn, calibrated)
    if begun.calibrated and files:
        raise ScenarioError(f"{str(out)!r} has profiles of its own; leave --profile out", key="--profile")
    there = [campaign.as_measured(out, point) for point in points]
    rest = iter(settle([point for point, found in zip(points, there, strict=True) if found is None]))
    points = [found or next(rest) for found in there]
    if files:
        profiles.keep(out, files)
    between = None
    if calibrate is not None and begun.calibrated:
        between = partial(_calibrate, calibrate, points[0].scenario, out, tell)
    campaign.save(measure(points, out, testbed, tell, attempts, between), out / "measured.parquet")


def _calibrate(
    calibrate: Callable[[Scenario], str], scenario: Scenario, out: Path, tell: Tell | None, number: int
) -> None:
    """Keep the profile of before that round, if it is not there."""
    if number > len(profiles.kept(out)):
        if tell is not None:
            tell(f"calibration {number}")
        profiles.add(out, calibrate(scenario))


@dataclass(frozen=True)
class Source:
    """What was measured, and what it is predicted with."""

    campaign: Campaign
    rows: Sequence[Mapping[str, Any]]
    profiles: Sequence[Profile]

    @property
    def borrowed(self) -> dict[float, int]:
        """How many points of each bandwidth, in bytes/s, have the profile of another."""
        return profiles.borrowed(campaign.points(self.rows), self.profiles)


def read(folder: Path, files: Sequence[Path] = (), limit: int | None = None) -> Source:
    """The first points measured in a folder, with the profiles in files, or else with the folder's own."""
    found = profiles.read_profiles(files or profiles.kept(folder))
    source = Source(Campaign.read(folder), campaign.load(folder)[:limit], found)
    profiles.with_profile(campaign.points(source.rows[:1])[0], found)
    return source


def recompute(source: Source, out: Path, progress: Progress | None = None) -> dict[str, Any]:
    """Predict all points and write every table and picture to `out`; the summary."""
    points = campaign.points(source.rows)
    predicted = predict_all(points, source.profiles, source.campaign, progress)
    out.mkdir(parents=True, exist_ok=True)
    campaign.save(predicted, out / "predicted.parquet")
    return write(source.rows, predicted, out)


def write(
    measured: Sequence[Mapping[str, Any]], predicted: Sequence[Mapping[str, Any]], out: Path
) -> dict[str, Any]:
    """Write results.parquet, summary.json, accuracy.md and the pictures; the summary."""
    from lockstep.analysis.accuracy import pictures

    table: pd.DataFrame = compare(measured, predicted)
    summary = summarise(table)
    table.to_parquet(out / "results.parquet", index=False)
    put_text(out / "summary.json", json.dumps(summary, allow_nan=False, indent=1) + "\n")
    put_text(out / "accuracy.md", markdown(summary))
    pictures(table, out, KNEE)
    return summary
