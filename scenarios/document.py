"""A YAML file as plain values, with the line of every key; hostile files cost little and are refused."""

import math
import warnings
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml import events as ev
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import ScalarNode

BYTES, VALUES, DEPTH = 1 << 20, 10_000, 32
_PLAIN = {f"tag:yaml.org,2002:{kind}": kind for kind in ("str", "timestamp", "null", "bool", "int", "float")}
# What ruamel raises on bad text: its own errors, warnings where it guesses, and what it forgot to catch.
_BAD = (
    YAMLError,
    Warning,
    ValueError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    TypeError,
)


class ScenarioError(Exception):
    """What is wrong with a scenario, at which dotted `key`, in which `file` and `line` (from 1); one line."""

    def __init__(self, problem: str, key: str = "", file: str = "", line: int | None = None) -> None:
        super().__init__(problem, key, file, line)
        self.problem, self.key, self.file, self.line = problem, key, file, line

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        text = ": ".join(part for part in (place, self.key, self.problem) if part)
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def dotted(path: tuple[str | int, ...]) -> str:
    """Return `("stragglers", 0, "worker")` as `stragglers[0].worker`."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p[:60]}" for p in path).removeprefix(".")


def parse(text: str) -> tuple[Any, dict[str, int]]:
    """Return the one document in `text` as dicts, lists and scalars, and the line of each dotted key.

    Raises ScenarioError, with `key` and `line` where known, on anything but plain finite data: syntax errors,
    duplicate keys, tags, over 10,000 values (each alias counts in full), over 32 levels, a second document.
    """
    reader = _Reader(text)
    documents: list[Any] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for event in reader.events:
                if isinstance(event, ev.DocumentStartEvent):
                    line = event.start_mark.line + 1
                    if documents:
                        raise ScenarioError("a second document; a file is one scenario", line=line)
                    documents.append(reader.value(next(reader.events), ()))
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise ScenarioError(f"not valid YAML: {error.problem or error.context}", line=line) from None
    except _BAD as error:
        what = str(error).strip().splitlines() or ["it cannot be read"]
        raise ScenarioError(f"not valid YAML: {what[0]}") from None
    return (documents[0] if documents else None), reader.lines


class _Reader:
    """Builds values while the parser's events stream by; an alias shares the value that it names."""

    def __init__(self, text: str) -> None:
        self._yaml = YAML(typ="safe", pure=True)  # pure: the C parser speaks YAML 1.1, where `1e-3` is a word
        self.events: Iterator[Any] = self._yaml.parse(text)
        self.lines: dict[str, int] = {}
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0

    def value(self, event: Any, path: tuple[str | int, ...]) -> Any:
        line, before = event.start_mark.line + 1, self._count
        self.lines.setdefault(dotted(path), line)
        self._count += 1
        if isinstance(event, ev.AliasEvent):
            if event.anchor not in self._anchors:
                raise ScenarioError("an alias of nothing above, or of itself", dotted(path), line=line)
            value, size = self._anchors[event.anchor]
            self._count += size
        if self._count > VALUES or len(path) > DEPTH:
            limits = f"at most {VALUES} values (each alias counts in full) and {DEPTH} levels are read"
            raise ScenarioError(f"too long or nested too deeply; {limits}", dotted(path[:3]), line=line)
        if isinstance(event, ev.ScalarEvent):
            value = self._scalar(event, path, line)
        elif not isinstance(event, ev.AliasEvent):
            if event.tag is not None:
                raise ScenarioError(
                    f"tag '{event.tag}' is not allowed; leave it out", dotted(path), line=line
                )
            value = self._mapping(path) if isinstance(event, ev.MappingStartEvent) else self._list(path)
        if getattr(event, "anchor", None) and not isinstance(event, ev.AliasEvent):
            self._anchors[event.anchor] = value, self._count - before
        return value

    def _list(self, path: tuple[str | int, ...]) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), ev.SequenceEndEvent):
            items.append(self.value(event, (*path, len(items))))
        return items

    def _mapping(self, path: tuple[str | int, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while not isinstance(event := next(self.events), ev.MappingEndEvent):
            line = event.start_mark.line + 1
            key = self._scalar(event, path, line) if isinstance(event, ev.ScalarEvent) else None
            if not isinstance(key, str) or key == "<<":
                raise ScenarioError("a key must be a word, such as 'workers'", dotted(path), line=line)
            if key in result:
                raise ScenarioError("duplicate key; keep one of them", dotted((*path, key)), line=line)
            self.lines[dotted((*path, key))] = line
            result[key] = self.value(next(self.events), (*path, key))
        return result

    def _scalar(self, event: Any, path: tuple[str | int, ...], line: int) -> Any:
        tag = str(event.tag or self._yaml.resolver.resolve(ScalarNode, event.value, event.implicit))
        kind = "str" if event.value == "<<" else _PLAIN.get(tag)
        if kind is None:
            raise ScenarioError(f"tag '{tag}' is not allowed; leave it out", dotted(path), line=line)
        if kind in ("str", "timestamp"):  # a date is nowhere meant: `name: 2024-05-01` is a name
            return event.value
        try:
            value = self._yaml.constructor.construct_object(ScalarNode(tag, event.value))
        except _BAD:
            value = math.nan
        if isinstance(value, int) and abs(value) >= 2**63:
            value = math.nan
        if isinstance(value, float) and not math.isfinite(value):
            said = f"'{event.value[:30]}' is not a usable {kind}; write a finite one, an int below 2**63"
            raise ScenarioError(said, dotted(path), line=line)
        return value
