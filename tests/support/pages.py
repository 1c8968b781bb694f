"""What a page of the documentation shows: its blocks of code, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in all_blocks(page) if kind == language]


def all_blocks(page: Path) -> list[tuple[str, str]]:
    """The language of each, and its text, in the page's order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands(block: str) -> Iterator[list[str]]:
    """The words of each `lockstep …`; a line ends where quotes are closed, and where no backslash is."""
    line = ""
    for piece in block.replace("\\\n", " ").splitlines():
        line = f"{line}\n{piece}" if line else piece
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # quotes are still open
            continue
        line = ""
        if words[:1] == ["lockstep"]:
            yield words[1 : words.index(">")] if ">" in words else words[1:]
    assert not line, line
