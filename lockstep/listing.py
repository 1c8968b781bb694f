"""Lists of what there is, on a terminal; nothing is loaded for them."""

import re
import sys
from collections.abc import Mapping
from inspect import Parameter
from itertools import takewhile
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap

_PIPE = 120  # characters in a line where there is no terminal
_LEAST = 30  # of the second column, however long the names are


def two_columns(rows: Mapping[str, str]) -> None:
    """Print names and what they are, in lines that fit; a text's own lines stay apart."""
    names = max(map(len, rows), default=0) + 2
    room = max(_LEAST, width() - names)
    for name, text in rows.items():
        lines = [part for line in text.split("\n") for part in wrap(line, room, break_on_hyphens=False)]
        for place, line in enumerate(lines or [""]):
            print(f"{'' if place else name:{names}}{line}".rstrip())


def paragraph(text: str) -> None:
    """Print a text in lines that fit."""
    print("\n".join(wrap(text, width(), break_on_hyphens=False)))


def width() -> int:
    """Characters in a line: as wide as the terminal, and enough for most texts in a pipe."""
    return get_terminal_size().columns if sys.stdout.isatty() else _PIPE


def defaults(parameters: Mapping[str, Parameter]) -> str:
    """Parameters and their defaults in a line; None, which stands for one that depends, is left out."""
    return ", ".join(
        name
        if p.default is None
        else f"{name}={str(p.default).lower() if isinstance(p.default, bool) else p.default}"
        for name, p in parameters.items()
    )


def first_comment(path: Path) -> str:
    """The first sentence of the comment that a YAML file begins with: what it is for."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.strip("# ") for line in takewhile(lambda line: line.startswith("#"), lines))
    return re.split(r"(?<=\.)\s", comment)[0]
