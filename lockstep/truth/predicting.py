"""Predicts points, on all cores: the scenario on the network that it was measured over, with a profile."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from pydantic import ValidationError

import lockstep
from lockstep.truth.campaign import Campaign
from lockstep.truth.digest import Digest, digest
from lockstep.truth.point import Point
from lockstep.validation import on_loopback, on_testbed
from scenarios import Scenario, ScenarioError
from scenarios.document import parse

Document = Mapping[str, Any]


def read_profile(file: Path | None) -> Document:
    """The `cluster` of a profile. Raises ScenarioError."""
    if file is None:
        return {}
    try:
        found = parse(file.read_text("utf-8"), {})
    except OSError as error:
        problem = f"cannot read {str(file)!r}: {error.strerror}; give a profile that 'calibrate' wrote"
        raise ScenarioError(problem, key="--profile") from None
    except (ScenarioError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{file}: {error}", key="--profile") from None
    cluster = found.get("cluster") if isinstance(found, dict) else None
    if not isinstance(cluster, dict):
        raise ScenarioError(f"{str(file)!r} has no 'cluster:' mapping", key="--profile")
    return cluster


def with_profile(document: Document, profile: Document) -> Scenario:
    """The scenario with a profile's settings beneath its own. Raises ScenarioError."""
    cluster = _beneath(profile, document["cluster"])
    try:
        return Scenario.model_validate({**document, "cluster": cluster})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ScenarioError(f"{document['name']} with it: {where}: {first['msg']}", key="--profile") from None


def _beneath(defaults: Any, own: Any) -> Any:
    if not (isinstance(defaults, dict) and isinstance(own, Mapping)):
        return own
    merged = {key: _beneath(defaults[key], own[key]) if key in defaults else own[key] for key in own}
    return {**defaults, **merged}


def predict(point: Point, profile: Document, campaign: Campaign) -> Digest:
    """The prediction of one point: a pure function."""
    scenario = with_profile(point.document, profile)
    if campaign.testbed:
        there = on_testbed(scenario)
    else:
        assert campaign.loopback is not None
        there = on_loopback(scenario, campaign.loopback)
    return digest(lockstep.simulate(there))


def predict_all(
    points: Sequence[Point],
    profile: Document,
    campaign: Campaign,
    progress: Callable[[float], None] | None = None,
) -> list[dict[str, Any]]:
    """A row for each point; one that cannot be predicted has its `error`. Raises ScenarioError."""
    jobs = min(os.cpu_count() or 1, max(1, len(points) // 4))  # fewer are there before processes are
    work = (delayed(_row)(point, profile, campaign) for point in points)
    found = []
    for row in Parallel(n_jobs=jobs, return_as="generator")(work):
        found.append(row)
        if progress is not None:
            progress(len(found) / len(points))
    return found


def _row(point: Point, profile: Document, campaign: Campaign) -> dict[str, Any]:
    try:
        return {"name": point.name, "error": None, **predict(point, profile, campaign)}
    except RuntimeError as failure:
        return {"name": point.name, "error": f"{type(failure).__name__}: {failure}".splitlines()[0]}
