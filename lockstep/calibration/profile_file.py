"""A profile as a file: quantities with their units, and the evidence in few digits."""

import math
import os
from collections.abc import Mapping
from datetime import date
from typing import Any, get_args

import torch
from pydantic import BaseModel

from lockstep.calibration.estimates import Estimates
from lockstep.executor.devices import kind as gpu_kind
from lockstep.executor.devices import named, visible
from lockstep.machine import processor, system
from lockstep.scenarios.document import written
from lockstep.scenarios.machine import Machine
from lockstep.scenarios.units import Quantity, quantity


def unit_of(key: str) -> str:
    """The base unit of a dotted key of a scenario's cluster, such as `network.latency`; "" if it has none."""
    kind: Any = Machine
    unit = ""
    for word in key.split("."):
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):  # the values of a mapping
            kind = get_args(kind)[1]
            continue
        field = kind.model_fields[word]
        unit = next((found.unit for found in _within((field.annotation, *field.metadata), Quantity)), "")
        models = [found for found in _within((field.annotation,), type) if issubclass(found, BaseModel)]
        mapping = field.annotation if getattr(field.annotation, "__origin__", None) is dict else None
        kind = mapping or (models[0] if models else None)
    return unit


def _within(kinds: Any, wanted: type) -> list[Any]:
    """All objects of a type in annotations, their arguments and their metadata."""
    found: list[Any] = []
    for kind in kinds:
        if isinstance(kind, wanted):
            found.append(kind)
        inner = (*get_args(kind), *getattr(kind, "__metadata__", ()))
        found += _within(inner, wanted)
    return found


def document(
    estimates: Estimates, timed: list[dict[str, Any]], where: str | None, bandwidth: float | None
) -> dict[str, Any]:
    """A profile as plain values. `timed`: the entries of `compute`, with times in seconds."""
    cluster: dict[str, Any] = {}
    for key, value in estimates.settings.items():
        *above, last = key.split(".")
        place = cluster
        for word in above:
            place = place.setdefault(word, {})
        place[last] = quantity(value, unit_of(key))
    intervals = {
        key: [quantity(end, _unit_of_interval(key)) for end in ends]
        for key, ends in estimates.intervals.items()
    }
    return {
        "profile": 1,
        "measured": described() | ({"where": where} if where else {}),
        **({} if bandwidth is None else {"bandwidth": quantity(bandwidth, "B/s")}),
        "cluster": cluster,
        "compute": [_with_units(entry) for entry in timed],
        "intervals": intervals,
        "evidence": short(dict(estimates.evidence)),
    }


def _unit_of_interval(key: str) -> str:
    if key.startswith("compute."):
        return "" if key.rpartition(".")[2] in ("cv", "shape", "backward") else "s"
    return unit_of(key)


def _with_units(entry: Mapping[str, Any]) -> dict[str, Any]:
    drawn = {
        name: {
            key: value if isinstance(value, str) else quantity(value, "" if key in ("cv", "shape") else "s")
            for key, value in times.items()
        }
        for name, times in entry["compute"].items()
        if name in ("time", "loading")
    }
    return {**entry, "compute": {**entry["compute"], **drawn}}


def described() -> dict[str, str]:
    """When this is, and what machine, without its name."""
    gpus = [named(f"{gpu_kind()}:{number}") for number in range(len(visible()))]
    return {
        "date": date.today().isoformat(),
        "host": f"{os.cpu_count()} cores {processor()}, {system()}",
        "torch": str(torch.__version__),
        "device": ", ".join(dict.fromkeys(gpus)) or "cpu",
    }


def short(value: Any) -> Any:
    """Numbers, and those in lists and mappings, to four digits."""
    if hasattr(value, "item"):  # numpy's
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, float | list | tuple | Mapping):
        return value
    if isinstance(value, Mapping):
        return {str(key): short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [short(item) for item in value]
    return float(f"{value:.4g}") if math.isfinite(value) else str(value)


def text(profile: Mapping[str, Any]) -> str:
    """A profile as YAML."""
    measured = profile["measured"]
    said = f"# Measured on {measured['date']}: {measured['host']}, {measured['device']}."
    means = "# By `lockstep calibrate`; what each number means is in docs/calibrate.md."
    return f"{said}\n{means}\n{written(dict(profile))}"
