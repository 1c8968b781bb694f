"""Quantities with units: written `10 Gbit/s` in a scenario, a float in the base unit in Python.

A table of all units there are, not a units library: that takes 0.2 s to import, and its names are too many
(`5 Hz` would pass as a bandwidth). Data has no milli and time no mega, so that neither `mB` (a thousandth of
a byte) nor `Ms` slips in.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Annotated, Any, NoReturn

from pydantic import GetCoreSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

Units = dict[str, Decimal]  # what each is in base units; Decimal: `100 us` is 1e-4 to the last bit

_SMALL = {"": Decimal(1)} | {
    prefix: Decimal(power)
    for power, names in (("1e-3", "m milli"), ("1e-6", "u µ μ micro"), ("1e-9", "n nano"))
    for prefix in names.split()
}
_LARGE = {"": Decimal(1)} | {
    prefix: Decimal(base) ** power
    for base, names in (
        (1000, ("k kilo", "M mega", "G giga", "T tera", "P peta")),
        (1024, ("Ki kibi", "Mi mebi", "Gi gibi", "Ti tebi")),
    )
    for power, both in enumerate(names, 1)
    for prefix in both.split()
}


def _prefixed(prefixes: Mapping[str, Decimal], units: Mapping[str, str]) -> Units:
    """Each unit with each prefix; `units` are in base units."""
    pairs = product(prefixes.items(), units.items())
    return {prefix + unit: factor * Decimal(value) for (prefix, factor), (unit, value) in pairs}


def _a_second(units: Units) -> Units:
    return {f"{unit}/{second}": factor for unit, factor in units.items() for second in ("s", "second")}


_TIME = _prefixed(_SMALL, dict.fromkeys(["s", "second", "seconds"], "1"))
_TIME |= _prefixed({"": Decimal(1)}, dict.fromkeys(["min", "minute", "minutes"], "60"))
_TIME |= _prefixed({"": Decimal(1)}, dict.fromkeys(["h", "hour", "hours"], "3600"))
_DATA = _prefixed(
    _LARGE, dict.fromkeys(["B", "byte", "bytes"], "1") | dict.fromkeys(["bit", "bits"], "0.125")
)
_UNITS: dict[str, Units] = {
    "s": _TIME,
    "B": _DATA,
    "B/s": _a_second(_DATA) | _prefixed(_LARGE, {"bps": "0.125"}),
    "FLOP/s": _a_second(_prefixed(_LARGE, {"FLOP": "1"})) | _prefixed(_LARGE, {"FLOPS": "1"}),
}  # by base unit
_WRITTEN = re.compile(
    r"\s*([-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([a-zµμ]+(?:/[a-z]+)?)\s*", re.A | re.I
)


def fail(problem: str, *path: str | int) -> NoReturn:
    """Raise what pydantic reports as `problem` at `path` below the value being validated."""
    raise PydanticCustomError("scenario", "{problem}", {"problem": problem, "path": path})


def shown(value: object) -> str:
    """Return `value` as a message shows it: as YAML would name it, and short."""
    text = "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
    text = {"None": "null", "True": "true", "False": "false"}.get(text, text)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True)
class Quantity:
    """What makes a float field a quantity in base unit `unit`; `above_zero` forbids 0 too."""

    noun: str
    unit: str
    example: str
    above_zero: bool = True

    def __str__(self) -> str:
        return f"{self.noun} with its unit, such as '{self.example}'"

    def parse(self, value: object) -> float:
        """Return `value`, a string such as `10 Gbit/s`, in base units; all else is a validation error."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            fail(f"{shown(value)} has no unit; write {self}")
        written = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
        try:
            number, unit = written.groups() if written else ("", "")
            result = float(Decimal(number) * _UNITS[self.unit][unit])
        except (KeyError, ArithmeticError, ValueError):
            fail(f"{shown(value)} is not {self.noun}; write {self}")
        if not math.isfinite(result) or result < 0 or (self.above_zero and result == 0):
            bound = "above 0" if self.above_zero else "0 or more"
            fail(f"{shown(value)} is out of range; must be {bound}, such as '{self.example}'")
        return result

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> Any:
        schema = {"type": "string", "description": f"{self.noun} with its unit", "examples": [self.example]}
        return core_schema.no_info_plain_validator_function(
            self.parse,
            # what `parse` reads back as exactly the same float
            serialization=core_schema.plain_serializer_function_ser_schema(lambda x: f"{x!r} {self.unit}"),
            metadata={"pydantic_js_functions": [lambda _schema, _handler: schema]},
        )


Duration = Annotated[float, Quantity("a duration", "s", "50 us", above_zero=False)]
PositiveDuration = Annotated[float, Quantity("a duration", "s", "30 ms")]
Bandwidth = Annotated[float, Quantity("a bandwidth", "B/s", "10 Gbit/s")]
Size = Annotated[float, Quantity("a size", "B", "25 MB", above_zero=False)]
FlopRate = Annotated[float, Quantity("a rate of work", "FLOP/s", "312 TFLOP/s")]
