"""Quantities with units: written `10 Gbit/s` in a scenario, a float in the base unit in Python.

The registries are our own, because pint's default one has a dimensionless bit: `5 Hz` would pass as a
bandwidth. Data, time and money have one each: neither `mB` (a thousandth of a byte) nor `Ms` slips in.
The usual units are in a table too, because to load pint takes longer than many a simulation.
"""

import math
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, cached_property
from typing import Annotated, Any, NoReturn

from pydantic import GetCoreSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

_TIME = """milli- = 1e-3 = m-; micro- = 1e-6 = u- = µ- = μ-; nano- = 1e-9 = n-
    second = [time] = s; minute = 60 s = min; hour = 3600 s = h"""
_DATA = """kilo- = 1e3 = k-; mega- = 1e6 = M-; giga- = 1e9 = G-; tera- = 1e12 = T-; peta- = 1e15 = P-
    kibi- = 1024 = Ki-; mebi- = 1048576 = Mi-; gibi- = 1073741824 = Gi-; tebi- = 1099511627776 = Ti-
    second = [time] = s; byte = [data] = B; bit = 0.125 byte = _; bps = bit / second = _
    FLOP = [work] = _; FLOPS = FLOP / second = _"""
_MONEY = "hour = [time] = h; minute = hour / 60 = min; second = hour / 3600 = s; USD = [money] = _"
# base unit → unit → how many of it
_PREFIXES = dict(zip(("", *"kMGTP"), (Decimal(1000) ** n for n in range(6)), strict=True))
_BINARY = dict(zip(("Ki", "Mi", "Gi", "Ti"), (Decimal(1024) ** n for n in range(1, 5)), strict=True))
_BYTES = {f"{prefix}B": times for prefix, times in (_PREFIXES | _BINARY).items()}
_BITS = {f"{prefix}bit": times / 8 for prefix, times in _PREFIXES.items()}
_USUAL: dict[str, dict[str, Decimal]] = {
    "s": {name: Decimal(of) for name, of in (("s", 1), ("ms", "1e-3"), ("us", "1e-6"), ("ns", "1e-9"))},
    "B": _BYTES | _BITS,
    "B/s": {f"{name}/s": times for name, times in (_BYTES | _BITS).items()},
    "FLOP/s": {f"{prefix}FLOP/s": times for prefix, times in _PREFIXES.items()},
    "USD": {"USD": Decimal(1)},
    "USD/h": {"USD/h": Decimal(1)},
}
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


def _by_pint(number: str, unit: str, base: str) -> float:
    """Raises ValueError for a unit that is none, or that the base unit does not measure."""
    import pint

    try:
        return float(_registry(base).Quantity(Decimal(number), unit).to(base).magnitude)
    except pint.PintError as error:
        raise ValueError from error


@cache
def _registry(base: str) -> Any:
    """Of pint's, what knows a base unit, and what is measured in it."""
    import pint

    text = {"s": _TIME, "USD/h": _MONEY, "USD": _MONEY}.get(base, _DATA)
    # Decimal: `100 us` is 1e-4 to the last bit
    return pint.UnitRegistry[Decimal](re.split(r"[;\n]\s*", text), non_int_type=Decimal)


@dataclass(frozen=True)
class Quantity:
    """What makes a float field a quantity in base unit `unit`: from `least` to `most`, or 0 too.

    The bounds are what a cluster could have, with orders of magnitude to spare: beyond them sums and
    products are no numbers any more. `above_zero` forbids 0.
    """

    noun: str
    unit: str
    example: str
    least: str
    most: str
    above_zero: bool = True

    def __str__(self) -> str:
        return f"{self.noun} with its unit, such as '{self.example}'"

    @property
    def described(self) -> str:
        """What it is, and its bounds, for editors."""
        return f"{self.noun} with its unit, from {self.least} to {self.most}" + " or 0" * (
            not self.above_zero
        )

    def parse(self, value: object) -> float:
        """Return `value`, a string such as `10 Gbit/s`, in base units; all else is a validation error."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            fail(f"{shown(value)} has no unit; write {self}")
        result = self._in_base_units(value) if isinstance(value, str) else None
        if result is None:
            fail(f"{shown(value)} is not {self.noun}; write {self}")
        if not self.admits(result):
            bound = "above 0" if self.above_zero else "0 or more"
            fail(
                f"{shown(value)} is out of range; must be {bound}, from {self.least} to {self.most}, "
                f"such as '{self.example}'"
            )
        return result

    def admits(self, value: float) -> bool:
        """Whether a value in base units is in range."""
        least, most = self.bounds
        return least <= value <= most or (value == 0 and not self.above_zero)

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value but 0, in base units."""
        return self._in_base_units(self.least) or 0.0, self._in_base_units(self.most) or 0.0

    def _in_base_units(self, text: str) -> float | None:
        written = _WRITTEN.fullmatch(text)
        if written is None:
            return None
        number, unit = written.groups()
        try:
            times = _USUAL[self.unit].get(unit)
            return float(Decimal(number) * times) if times else _by_pint(number, unit, self.unit)
        except (ArithmeticError, ValueError):
            return None

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> Any:
        schema = {"type": "string", "description": self.described, "examples": [self.example]}
        return core_schema.no_info_plain_validator_function(
            self.parse,
            # what `parse` reads back as exactly the same float
            serialization=core_schema.plain_serializer_function_ser_schema(lambda x: f"{x!r} {self.unit}"),
            metadata={"pydantic_js_functions": [lambda _schema, _handler: schema]},
        )


TIME = Quantity("a duration", "s", "30 ms", "1e-6 ns", "1e9 s")  # to 30 years
RATE = Quantity("a bandwidth", "B/s", "10 Gbit/s", "1 bit/s", "1e6 TB/s")
SIZE = Quantity("a size", "B", "64 KiB", "1 B", "1e6 TB")
FLOP_RATE = Quantity("a rate of work", "FLOP/s", "312 TFLOP/s", "1 FLOP/s", "1e12 TFLOP/s")
TIME_FROM_0 = replace(TIME, example="50 us", above_zero=False)
MONEY = Quantity("an amount of money", "USD", "500 USD", "1e-6 USD", "1e15 USD")
PRICE = Quantity("a price", "USD/h", "24.48 USD/h", "1e-9 USD/h", "1e6 USD/h", above_zero=False)
Price = Annotated[float, PRICE]
Duration = Annotated[float, TIME_FROM_0]
PositiveDuration = Annotated[float, TIME]
Bandwidth = Annotated[float, RATE]
PositiveSize = Annotated[float, SIZE]
Size = Annotated[float, replace(SIZE, example="25 MB", above_zero=False)]
FlopRate = Annotated[float, FLOP_RATE]

_STEPS = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (0.0, "ns")),
    "B/s": ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (0.0, "B/s")),
    "B": ((1e6, "MB"), (1e3, "kB"), (0.0, "B")),
}
_FACTORS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def quantity(value: float, unit: str, digits: int = 4) -> Any:
    """A value in base units as a scenario has it: `95.3 us`, or a bare number where `unit` is empty."""
    if isinstance(value, int) and not unit:
        return value
    if not math.isfinite(value):
        return str(value)
    if not unit:
        return float(f"{value:.{digits}g}")
    if unit not in _STEPS:
        return f"{value:.{digits}g} {unit}"
    least, name = next(step for step in _STEPS[unit] if abs(value) >= step[0])
    scale = _FACTORS[name] if unit == "s" else least or 1.0
    return f"{_plain(value / scale, digits)} {name}"


def _plain(value: float, digits: int) -> str:
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
