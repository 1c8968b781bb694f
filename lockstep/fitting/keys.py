"""The keys that a fit may change: numbers above 0, between bounds, in base units."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lockstep.scenarios import Scenario, ScenarioError, value
from lockstep.scenarios.document import parse
from lockstep.scenarios.sweep import Changes
from lockstep.scenarios.units import quantity, shown

Ends = tuple[Any, Any] | None
"""LOW and HIGH as a file has them, such as '1 Mbit/s'; None: around the scenario's own value."""

_AROUND = 100.0  # times and divided by what the scenario says
_WHOLE = 1000  # smaller whole numbers have too few values to be found by small steps
_HALVINGS = 40
_BEYOND = 1e-3  # of a logarithm: an end is that of what is valid if so little beyond it is not


class Free(NamedTuple):
    """A free key. `unit`: of its numbers, "" for a plain one; `whole`: whether a file has whole numbers.

    `firm`: whether its low and high end are the end of what is valid, and not only how far is looked.
    """

    key: str
    unit: str
    whole: bool
    start: float
    low: float
    high: float
    firm: tuple[bool, bool]

    def written(self, number: float, digits: int | None = None) -> Any:
        """A value as a file has it: to the last bit or, for people, with so many digits."""
        if self.whole:
            return round(number)
        if digits is not None:
            return quantity(float(number), self.unit, digits)
        return f"{float(number)!r} {self.unit}" if self.unit else float(number)


def parsed(given: str) -> tuple[str, Ends]:
    """KEY or KEY=LOW..HIGH. Raises ScenarioError."""
    key, equals, ends = given.partition("=")
    low, dots, high = ends.partition("..")
    if not equals:
        return key, None
    if not (dots and low.strip() and high.strip()):
        example = "cluster.network.bandwidth='100 Mbit/s..10 Gbit/s'"
        raise ScenarioError(f"{shown(given)} is not KEY or KEY=LOW..HIGH, such as {example}", "--free")
    return key, (parse(low, {}), parse(high, {}))


def free(
    keys: Mapping[str, Ends], scenario: Scenario, changed: Callable[[Changes], Scenario]
) -> tuple[Free, ...]:
    """The free keys of a scenario, which `changed` makes anew. Raises ScenarioError for what is none."""
    if not keys:
        raise ScenarioError("is missing; name a key to find the value of, such as cluster.network.bandwidth",
                            "--free")  # fmt: skip
    return tuple(_free(key, ends, scenario, changed) for key, ends in keys.items())


def _free(key: str, ends: Ends, scenario: Scenario, changed: Callable[[Changes], Scenario]) -> Free:
    try:
        start, unit, whole = _number(value(scenario, key))
    except ScenarioError as error:
        raise ScenarioError(error.problem, f"--free {key}") from None
    if ends is None:
        if start is None or not start > 0:
            said = "has no number" if start is None else "is 0"
            problem = f"{said} in the scenario to begin with; give its range: --free {key}=LOW..HIGH"
            raise ScenarioError(problem, f"--free {key}")
        low, high = start / _AROUND, start * _AROUND
    else:
        low, high = (_end(key, end, changed) for end in ends)
        if not low < high:
            problem = f"{shown(ends[0])} must be less than {shown(ends[1])}: LOW..HIGH"
            raise ScenarioError(problem, f"--free {key}")
        at_low = value(changed({key: ends[0]}), key)
        _, unit, whole = _number(at_low)
        start = start if start is not None and low < start < high else math.sqrt(low * high)
    if whole and start < _WHOLE:
        problem = "is a whole number with few values, which a fit by small steps does not find; sweep it"
        raise ScenarioError(problem, f"--free {key}")
    found = Free(key, unit, whole, start, low, high, (False, False))
    if ends is None:
        found = found._replace(low=_valid(found, low, changed), high=_valid(found, high, changed))
    beyond = found.low * math.exp(-_BEYOND), found.high * math.exp(_BEYOND)
    low_is, high_is = (not _is_valid(found, number, changed) for number in beyond)
    return found._replace(firm=(low_is, high_is))


def _end(key: str, end: Any, changed: Callable[[Changes], Scenario]) -> float:
    """LOW or HIGH in base units."""
    try:
        number, _, _ = _number(value(changed({key: end}), key))
    except ScenarioError as error:
        inner = "" if error.key in ("", key) else f"{error.key}: "
        raise ScenarioError(f"{shown(end)}: {inner}{error.problem}", f"--free {key}") from None
    if number is None or not number > 0:
        raise ScenarioError(f"{shown(end)} must be a number above 0", f"--free {key}")
    return number


def _number(written: Any) -> tuple[float | None, str, bool]:
    """The number that a file has, its unit, and whether it is whole. Raises ScenarioError for no number."""
    if written is None:
        return None, "", False
    if isinstance(written, int | float) and not isinstance(written, bool):
        return float(written), "", isinstance(written, int)
    number, _, unit = written.partition(" ") if isinstance(written, str) else ("", "", "")
    try:
        return float(number), unit, False
    except ValueError:
        raise ScenarioError(f"is {shown(written)}; only numbers can be fitted") from None


def _is_valid(key: Free, number: float, changed: Callable[[Changes], Scenario]) -> bool:
    try:
        changed({key.key: key.written(number)})
    except ScenarioError:
        return False
    return True


def _valid(key: Free, end: float, changed: Callable[[Changes], Scenario]) -> float:
    """An end of the range, or the nearest to it that is valid: `efficiency` is at most 1."""
    if _is_valid(key, end, changed):
        return end
    good, bad = math.log(key.start), math.log(end)
    for _ in range(_HALVINGS):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if _is_valid(key, math.exp(middle), changed) else (good, middle)
    return math.exp(good)
