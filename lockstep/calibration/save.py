"""A calibration's files: the profile, the samples of compute times, and a picture. All of them, or none."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lockstep.analysis.calibration import Sample, picture
from lockstep.calibration import Calibration
from lockstep.calibration.fit import FAMILIES
from lockstep.calibration.profile_file import text
from lockstep.scenarios import ScenarioError, library, profile
from lockstep.scenarios.document import parse

_SHOWN = 3  # distributions in a picture


def over(before: Path, found: Calibration) -> dict[str, Any]:
    """What was found, over the profile in a file if there is one. Raises ScenarioError if that is none."""
    if not before.exists():
        return found.profile
    profile.read(before)
    old: dict[str, Any] = parse(before.read_text("utf-8-sig"), {})
    anew = [f"compute.{name}." for name in found.profile["evidence"].get("compute", {})]
    if "network" in found.profile["evidence"]:  # another network's values must not stand beside the new ones
        old["cluster"] = {key: value for key, value in old.get("cluster", {}).items() if key != "network"}
        old.pop("bandwidth", None)
        anew.append("network.")
    if not {"apply", "network"} & {*found.profile["evidence"]}:  # these know more about updates
        for key in {"apply_overhead", "memory_bandwidth"} & {*old.get("cluster", {})}:
            found.profile["cluster"].pop(key, None)
            found.profile["intervals"].pop(key, None)
    evidence = found.profile["evidence"]
    before_now = old.get("evidence", {}).pop("disturbed", [])
    disturbed = [each for each in before_now if each.partition(" ")[0].strip(",") not in evidence]
    if disturbed := [*disturbed, *evidence.get("disturbed", [])]:
        evidence["disturbed"] = disturbed
    intervals = old.get("intervals", {}).items()  # another distribution has other parameters
    old["intervals"] = {key: ends for key, ends in intervals if not key.startswith(tuple(anew))}
    new = library.merged(old, found.profile)
    workloads = [entry["workload"] for entry in found.profile["compute"]]
    kept = [entry for entry in old.get("compute", []) if entry["workload"] not in workloads]
    return new | {"compute": [*found.profile["compute"], *kept]}


def save(found: Calibration, profile: Mapping[str, Any], out: Path) -> list[Path]:
    """Write a profile, beside it the samples and a picture (.png, .svg); all files, the profile first."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        (Path(folder) / out.name).write_text(text(profile), encoding="utf-8")
        for name, times in found.samples.items():
            lines = "".join(f"{seconds:.9f}\n" for seconds in times)
            (Path(folder) / _sample_file(out, name)).write_text(lines, encoding="utf-8")
        evidence = profile["evidence"]
        samples = [
            Sample(name, times, _densities(evidence["compute"][name]["fits"]))
            for name in evidence.get("compute", {})
            if (times := found.samples.get(name) or _read(out.parent / _sample_file(out, name)))
        ]
        picture(samples, evidence, Path(folder) / out.stem)
        written = [out.parent / file.name for file in sorted(Path(folder).iterdir())]
        for file in written:
            os.replace(Path(folder) / file.name, file)
    return sorted(written, key=lambda file: file != out)


def _sample_file(out: Path, name: str) -> str:
    return f"{out.stem}-{name}.csv"


def _read(file: Path) -> list[float]:
    try:
        return [float(line) for line in file.read_text("utf-8").split()]
    except (OSError, ValueError):
        return []


def _densities(fits: list[dict[str, Any]]) -> dict[str, Any]:
    """scipy's distributions of the best fits, by what they are called."""
    found = {}
    for fit in fits[:_SHOWN]:
        name = fit["distribution"]
        if name in FAMILIES:
            family = FAMILIES[name]
            found[name] = family.frozen(*(float(fit[key]) for key in family.keys))
    return found


def check(out: Path) -> None:
    """Refuse an `out` that is no profile, before anything is measured."""
    if out.is_dir():
        raise ScenarioError("is a folder; give the profile's file, such as profile.yaml", key="--out")
    if out.exists():
        profile.read(out)
