"""Quantities with units: written `10 Gbit/s` in a scenario, a float in the base unit in Python.

The registries are our own, because pint's default one has a dimensionless bit: `5 Hz` would pass as a
bandwidth. Data and time have one each, so that neither `mB` (a thousandth of a byte) nor `Ms` slips in.
"""

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NoReturn

import pint
from pydantic import GetCoreSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

_TIME = """milli- = 1e-3 = m-; micro- = 1e-6 = u- = µ- = μ-; nano- = 1e-9 = n-
    second = [time] = s; minute = 60 s = min; hour = 3600 s = h"""
_DATA = """kilo- = 1e3 = k-; mega- = 1e6 = M-; giga- = 1e9 = G-; tera- = 1e12 = T-; peta- = 1e15 = P-
    kibi- = 1024 = Ki-; mebi- = 1048576 = Mi-; gibi- = 1073741824 = Gi-; tebi- = 1099511627776 = Ti-
    second = [time] = s; byte = [data] = B; bit = 0.125 byte = _; bps = bit / second = _
    FLOP = [work] = _; FLOPS = FLOP / second = _"""
_time, _data = (  # Decimal: `100 us` is 1e-4 to the last bit
    pint.UnitRegistry[Decimal](re.split(r"[;\n]\s*", text), non_int_type=Decimal) for text in (_TIME, _DATA)
)
# One unit or a quotient of two: pint never sees an expression to evaluate.
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
            registry = _time if self.unit == "s" else _data
            result = float(registry.Quantity(Decimal(number), unit).to(self.unit).magnitude)
        except (pint.PintError, ArithmeticError, ValueError):
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
