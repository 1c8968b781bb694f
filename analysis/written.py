"""Values of a table of runs as a scenario file has them: units, lists, mappings."""

import json
import re
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from lockstep.scenarios import Scenario
from lockstep.scenarios.units import Quantity

_LARGE = {"B/s": ("bit/s", 8), "B": ("B", 1), "FLOP/s": ("FLOP/s", 1)}
_PLAIN = ("USD", "USD/h")  # without prefixes


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
    """What makes the value of a key a quantity; None if it has no unit. "[0]" in a key counts for nothing."""
    return next((kind for kind in kinds(re.sub(r"\[\d+\]", "", key)) if isinstance(kind, Quantity)), None)


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


def said(value: Any, key: str) -> str:
    """A value of a row for people: quantities with their units, lists and mappings as YAML has them."""
    return yaml(written(value, key, exact=False))


def in_units(value: float, quantity: Quantity, exact: bool = True) -> str:
    """A quantity with a unit that suits it, such as "100 Mbit/s"; `exact`: read back it is the same."""
    if quantity.unit in _PLAIN:
        return f"{value!r} {quantity.unit}" if exact else f"{value:.4g} {quantity.unit}"
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


def yaml(value: Any) -> str:
    """A value as YAML would have it, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(yaml, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return str(value)
