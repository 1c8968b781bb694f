"""What is wrong with YAML that cannot be parsed, and on which line a person made the mistake.

The parser says where it noticed: often the line after, or the end of the file.
"""

import re

from ruamel.yaml.error import MarkedYAMLError

_NO_COLON = re.compile(r"\s*(?:- )?[^\s#:'\"\[\]{}-][^:]*(?::\S.*)?")
"""A line that would say `key: value`, but has no colon, or no space after it."""
_OPEN_QUOTE = re.compile(r"(?:^|.*?[\s:,\[{-])(['\"])(?:(?!\1).)*")
"""A line that begins a text in quotes and does not end it."""

_LATE = {
    "mapping values are not allowed here": "a ': ' where no key can be: indent the line as those around it, "
    "or put the text in quotes",
    "expected <block end>": "it does not go on like the lines above: indent it as they are, "
    "and close what is open",
}
"""Problems that may have begun on a line before, and what they mean if they have not."""


def explained(error: MarkedYAMLError, text: str) -> tuple[str, int | None]:
    """Return what is wrong, and the line (from 1) that is to blame; None if unknown."""
    problem, context = error.problem or error.context or "it cannot be read", error.context or ""
    noticed = None if error.problem_mark is None else error.problem_mark.line + 1
    began = noticed if error.context_mark is None else error.context_mark.line + 1
    if problem == "but found another document":
        return "a second document; a file is one scenario", noticed
    if "flow" in context and began != noticed:
        bracket = "[" if "sequence" in context else "{"
        return f"not valid YAML: the {bracket} is not closed, or a comma is missing after it", began
    if "quoted scalar" in context and problem.startswith("found unexpected"):
        return "not valid YAML: the quote is not closed", began
    if "simple key" in context:
        return "not valid YAML: expected ': ' after the key", began
    lines = text.splitlines()
    if noticed is not None and problem.startswith(tuple(_LATE)):
        before = _line_before(lines, noticed)
        level = before is not None and _indent(lines[before - 1]) == _indent(lines[noticed - 1])
        if before is not None and level and _lacks_colon(lines[before - 1]):
            return "not valid YAML: expected ': ', with a space, after the key", before
        if problem.endswith("'<scalar>'"):
            for number, line in enumerate(lines[: noticed - 1], 1):
                if _OPEN_QUOTE.fullmatch(_said(line)):
                    return "not valid YAML: the quote is not closed on its line", number
    meant = next((words for start, words in _LATE.items() if problem.startswith(start)), problem)
    return f"not valid YAML: {meant}", noticed


def line_in(message: str) -> int | None:
    """The last line that a message of the parser's names."""
    found = re.findall(r"\bline (\d+)", message)
    return int(found[-1]) if found else None


def _said(line: str) -> str:
    """A line without its comment; the beginning of a long one, whose quotes would take long to match."""
    return re.split(r"(?:^|\s)#", line[:500], maxsplit=1)[0].rstrip()


def _lacks_colon(line: str) -> bool:
    return bool(_NO_COLON.fullmatch(_said(line)))


def _line_before(lines: list[str], number: int) -> int | None:
    """The last line before that of a number which says something."""
    said = (at for at in range(number - 1, 0, -1) if _said(lines[at - 1]))
    return next(said, None)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
