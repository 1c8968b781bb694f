"""The command that makes a row of a table again."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from lockstep.analysis.table import keys
from lockstep.scenarios import TAKEN_OVER, Scenario
from lockstep.scenarios.units import Quantity

_LARGE = {"B/s": ("bit/s", 8), "B": ("B", 1), "FLOP/s": ("FLOP/s", 1)}
_WORD = re.compile(r"(?!(null|true|false|yes|no|on|off)$)[A-Za-z][\w.-]*", re.ASCII)


def command(engine: str, file: str, scenario: Scenario, row: Mapping[str, Any]) -> str:
    """The command for the run of `row`, whose scenario is that in `file` but for some keys.

    `row` has a value for each key of its scenario, as `analysis.table.keys` names them.
    """
    verb = "simulate" if engine == "simulator" else "run"
    sets = [f"--set {shlex.quote(setting)}" for setting in settings(scenario, row)]
    return " ".join(["lockstep", verb, shlex.quote(file), *sets])


def settings(scenario: Scenario, row: Mapping[str, Any]) -> list[str]:
    """What --set has to say ("cluster.workers=8") so that `scenario` becomes that of the row."""
    have = {key: value for key, value in keys(scenario).items() if is_key(key)}
    want = {key: value for key, value in row.items() if is_key(key) and value is not None and value == value}
    found = {key: want[key] for key in want if key not in have or have[key] != want[key]}
    for gone in have.keys() - want.keys():
        found |= _without(gone, want)
    sections = [key for key in found if isinstance(found[key], dict)]
    found = {key: value for key, value in found.items() if not any(key.startswith(f"{s}.") for s in sections)}
    order = {key: place for place, key in enumerate((*have, *want))}
    ordered = sorted(found, key=lambda key: (key not in sections, order.get(key, 0), key))
    return [f"{key}={_yaml(written(found[key], key))}" for key in ordered]


def _without(key: str, want: Mapping[str, Any]) -> dict[str, Any]:
    """What to set so that a key is not there any more: itself, or a section that it is in."""
    while key:
        rest = [other for other in want if other == key or other.startswith(f"{key}.")]
        if key in rest:
            return {key: want[key]}
        if rest:
            return {key: _nested(want, f"{key}.")}
        if type(None) in kinds(key):
            return {key: None}
        key = key.rpartition(".")[0]
    return {}


def is_key(column: str) -> bool:
    """Whether a column of a table of runs is a key of the scenario, not only of its file."""
    if column in TAKEN_OVER:
        return False
    sections = ("cluster.", "workload.", "parallelism.", "strategy.", "stop.")
    return column == "seed" or column.startswith(sections)


def kinds(key: str) -> list[Any]:
    """The types that the value of a dotted key may have, and what else its annotation says; [] if unknown."""
    found: list[Any] = [Scenario]
    for word in key.split("."):
        models = [kind for kind in found if isinstance(kind, type) and issubclass(kind, BaseModel)]
        items = [get_args(kind)[1] for kind in found if get_origin(kind) is dict]
        found = [part for kind in items for part in _parts(kind)] + [
            part
            for model in models
            for name, field in model.model_fields.items()
            if (field.alias or name) == word
            for part in (*_parts(field.annotation), *field.metadata)
        ]
    return found


def _parts(annotation: Any) -> Iterator[Any]:
    """A type, and all that it is composed of."""
    yield annotation
    for part in (*get_args(annotation), *getattr(annotation, "__metadata__", ())):
        yield from _parts(part)


def unit(key: str) -> Quantity | None:
    """What makes the value of a key a quantity; None if it has no unit."""
    return next((kind for kind in kinds(key) if isinstance(kind, Quantity)), None)


def written(value: Any, key: str, exact: bool = True) -> Any:
    """A value of a row as a scenario file has it: quantities with their units, lists and mappings as such.

    Not `exact`: quantities are rounded to four digits, for people.
    """
    if isinstance(value, str) and value[:1] in ("[", "{"):
        value = json.loads(value)
    if isinstance(value, dict):
        return {word: written(item, f"{key}.{word}", exact) for word, item in value.items()}
    if isinstance(value, list):
        return [written(item, key, exact) for item in value]
    if hasattr(value, "item"):  # numpy's
        value = value.item()
    quantity = unit(key)
    if quantity is not None and isinstance(value, int | float):
        return in_units(float(value), quantity, exact)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def in_units(value: float, quantity: Quantity, exact: bool = True) -> str:
    """A quantity with a unit that suits it, such as "100 Mbit/s"; `exact`: read back it is the same."""
    if quantity.unit == "s":
        scaled = [(1, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")]
    else:
        name, times = _LARGE[quantity.unit]
        scaled = [(times / 10**power, f"{prefix}{name}") for power, prefix in _PREFIXES]
    near = [(factor, name) for factor, name in scaled if abs(value * factor) >= 1] or scaled[-1:]
    factor, name = near[0] if value else scaled[0 if quantity.unit == "s" else -1]
    text = f"{value * factor:.{6 if exact else 4}g} {name}"
    if not exact:
        return text
    if "e" not in text and (value == 0 or quantity.parse(text) == value):
        return text
    return f"{value!r} {quantity.unit}"


_PREFIXES = ((12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""))


def _nested(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The keys below a prefix as nested mappings."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        if key.startswith(prefix):
            place = found
            *path, last = key.removeprefix(prefix).split(".")
            for word in path:
                place = place.setdefault(word, {})
            place[last] = value
    return found


def _yaml(value: Any) -> str:
    """A value in YAML's flow style, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, str) and (_WORD.fullmatch(value) or re.fullmatch(r"[\d.e+-]+ [A-Za-z/]+", value)):
        return value
    return json.dumps(value)
