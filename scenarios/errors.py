"""Pydantic's errors in the words of the file that was read, and at its lines."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from lockstep.scenarios.document import Keys, dotted
from lockstep.scenarios.problem import ScenarioError
from lockstep.scenarios.units import shown

_WORDS = {
    "Input should": "must",
    "String should have at least 1 character": "must not be empty",
    "List should have at least 1 item after validation, not 0": "must have at least one item",
    "Tuple should have at least 1 item after validation, not 0": "must have at least one item",
    "a valid integer": "a whole number",
    "a valid tuple": "a list",
    "a valid dictionary": "a mapping",
    "a valid boolean": "true or false",
    "valid ": "",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "False": "false",
}  # pydantic's words and ours


def translated(errors: ValidationError, document: Any) -> ScenarioError:
    """Return the first of pydantic's errors in the words of the file."""
    error: Any = errors.errors()[0]
    path: Keys = ()
    for item in error["loc"]:  # a shorthand's inner key is not in the file
        valid = range(len(document)) if isinstance(document, list | tuple) else document
        if isinstance(valid, range | dict) and item in valid:
            path, document = (*path, item), document[item]
    problem = error["msg"] if error["type"] == "scenario" else in_words(error)
    if error["type"] == "scenario":
        path = (*path, *error["ctx"]["path"])
    if more := errors.error_count() - 1:
        problem += f" (and {more} more problem{'s' * (more > 1)})"
    return ScenarioError(problem, dotted(path))


def in_words(error: Any) -> str:
    """Return what one of pydantic's errors says, in our words."""
    problem = error["msg"].removeprefix("Value error, ").partition(", unable to parse")[0].rstrip(".")
    for theirs, ours in _WORDS.items():
        problem = problem.replace(theirs, ours)
    if choices := re.search(r" is not one of (.*)", problem):  # typer's words
        problem = f"must be one of {choices[1]}"
    return f"{problem}, not {shown(error['input'])}"


def place(error: ScenarioError, places: Mapping[str, int | str], source: str) -> None:
    """Tell an error where it is: its file and line, or the override, of the nearest key above it."""
    if error.file:
        return
    at = error.key
    while at and at not in places:
        at = re.sub(r"[.\[]?[^.\[]*\Z", "", at, count=1)
    found = error.line or places.get(at)
    error.file, error.line = (found, None) if isinstance(found, str) else (source, found)
