"""What was fitted as a profile, and its picture beside it."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lockstep.fitting import Fit
from lockstep.scenarios import profile
from lockstep.scenarios.document import parse, written
from lockstep.scenarios.units import quantity

_DIGITS = 6


def document(fit: Fit, table: str) -> dict[str, Any]:
    """The profile as plain values: what the scenario's own profile has, and over it what was fitted."""
    before: dict[str, Any] = {"profile": 1}
    if fit.profile is not None:
        before = parse(fit.profile.read_text("utf-8-sig"), {})
    found: dict[str, Any] = {}
    ends: dict[str, Any] = {}
    for key in fit.keys:
        its = fit.free[key.key]
        found[key.key] = key.written(its.value, _DIGITS)
        ends[key.key] = [None if end is None else key.written(end, _DIGITS) for end in (its.low, its.high)]
    evidence = {"fit": {"table": table, "rows": [*map(_short, fit.document["rows"])]}}
    new = {"fitted": found, "intervals": ends, "evidence": evidence}
    return before | {key: {**before.get(key, {}), **values} for key, values in new.items()}


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: quantity(value, "", _DIGITS) if isinstance(value, float) else value for key, value in row.items()
    }


def save(fit: Fit, table: str, out: Path) -> list[Path]:
    """Write the profile, and beside it the picture (.png, .svg); all files, the profile first."""
    from lockstep.analysis.plots.fitted import picture

    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        (Path(folder) / out.name).write_text(text(document(fit, table)), encoding="utf-8")
        picture(fit.rows, str(fit.measure), Path(folder) / out.stem)
        files = [out.parent / file.name for file in sorted(Path(folder).iterdir())]
        for file in files:
            os.replace(Path(folder) / file.name, file)
    return sorted(files, key=lambda file: file != out)


def text(document: Mapping[str, Any]) -> str:
    """A profile as YAML."""
    return f"# By `lockstep fit`; what it means is in docs/fit.md.\n{written(dict(document))}"


def check(out: Path) -> None:
    """Refuse an `out` that is no profile, before anything is simulated."""
    from lockstep.scenarios import ScenarioError

    if out.is_dir():
        raise ScenarioError("is a folder; give the profile's file, such as profile.yaml", key="--out")
    if out.exists():
        profile.read(out)
