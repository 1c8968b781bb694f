"""A folder of measurements: one small file a point as they come, and one table of all.

campaign.json   the network that was measured over, the machine, the day
points/         NAME.json, the finished runs of a point each, written at once
measured.parquet, predicted.parquet, profile*.yaml   what every number can be computed from again
"""

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any, Self

import pyarrow
from pyarrow import parquet

from lockstep.analysis.saved import UNREADABLE, said
from lockstep.analysis.whole import put, put_text
from lockstep.loopback import Loopback, measure_loopback
from lockstep.machine import processor, system
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.studies.accuracy_suite.chance import pooled
from lockstep.studies.accuracy_suite.digest import Digest
from lockstep.studies.accuracy_suite.grid import Cables
from lockstep.studies.accuracy_suite.point import FACTORS, Point

_NUMBER = float | int | None
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("name", "part", "strategy", "regime", "stragglers", "scenario"), str),
    **dict.fromkeys(("error", "bottleneck"), str | None),
    **{"workers": int, "shards": float | int | None},
    **dict.fromkeys(("throughput", "duration_s", "samples", "updates", "dropped"), _NUMBER),
    **dict.fromkeys(("step_time_s", "staleness_mean", "compute", "network", "wait"), _NUMBER),
    **dict.fromkeys(("staleness", "staleness_count", "curve_s", "curve_loss", "curve_accuracy"), list | None),
    "warnings": list | None,
}
"""Of the columns of a table that was measured: those that it must have."""
_WANTED = "give a folder that 'lockstep validate --suite' has written"


@dataclass(frozen=True)
class Campaign:
    """What was measured where. `loopback`: what it was like, if the network was not the testbed's.

    `drawn`: the campaign's own cables; None in campaigns that were begun before there were any. `calibrated`:
    it has a profile from before each round of runs and one from after the last.
    """

    testbed: bool
    loopback: Loopback | None
    machine: Mapping[str, str]
    drawn: Cables | None = None
    calibrated: bool = False

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The campaign in a folder. Raises ScenarioError if there is none."""
        file = folder / "campaign.json"
        try:
            said = json.loads(file.read_text("utf-8"))
            loopback = said["loopback"] and Loopback(**said["loopback"])
            drawn = Cables(**said["drawn"]) if said.get("drawn") else None
            return cls(bool(said["testbed"]), loopback, said["machine"], drawn, bool(said.get("calibrated")))
        except OSError as error:
            problem = f"{str(file)!r}: {error.strerror}; {_WANTED}"
        except (ValueError, KeyError, TypeError) as error:
            problem = f"{str(file)!r} is damaged ({error}); {_WANTED}"
        raise ScenarioError(problem, key="--measured")

    @classmethod
    def begin(
        cls,
        folder: Path,
        testbed: bool,
        parameters: int,
        drawn: Cables | None = None,
        calibrated: bool = False,
    ) -> Self:
        """Go on with the campaign in a folder, or begin one there: then the loopback is measured.

        Raises ScenarioError if that one was measured over another network.
        """
        if (folder / "campaign.json").exists():
            found = cls.read(folder)
            if found.testbed != testbed:
                over = "the testbed" if found.testbed else "the loopback"
                raise ScenarioError(f"{str(folder)!r} has runs over {over}; give another folder", key="--out")
            return found
        # without cores: to know what gradients take of them a prediction would have to measure
        loopback = None if testbed else replace(measure_loopback(parameters), cores=None)
        new = cls(testbed, loopback, machine(), drawn, calibrated)
        text = json.dumps(asdict(new), indent=1)
        folder.mkdir(parents=True, exist_ok=True)
        put_text(folder / "campaign.json", text + "\n")
        return new


def machine() -> dict[str, str]:
    """What this machine is, in words, and the day."""
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "system": system(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "date": datetime.now(UTC).date().isoformat(),
    }


def row(point: Point, runs: Sequence[Digest], error: str | None = None) -> dict[str, Any]:
    """What is said of a point that was measured in these runs, or failed: the mean of those not disturbed.

    If all stayed disturbed it is the mean of all, and the point is.
    """
    about = {"name": point.name, "part": point.part, **point.factors, "scenario": point.text, "error": error}
    if error:
        return about
    counted = sound(runs)
    each = {"runs": len(counted), "disturbed": all(run["disturbed"] for run in counted)}
    each["attempts"] = sum(run["attempts"] for run in runs)
    return {**about, **pooled(counted), **each}


def sound(runs: Sequence[Digest]) -> Sequence[Digest]:
    """Those that were not disturbed; all, if each was."""
    return [run for run in runs if not run["disturbed"]] or runs


def keep(folder: Path, point: Point, runs: Sequence[Digest]) -> None:
    """Write the runs of a point."""
    (folder / "points").mkdir(parents=True, exist_ok=True)
    known = {"key": point.key, "scenario": point.text, "least": point.runs, "runs": runs}
    text = json.dumps(known, allow_nan=True)
    put_text(folder / "points" / f"{point.name}.json", text + "\n")


def kept(folder: Path, point: Point) -> list[Digest]:
    """The runs of a point, if this very scenario has been measured."""
    try:
        found = json.loads((folder / "points" / f"{point.name}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return found["runs"] if found.get("key") == point.key and "runs" in found else []


def as_measured(folder: Path, point: Point) -> Point | None:
    """The point, as long as the run that was measured of it, whatever is said today; None if none was."""
    try:
        known = json.loads((folder / "points" / f"{point.name}.json").read_text("utf-8"))
        text, least = known["scenario"], known.get("least", 1)
        stop = json.loads(text)["stop"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    found = replace(point, document={**point.document, "stop": stop}, runs=least)
    return found if found.text == text else None


def save(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Write a table as a whole or not at all; what a row does not have is null."""
    columns = dict.fromkeys(key for row in rows for key in row)
    table = pyarrow.Table.from_pylist([{key: row.get(key) for key in columns} for row in rows])
    put(file, lambda part: parquet.write_table(table, part, compression="zstd"))


def load(folder: Path, file: str = "measured.parquet") -> list[dict[str, Any]]:
    """The rows of a table, with plain Python values."""
    try:
        found = parquet.read_table(folder / file).to_pylist()
    except UNREADABLE as error:
        raise ScenarioError(f"cannot read {str(folder / file)!r}: {said(error)}", key="--measured") from None
    measured = file == "measured.parquet"
    if not found or (measured and not _TYPES.keys() <= found[0].keys()):
        problem = f"{str(folder / file)!r} has no points of the suite; {_WANTED}"
        raise ScenarioError(problem, key="--measured")
    try:
        for row in found if measured else ():
            _check(row)
    except (ValueError, RecursionError) as error:
        problem = f"{str(folder / file)!r} cannot be used: {said(error)}; {_WANTED}"
        raise ScenarioError(problem, key="--measured") from None
    return list(found)


def _check(row: Mapping[str, Any]) -> None:
    """Raise ValueError for what is no row of a point."""
    for key, value in row.items():
        if not isinstance(value, _TYPES.get(key, object)):
            raise ValueError(f"the {key} of a point is {str(value)[:30]!r}")
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, float) and not isfinite(number):
                raise ValueError(f"the {key} of a point is {number}")
    document = json.loads(row["scenario"])
    if not isinstance(document, dict):
        raise ValueError("the scenario of a point is none")
    Scenario.model_validate(document)


def points(rows: Iterable[Mapping[str, Any]]) -> list[Point]:
    """The points that rows are of."""
    return [
        Point(
            each["name"], each["part"], {name: each[name] for name in FACTORS}, json.loads(each["scenario"])
        )
        for each in rows
    ]
