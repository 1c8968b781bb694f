"""Files that are there as a whole, or as they were, whenever a process is killed."""

from collections.abc import Callable
from pathlib import Path


def put(file: Path, write: Callable[[Path], object]) -> None:
    """Let `write` write a file by another name, which then takes its place. Raises what that raises."""
    part = part_of(file)
    write(part)
    part.replace(file)


def put_text(file: Path, text: str) -> None:
    """As `put`, of a text."""
    put(file, lambda part: part.write_text(text, encoding="utf-8"))


def part_of(file: Path) -> Path:
    """The other name: what a killed process leaves."""
    return file.with_name(f".{file.name}.part")
