"""Profiles: what was measured on a machine. A scenario takes it over, beneath what it says itself."""

import re
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from lockstep.scenarios import library
from lockstep.scenarios.compute import Compute
from lockstep.scenarios.machine import Machine
from lockstep.scenarios.problem import Note, ScenarioError
from lockstep.scenarios.section import Section
from lockstep.scenarios.units import Bandwidth


class OtherCode(Note):
    """A profile has timed other code than the scenario's."""


class Timed(Section):
    """How long a gradient of a workload takes: of every workload that has these keys and values."""

    workload: dict[str, Any] = Field(description="keys of a workload, such as {dataset: digits, model: cnn}")
    content: str | None = Field(
        None, pattern="^[0-9a-f]+$", description="of a task of yours, the hash of its code at that time"
    )
    compute: Compute = Field(description="as cluster.compute of a scenario")


class Profile(Section):
    """What `lockstep calibrate` has found (docs/calibrate.md), or `lockstep fit` (docs/fit.md).

    `cluster` and, by workload, `compute` are as in a scenario, and beneath what it says. `fitted` are dotted
    keys of any section, which win over the file that names the profile: it says where the fit began.
    `measured` says when and where, `bandwidth` of a testbed's cables at which rate, `intervals` how sure the
    values are (95%, by key), `evidence` what they stand on.
    """

    profile: Literal[1] = Field(description="the version of the format: 'profile: 1'")
    measured: dict[str, Any] = Field({})
    bandwidth: Bandwidth | None = Field(None, description="of the testbed that the network was measured on")
    cluster: Machine = Machine()
    compute: tuple[Timed, ...] = Field((), strict=False)
    fitted: dict[str, Any] = Field({}, description="dotted keys of a scenario and their values")
    intervals: dict[str, Any] = Field({})
    evidence: dict[str, Any] = Field({})


def called(workload: Mapping[str, Any]) -> str:
    """Return a name for the workload of a profile's entry, which files can have, too."""
    values = dict(workload)
    options = [f"{key}-{value}" for key, value in values.pop("options", {}).items()]
    for key in ("loaders", "compile"):  # 0 and false, as nearly always
        if not values.get(key):
            values.pop(key, None)
    words = (*values.values(), *options)
    return "-".join(re.sub(r"[^\w.]+", "-", str(word)).strip("-") for word in words)


UNLESS_SAID: Mapping[str, Any] = {"precision": "float32", "loaders": 0, "compile": False}
"""How the gradients of an entry were computed."""


def timed_with(workload: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a gradient's time may depend on: a loader takes as long, however many others there are."""
    found = {**UNLESS_SAID, **workload}
    return {**found, "loaders": min(1, found["loaders"])}


def is_of(timed: Mapping[str, Any], workload: Mapping[str, Any]) -> bool:
    """Whether the times of an entry are those of a workload, which is complete."""
    return {**UNLESS_SAID, **timed}.items() <= timed_with(workload).items()


def entry_of(profile: Profile, workload: Mapping[str, Any]) -> Timed | None:
    """Return the first entry that has a workload's times, with a note if they are of other code than its."""
    timed = next((each for each in profile.compute if is_of(each.workload, workload)), None)
    now = workload.get("content")
    if timed is not None and None not in (timed.content, now) and timed.content != now:
        _note(
            f"the code of {workload['task']} has changed since the profile was measured (its content was "
            f"{timed.content}, and is {now}): calibrate again if a gradient may take another time now"
        )
    return timed


@cache  # once, though a sweep reads the profile for each of its points
def _note(what: str) -> None:
    warnings.warn(what, OtherCode, stacklevel=3)


def read(path: Path) -> Profile:
    """Return the profile in a file. Raises ScenarioError, with the file and line that is to blame."""

    def valid(document: Any, context: dict[str, Any]) -> Profile:
        return Profile.model_validate(document, context=context | {"profile": True})

    return library.read(path, valid, "a profile that 'lockstep calibrate' or 'lockstep fit' has written")


def named(document: Any, folder: Path) -> Path | None:
    """Return the file of the profile that a document names; None if none, or none that is there."""
    cluster = document.get("cluster") if isinstance(document, dict) else None
    name = cluster.get("profile") if isinstance(cluster, dict) else None
    try:
        return library.find(name, "profiles", folder) if name is not None else None
    except ScenarioError:  # the check of the whole will tell
        return None


def fitted(path: Path) -> dict[str, Any]:
    """Return what a file has under `fitted`; nothing if it is no profile, which others will tell."""
    try:
        return read(path).fitted
    except ScenarioError:
        return {}


def beneath(profile: Profile, cluster: Mapping[str, Any], workload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's `cluster` with what it does not say as in the profile; `workload` is complete.

    Mappings are merged key by key; of everything else, and of `compute` where it has a time or peak, the
    scenario's counts alone. Raises ScenarioError if neither has a compute time.
    """
    both = library.merged(profile.cluster.model_dump(exclude_unset=True, by_alias=True), cluster)
    both.pop("profile", None)
    compute = cluster.get("compute", {})
    if not isinstance(compute, dict) or {"time", "peak"} & compute.keys():
        return both
    timed = entry_of(profile, workload)
    if timed is not None:
        both["compute"] = timed.compute.model_dump(exclude_unset=True, by_alias=True) | compute
    elif not compute:
        known = "; ".join(_flow(timed.workload) for timed in profile.compute) or "none"
        raise ScenarioError(
            "missing; the profile has no time for this workload (it has: "
            f"{known}); let lockstep calibrate measure it, or give {{time: {{distribution: …}}}}, "
            "{peak: …} or the word 'measured'"
        )
    return both


def _flow(workload: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in workload.items()) + "}"
