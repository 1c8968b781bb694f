"""Files that a scenario builds on: clusters, workloads and profiles, its own or those that are shipped.

`cluster: ten-gigabit`, or `cluster: {preset: ten-gigabit, workers: 32}`, takes a whole cluster over from a
file that says what would stand below `cluster:`; likewise `workload`. What the scenario says itself wins.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, GetJsonSchemaHandler, ValidationError, WithJsonSchema

from lockstep.scenarios.document import BYTES, parse
from lockstep.scenarios.errors import place, translated
from lockstep.scenarios.problem import ScenarioError
from lockstep.scenarios.section import Section, nearest
from lockstep.scenarios.shelves import shelf
from lockstep.scenarios.units import fail, shown

_KINDS = ("kind", "distribution")
_SOURCES = ("time", "peak")
T = TypeVar("T")


_NAMED = {"type": "string", "description": "the file of a preset, or the name of a shipped one"}


def _taken_over(name: object) -> None:
    if name is not None:
        fail("is taken over where a scenario names it; a preset cannot build on another one")


Preset = Annotated[None, BeforeValidator(_taken_over), WithJsonSchema(_NAMED)]


class OrNamed:
    """Tells editors that the name of a preset stands for a section."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> Any:
        return {"anyOf": [_NAMED, handler(core)]}


def needs(schema: Any, *alternatives: list[str]) -> Any:
    """The schema of a section that needs one of these lists of keys, not all that it has no default for."""
    return {**schema, "required": [], "anyOf": [{"required": keys} for keys in alternatives]}


def find(name: object, shelf_: str, folder: Path) -> Path:
    """Return the file of that name: beside the scenario's, in the current folder, or on the shelf."""
    what, known = shelf_.removesuffix("s"), shelf(shelf_)
    if not isinstance(name, str) or not name:
        raise ScenarioError(f"must be a file, or the name of a shipped {what}, not {shown(name)}")
    for path in (folder / name, Path(name), known.get(name.removesuffix(".yaml"))):
        if path is not None and path.is_file():
            return path.absolute()
    raise ScenarioError(f"no such {what}: {name[:60]!r}; give a file, or a shipped one{nearest(name, known)}")


def read(path: Path, valid: Callable[[Any, dict[str, Any]], T], what: str) -> T:
    """Return what `valid(document, context)` makes of a file.

    Raises ScenarioError, with the file and line that is to blame; `what` is the file in its message.
    """
    places: dict[str, int | str] = {"": 1}
    try:
        if not path.is_file():  # not a pipe, nor an endless device
            raise ScenarioError(f"no such file; give {what}")
        if path.stat().st_size > BYTES:
            raise ScenarioError(f"over 1 MiB; {what} is smaller")
        document, places = _parsed(path.read_text("utf-8-sig"))
        try:
            return valid(document, {"folder": path.parent})
        except ValidationError as error:
            raise translated(error, document) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ScenarioError(f"cannot be read: {reason}", file=str(path)) from None
    except ScenarioError as error:
        place(error, places, str(path))
        raise


@lru_cache(maxsize=64)  # a sweep reads one file for each of its points
def _parsed(text: str) -> tuple[Any, dict[str, int | str]]:
    """Return the document in a file, which nobody may change, and the line of each key."""
    places: dict[str, int | str] = {"": 1}
    try:
        return parse(text, places), places
    except ScenarioError as error:
        place(error, places, "")
        raise


def over(
    given: Any, shelf_: str, valid: Callable[[Any, dict[str, Any]], Section], context: Mapping[str, Any]
) -> Any:
    """Return `given`, a section or a bare name, over the preset that it names; itself, if it names none.

    Raises ScenarioError for a preset that is not there, or is wrong.
    """
    if isinstance(given, str):
        given = {"preset": given}
    if not isinstance(given, dict) or given.get("preset") is None:
        return given
    what = shelf_.removesuffix("s")
    path = find(given["preset"], shelf_, Path(context.get("folder", ".")))
    preset = read(path, valid, f"what would stand below '{what}:'")
    below = preset.model_dump(exclude_unset=True, by_alias=True)
    return merged(below, {key: value for key, value in given.items() if key != "preset"})


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return one mapping over another, mappings in them likewise; all else is replaced as a whole.

    So is a mapping that is of another kind, such as another topology, or a compute time instead of a peak.
    """
    if any(above.get(key, below.get(key)) != below.get(key) for key in _KINDS):
        return dict(above)
    if any(key in above and key not in below for key in _SOURCES):
        return dict(above)
    both = {
        key: merged(below[key], value) if isinstance(value, dict) and isinstance(below[key], dict) else value
        for key, value in above.items()
        if key in below
    }
    return {**below, **above, **both}
