"""Files of numbers that a scenario names: one row per line, blank lines left out."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationInfo

from lockstep.scenarios.units import fail, shown

T = TypeVar("T")


def beside(file: str, info: ValidationInfo) -> Path:
    """Return the absolute path of a file named relative to the scenario's."""
    return Path((info.context or {}).get("folder", "."), file).absolute()


def rows(path: Path, parse: Callable[[str], T | None], content: str, form: str) -> tuple[T, ...]:
    """Return `parse(line)` of every line that is not blank; None or a ValueError is a validation error.

    In messages `content` is what the file holds, such as "seconds", and `form` what a line must be, such as
    "one positive number of seconds".
    """
    try:
        if not path.is_file():  # not a pipe, nor an endless device
            raise FileNotFoundError
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        fail(f"cannot read {shown(path.name)}; give a text file of {content}, one per line")
    found: list[T] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = parse(line)
        except ValueError:
            row = None
        if row is None:
            fail(f"line {number} of the file is {shown(line)}; must be {form}")
        found.append(row)
    return tuple(found) or fail(f"the file is empty; it needs {form} on at least one line")
