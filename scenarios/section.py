"""What all sections of a scenario share: known keys only, nothing forgotten, and messages that help."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isqrt
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    WrapValidator,
    model_validator,
)

from lockstep.scenarios.units import Quantity, fail, shown

Count = Annotated[int, Field(ge=1)]
_LEAST, _MOST = 1e-6, 1e6
Factor = Annotated[float, Field(ge=_LEAST, le=_MOST)]
FACTOR = f"a factor from {_LEAST:g} to {_MOST:g}"


def is_factor(value: float) -> bool:
    """Whether a number, such as one in a file, is a `Factor`."""
    return _LEAST <= value <= _MOST


def nearest(word: object, valid: Iterable[str]) -> str:
    """Return `; did you mean 'x'? (valid: …)`, the question only where a name is near."""
    names = sorted(valid)
    return f"{did_you_mean(word, names)} (valid: {', '.join(names)})"


def did_you_mean(word: object, valid: Sequence[str]) -> str:
    """Return `; did you mean 'x'?` if a name is near, else nothing."""
    near = difflib.get_close_matches(str(word)[:60], valid, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def divisors(number: int) -> list[int]:
    """All of them, from 1 on."""
    small = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def any_of(numbers: Sequence[int], given: int) -> str:
    """Return `1, 2 or 4`; of many numbers the nearest below and above the given one: `such as 12 or 15`."""
    if len(numbers) > 8:
        below, above = [each for each in numbers if each < given], [each for each in numbers if each > given]
        return f"such as {any_of([*below[-1:], *above[:1]], given)}"
    *but_last, last = map(str, numbers)
    return f"{', '.join(but_last)} or {last}" if but_last else last


class Section(BaseModel):
    """A mapping of known keys; `shorthand` names the key that a bare scalar stands for."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    shorthand: ClassVar[str] = ""
    mistaken: ClassVar[Mapping[str, str]] = {}
    """Words for which people take a key by another name, and that key."""

    @model_validator(mode="before")
    @classmethod
    def _known_and_complete(cls, data: Any) -> Any:
        if isinstance(data, cls):
            return data
        if cls.shorthand and isinstance(data, str | int):
            data = {cls.shorthand: data}
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        if not isinstance(data, dict):
            fail(f"must be a mapping (keys: {', '.join(fields)}), not {shown(data)}")
        for key in data:
            if key not in fields and cls.model_config["extra"] == "forbid":
                fail(f"unknown key{nearest(cls.mistaken.get(key, key), fields)}", key)
        for key, field in fields.items():
            if key not in data and field.is_required():
                quantity = next((str(kind) for kind in field.metadata if isinstance(kind, Quantity)), None)
                fail(f"missing; give {field.description or quantity or key}", key)
        return data

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> Any:
        schema = handler.resolve_ref_schema(handler(core))
        if cls.shorthand:  # editors accept the short form too
            long = dict(schema)
            schema.clear()
            schema["anyOf"] = [long["properties"][cls.shorthand], long]
        return schema


def one_of(choose: Callable[[Any], type[Section] | None]) -> WrapValidator:
    """Validate with the one class that `choose` names for the data, so that errors speak of that one only."""

    def validate(data: Any, union: Callable[[Any], Any], info: ValidationInfo) -> Any:
        kind = None if isinstance(data, Section) else choose(data)
        return kind.model_validate(data, context=info.context) if kind else union(data)

    return WrapValidator(validate)
