"""`lockstep validate --suite`: measure points, predict them, and write what came of it."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.truth import campaign
from lockstep.truth.campaign import PROFILE, Campaign
from lockstep.truth.comparing import compare
from lockstep.truth.grid import grid
from lockstep.truth.learning import learning
from lockstep.truth.measuring import Tell, measure
from lockstep.truth.order import DEFAULT, suite
from lockstep.truth.point import Point
from lockstep.truth.predicting import predict_all, read_profile
from lockstep.truth.summary import summarise
from lockstep.truth.tables import markdown
from lockstep.validation import parameters
from scenarios import ScenarioError

Progress = Callable[[float], None]


def chosen(name: str) -> Point:
    """The point of that name. Raises ScenarioError."""
    from scenarios.section import nearest

    every = {point.name: point for point in [*grid(), *learning()]}
    if name not in every:
        near = nearest(name, every).partition(" (valid")[0]
        raise ScenarioError(f"no point has the name {name!r}{near}", key="--point")
    return every[name]


def measured(
    out: Path, testbed: bool, limit: int | None = None, profile: Path | None = None, tell: Tell | None = None
) -> None:
    """Measure the suite's first points into a folder, going on where an earlier call stopped."""
    read_profile(profile)
    points = list(islice(suite(), limit or DEFAULT))
    Campaign.begin(out, testbed, max(parameters(point.scenario) for point in points))
    if profile is not None:
        shutil.copyfile(profile, out / PROFILE)
    campaign.save(measure(points, out, testbed, tell), out / "measured.parquet")


def recomputed(
    source: Path,
    out: Path,
    profile: Path | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Predict all points measured in the folder `source`, and write every figure to `out`; the summary."""
    if profile is None and (source / PROFILE).exists():
        profile = source / PROFILE
    settings, where = read_profile(profile), Campaign.read(source)
    rows = campaign.load(source)[:limit]
    predicted = predict_all(campaign.points(rows), settings, where, progress)
    out.mkdir(parents=True, exist_ok=True)
    campaign.save(predicted, out / "predicted.parquet")
    return written(rows, predicted, out)


def written(
    measured: Sequence[Mapping[str, Any]], predicted: Sequence[Mapping[str, Any]], out: Path
) -> dict[str, Any]:
    """Write results.parquet, summary.json, accuracy.md and the pictures; the summary."""
    from analysis.accuracy import pictures

    table: pd.DataFrame = compare(measured, predicted)
    summary = summarise(table)
    table.to_parquet(out / "results.parquet", index=False)
    campaign.write(out / "summary.json", json.dumps(summary, allow_nan=False, indent=1) + "\n")
    campaign.write(out / "accuracy.md", markdown(summary))
    pictures(table, out)
    return summary
