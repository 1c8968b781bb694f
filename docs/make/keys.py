"""The keys of a scenario as Markdown tables, from the models that check it."""

import inspect
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from definitions import linked
from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from lockstep.scenarios import Scenario
from lockstep.scenarios.faults import Updates
from lockstep.scenarios.section import Section
from lockstep.scenarios.units import FLOP_RATE, RATE, SIZE, TIME, Quantity

_TYPES = {int: "whole number", float: "number", str: "text", bool: "true or false", dict: "mapping"}
_TYPES[Updates] = "a number of updates, such as `100 updates`"
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
_HIDDEN = ("preset", "profile")  # of files only: a scenario that has been read has neither
_FORMS = "one of the forms below"


def tables() -> str:
    """How far quantities go; then every section, the outer before the inner."""
    far = [f"{kind.noun} from {kind.least} to {kind.most}" for kind in (TIME, RATE, SIZE, FLOP_RATE)]
    bounds = f"Quantities are what a cluster could have: {', '.join(far)}; where 0 is allowed, or 0.\n"
    return "\n".join([bounds, *_tables("", [Scenario], set())])


def _tables(path: str, models: list[type[BaseModel]], seen: set[type]) -> Iterator[str]:
    if seen.issuperset(models):
        return
    seen.update(models)
    yield _head(path, models) + (_one(models[0]) if len(models) == 1 else _several(models))
    for model in models:
        for key, field in _fields(model):
            inner = list(dict.fromkeys(_models(field.annotation)))
            several = "[]" if get_origin(field.annotation) is tuple else ""
            if inner:
                yield from _tables(f"{path}.{key}{several}".removeprefix("."), inner, seen)


def _head(path: str, models: list[type[BaseModel]]) -> str:
    if len(models) > 1:
        return f"**`{path}`**: one of these forms.\n\n"
    where = f"`{path}`" if path else "A scenario"
    return f"**{where}** (`{models[0].__name__}`): {_words(models[0])}\n\n"


def _words(model: type[BaseModel]) -> str:
    return linked(inspect.cleandoc(model.__doc__ or ""))


def _one(model: type[BaseModel]) -> str:
    rows = [f"| `{key}` | {_value(field)} | {_default(field)} |" for key, field in _fields(model)]
    return "\n".join(["| key | value | default |", "|---|---|---|", *rows, ""])


def _several(models: list[type[BaseModel]]) -> str:
    """A row a form, with the keys that not all of them have alike."""
    each_has = [{f"`{key}`: {_value(field)}{_after(field)}" for key, field in _fields(m)} for m in models]
    shared = set.intersection(*each_has)
    rows = []
    for model in models:
        kind = "".join(f"<br>`{key}: {value}`" for key, value in _tags(model))
        said = [f"`{key}`: {_type(field.annotation, field.metadata)}{_after(field)}"
                for key, field in _fields(model)
                if (key, *get_args(field.annotation)) not in _tags(model)
                and f"`{key}`: {_value(field)}{_after(field)}" not in shared]  # fmt: skip
        rows.append(f"| `{model.__name__}`{kind} | {'<br>'.join(said)} | {' '.join(_words(model).split())} |")
    table = "\n".join(["| form | keys (and their defaults) | |", "|---|---|---|", *rows, ""])
    return f"{table}\nAll have {', '.join(sorted(shared))}.\n" if shared else table


def _tags(model: type[BaseModel]) -> list[tuple[str, str]]:
    """The keys whose only value tells the form from others."""
    return [(key, get_args(field.annotation)[0]) for key, field in _fields(model)
            if key in ("kind", "distribution")]  # fmt: skip


def _fields(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    return [(field.alias or key, field) for key, field in model.model_fields.items() if key not in _HIDDEN]


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """The sections that a value may be, or may have as its items."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    elif get_origin(kind) is Annotated:
        yield from _models(get_args(kind)[0])
    elif get_origin(kind) is not Literal:
        for part in get_args(kind):
            yield from _models(part)


def _value(field: FieldInfo) -> str:
    said = _type(field.annotation, field.metadata)
    about = field.description or ""
    return f"{said}: {about}".replace("|", "\\|") if about else said


def _type(kind: Any, metadata: list[Any]) -> str:
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        inner = [item for each in more for item in (each.metadata if isinstance(each, FieldInfo) else [each])]
        return _type(kind, [*metadata, *inner])
    quantity = next((each for each in metadata if isinstance(each, Quantity)), None)
    if quantity is not None:
        bound = "> 0" if quantity.above_zero else "≥ 0"
        return f"{quantity.noun.removeprefix('a ')} ({quantity.unit}) {bound}"
    origin, parts = get_origin(kind), [part for part in get_args(kind) if part is not type(None)]
    if origin in (Union, types.UnionType):
        forms = [part for part in parts if part in _models(part)]
        return _FORMS if len(forms) > 1 and forms == parts else " or ".join(_type(p, metadata) for p in parts)
    if origin is Literal:
        return " or ".join(f"`{part}`".lower() if part is False else f"`{part}`" for part in parts)
    if origin is tuple:
        return f"list, each {_type(parts[0], [])}"
    if origin is dict and parts[1] not in (Any, JsonValue):
        return f"mapping, from {_type(parts[0], [])} to {_type(parts[1], [])}"
    if isinstance(kind, type) and issubclass(kind, Section):
        return f"`{kind.__name__}`"
    bounds = [
        f"{sign} {getattr(each, name):g}"
        for each in metadata
        for name, sign in _BOUNDS.items()
        if hasattr(each, name)
    ]
    return " ".join([_TYPES[origin or kind], ", ".join(bounds)]).strip()


def _after(field: FieldInfo) -> str:
    default = _default(field)
    return "" if field.is_required() or default == "–" else f" ({default})"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default
    if default is None:
        return "–"
    if isinstance(default, Section):
        given = default.model_dump(exclude_defaults=True)
        return f"`{next(iter(given.values()))}`" if given else "each key's own"
    if isinstance(default, bool | str):
        return f"`{default}`".lower()
    if isinstance(default, tuple):
        return "`[]`"
    return f"`{default:g}`" if isinstance(default, int | float) else "`{}`"
