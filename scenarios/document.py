"""A YAML file as plain values, with the line of every key; hostile files cost little and are refused."""

import io
import math
import warnings
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from lockstep.scenarios.problem import ScenarioError
from lockstep.scenarios.yaml_errors import explained, line_in

BYTES, VALUES, DEPTH = 1 << 20, 10_000, 32
_LIMITS = f"too big; at most {VALUES} values (each alias counts in full) and {DEPTH} levels are read"
_WORDS = ("str", "timestamp")  # a date is nowhere meant: `name: 2024-05-01` is a name
_ALLOWED = (*_WORDS, "null", "bool", "int", "float", "seq", "map")

Keys = tuple[str | int, ...]


def dotted(path: Keys) -> str:
    """Return `("stragglers", 0, "worker")` as `stragglers[0].worker`, and a key with a dot in quotes.

    But not in a sweep, whose keys are dotted themselves.
    """
    swept = path[:1] == ("sweep",)
    words = (p if isinstance(p, int) else p[:60] if swept or "." not in p else repr(p[:60]) for p in path)
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in words).removeprefix(".")


def parse(text: str, lines: dict[str, Any]) -> Any:
    """Return the one document in `text` as dicts, lists and scalars; note the line of each dotted key.

    Raises ScenarioError, with `key` or `line` where known, on anything but plain finite data: syntax errors,
    duplicate keys, tags, over 10,000 values (each alias counts in full), over 32 levels, a second document.
    """
    yaml = YAML(typ="safe", pure=True)  # pure: the C parser speaks YAML 1.1, where `1e-3` is a word
    yaml.Composer = _Composer
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # ruamel warns where it guesses
            root = yaml.compose(text)
    except RecursionError:
        raise ScenarioError(_LIMITS) from None
    except MarkedYAMLError as error:
        problem, line = explained(error, text)
        raise ScenarioError(problem, line=line) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ScenarioError(f"not valid YAML: {str(error).splitlines()[0]}", line=line) from None
    except Exception as error:  # its other errors, its warnings, and what it forgot to catch
        what = str(error).strip().splitlines() or ["it cannot be read"]
        raise ScenarioError(f"not valid YAML: {what[0]}", line=line_in(str(error))) from None
    return root and _Reader(yaml.constructor, lines).value(root, (), ())


def written(document: Any, *, flow: bool | None = None, width: int = 110) -> str:
    """Return plain values as YAML. `flow`: lists and mappings in one line; None: those without any inside."""
    text = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.allow_unicode, yaml.width = flow, False, width
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.representer.ignore_aliases = lambda _: True
    yaml.dump(document, text)
    return text.getvalue()


class _Composer(Composer):
    """ruamel's, but it stops early in a file that is too long, as in one that is too deep."""

    nodes = depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.nodes += 1
        self.depth += 1
        if self.nodes > 2 * VALUES or self.depth > 2 * DEPTH:  # a key is a node too
            raise RecursionError
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Reader:
    """Turns nodes into values; what an alias names is read again, and counted again."""

    def __init__(self, constructor: Any, lines: dict[str, Any]) -> None:
        self._constructor, self._lines, self._count = constructor, lines, 0

    def value(self, node: Any, path: Keys, above: tuple[Node, ...]) -> Any:
        self._count += 1
        if self._count > VALUES or len(path) > DEPTH:
            raise ScenarioError(_LIMITS, dotted(path[:1]))
        at, kind = dotted(path), _kind(node)
        self._lines.setdefault(at, node.start_mark.line + 1)
        if node in above:
            raise ScenarioError("an alias of nothing above, or of itself", at)
        if kind not in _ALLOWED:
            raise ScenarioError(f"tag '{node.tag}' is not allowed; leave it out", at)
        above = (*above, node)
        if isinstance(node, ScalarNode):
            return node.value if kind in _WORDS else self._number(node, kind, at)
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, index), above) for index, item in enumerate(node.value)]
        result: dict[str, Any] = {}
        for key_node, item in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if _kind(key_node) not in _WORDS:
                raise ScenarioError("a key must be a word, such as 'workers'", at, line=line)
            self._lines[dotted((*path, key))] = line
            if node.flow_style and ":" in key and not key_node.style and item.value == "":
                name, _, meant = key.partition(":")
                said = f"'{key[:60]}' needs a space after its colon: '{name[:30]}: {meant[:30]}'"
                raise ScenarioError(said, at, line=line)
            if key in result:
                raise ScenarioError("duplicate key; keep one of them", dotted((*path, key)))
            result[key] = self.value(item, (*path, key), above)
        return result

    def _number(self, node: Any, kind: str, at: str) -> Any:
        """Return an int, a float, a bool or None."""
        try:
            value = self._constructor.construct_object(node)
            usable = value is None or abs(value) < (2**63 if kind == "int" else math.inf)
        except Exception:  # again, ruamel forgets to catch: `!!int x`
            usable = False
        if not usable:
            said = f"'{node.value[:30]}' is not a usable {kind}; write a finite one, an int below 2**63"
            raise ScenarioError(said, at)
        return value


def _kind(node: Any) -> str:
    return str(node.tag).removeprefix("tag:yaml.org,2002:")
