"""The profiles that points are predicted with: each point takes those measured at its own bandwidth."""

import re
from collections import Counter
from collections.abc import Sequence
from math import isclose
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from lockstep.analysis.whole import put_text
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.profile import Profile, beneath, read
from lockstep.scenarios.section import Section
from lockstep.studies.accuracy_suite.point import Point

_NAME = re.compile(r"profile(-\d+)?\.yaml")  # others are somebody's own
_DIGITS = 1e-3  # to which a profile has its bandwidth


def read_profiles(files: Sequence[Path]) -> tuple[Profile, ...]:
    """The profiles in files; an empty one without any. Raises ScenarioError."""
    return tuple(map(read, files)) or (Profile(profile=1),)


def kept(folder: Path) -> list[Path]:
    """The profiles that `keep` has put into a folder of measurements, the first one first."""
    found = [file for file in folder.glob("profile*.yaml") if _NAME.fullmatch(file.name)]
    return sorted(found, key=lambda file: (len(file.name), file.name))


def keep(folder: Path, files: Sequence[Path]) -> None:
    """Put profiles into a folder of measurements, in place of those there."""
    texts = [file.read_text("utf-8") for file in files]
    for old in kept(folder):
        old.unlink()
    for text in texts:
        add(folder, text)


def add(folder: Path, text: str) -> None:
    """Put one more profile into a folder of measurements."""
    number = len(kept(folder)) + 1
    put_text(folder / ("profile.yaml" if number == 1 else f"profile-{number}.yaml"), text)


def with_profile(point: Point, profiles: Sequence[Profile]) -> Scenario:
    """The point's scenario with the settings of its bandwidth's profile beneath its own.

    Several of one bandwidth, such as those from before and after each round of runs, are one: the mean of
    their numbers. Where none says to be of that bandwidth, it is the first of all. Raises ScenarioError.
    """
    its = [each for each in profiles if _is_of(each, _bandwidth(point))] or profiles[:1]
    scenarios = [_with(point, profile) for profile in its]
    return scenarios[0].model_copy(update={"cluster": _mean([each.cluster for each in scenarios])})


def _with(point: Point, profile: Profile) -> Scenario:
    document = dict(point.document)
    document["cluster"] = beneath(profile, document["cluster"], document["workload"])
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ScenarioError(f"{point.name} with it: {where}: {first['msg']}", key="--profile") from None


def _mean(values: Sequence[Any]) -> Any:
    """Of quantities, section by section, of those that have them; all else as in the first that says it."""
    values = [value for value in values if value is not None] or [None]
    first = values[0]
    if isinstance(first, Section) and all(isinstance(value, type(first)) for value in values):
        keys = type(first).model_fields
        return first.model_copy(
            update={key: _mean([getattr(value, key) for value in values]) for key in keys}
        )
    return fmean(values) if all(isinstance(value, float) for value in values) else first


def borrowed(points: Sequence[Point], profiles: Sequence[Profile]) -> dict[float, int]:
    """How many points of each bandwidth, in bytes/s, have no profile of it where others have one."""
    rates = [rate for point in points if (rate := _bandwidth(point))]
    if not any(each.bandwidth for each in profiles):
        return {}
    return dict(Counter(rate for rate in rates if not any(_is_of(each, rate) for each in profiles)))


def _bandwidth(point: Point) -> float | None:
    return point.scenario.cluster.network.bandwidth


def _is_of(profile: Profile, rate: float | None) -> bool:
    return rate is not None and isclose(profile.bandwidth or 0, rate, rel_tol=_DIGITS)
