"""From a file to a Scenario and back, with every error in the user's words and at the user's line."""

import difflib
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML

from scenarios.document import BYTES, DEPTH, ScenarioError, dotted, parse
from scenarios.schema import Scenario
from scenarios.units import shown

Check = Callable[[Scenario], None]
_KEY = re.compile(r"[\w-]+(\.[\w-]+|\[\d{1,6}\])*", re.ASCII)
_WORDS = {
    "Input should": "must",
    "String should have at least 1 character": "must not be empty",
    "List should have at least 1 item after validation, not 0": "must have at least one item",
    "a valid integer": "a whole number",
    "a valid tuple": "a list",
    "a valid dictionary": "a mapping",
    "a valid boolean": "true or false",
    "valid ": "",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "False": "false",
}  # pydantic's words and ours
_SHORTHANDS = {"strategy": "name", "cluster.servers": "count"}


def shipped() -> dict[str, Path]:
    """Return the scenarios that come with the package: names such as `strategies/downpour`, and files."""
    folder = Path(__file__).parent
    return {
        file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.rglob("*.yaml"))
    }


def load(source: str | Path, overrides: Sequence[str] = (), check: Check | None = None) -> Scenario:
    """Return the scenario in the file `source`, or the shipped one of that name.

    `overrides` are `dotted.key=YAML` and win over the file. `check` sees the scenario and, like the schema,
    each swept value by itself; it may raise `ScenarioError(problem, key)`. Raises only ScenarioError, with
    the file and line, or the override, that is to blame.
    """
    path, text = _read(source)
    places: dict[str, str | int] = {}
    try:
        document, lines = parse(text)
        places |= lines
        if document is None:
            raise ScenarioError("the file is empty; see `quickstart` for a whole scenario")
        if isinstance(document, dict):
            document.setdefault("name", path.stem)
        for given in overrides:
            document = _override(document, given, places)
        scenario = _validate(document, path.parent, check)
        _check_sweep(scenario, document, path.parent, check)
    except ScenarioError as error:
        raise _located(error, str(source), places) from None
    return scenario


def dump(scenario: Scenario) -> str:
    """Return YAML that `load` reads back as an equal scenario."""
    text = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.allow_unicode, yaml.width = False, False, 1 << 30
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.representer.ignore_aliases = lambda _: True
    yaml.dump(_document(scenario), text)
    return text.getvalue()


def override(scenario: Scenario, key: str, value: Any) -> Scenario:
    """Return `scenario` with the dotted `key` set to a YAML-like `value`, such as `'10 Gbit/s'`.

    Setting `strategy.name` keeps the strategy's other parameters. Raises ScenarioError with the key.
    """
    return _validate(_put(_document(scenario), _path(key), value))


def _document(scenario: Scenario) -> dict[str, Any]:
    document = scenario.model_dump(exclude_none=True)
    document["strategy"] = scenario.strategy.model_dump()  # here a null is a value
    document["cluster"]["stragglers"] = list(document["cluster"]["stragglers"])
    document["sweep"] = dict(scenario.sweep)
    return document


def _read(source: str | Path) -> tuple[Path, str]:
    path, known = Path(source), shipped()
    name = str(source).removesuffix(".yaml")
    try:
        if name in known and not path.is_file():
            path = known[name]
        with path.open("rb") as file:
            content = file.read(BYTES + 1)
    except IsADirectoryError:
        raise ScenarioError("is a directory; give a scenario file", file=str(source)) from None
    except FileNotFoundError:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or list(known)
        raise ScenarioError(f"no such file; shipped scenarios: {', '.join(near)}", file=str(source)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"cannot be read: {reason}; give a scenario file", file=str(source)) from None
    if len(content) > BYTES:
        raise ScenarioError("over 1 MiB; a scenario file is smaller", file=str(source))
    try:
        return path, content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ScenarioError("is not UTF-8 text; save it as UTF-8", file=str(source), line=line) from None


def _override(document: Any, given: str, places: dict[str, str | int]) -> Any:
    """Return `document` changed by `given`; note in `places` what comes from it."""
    key, equals, text = given.partition("=")
    try:
        if not equals:
            raise ScenarioError("has no '='; write key=value, such as cluster.workers=8")
        document = _put(document, path := _path(key), parse(text)[0])
    except ScenarioError as error:
        raise ScenarioError(error.problem, error.key, f"--set {given}") from None
    for stale in [at for at in places if at.startswith((f"{key}.", f"{key}["))]:
        del places[stale]
    for end in range(1, len(path)):  # mappings made on the way
        places.setdefault(dotted(path[:end]), f"--set {given}")
    places[key] = f"--set {given}"
    return document


def _path(key: str) -> tuple[str | int, ...]:
    if not isinstance(key, str) or not _KEY.fullmatch(key) or len(key) > 32 * DEPTH:
        raise ScenarioError(f"{shown(key)} is not a key; write one such as cluster.stragglers[0].worker")
    if key.startswith("sweep."):  # the keys of this mapping are dotted themselves
        return "sweep", key.removeprefix("sweep.")
    return tuple(int(index) if index else word for index, word in re.findall(r"\[(\d+)\]|([\w-]+)", key))


def _put(node: Any, path: tuple[str | int, ...], value: Any, at: tuple[str | int, ...] = ()) -> Any:
    """Return `node` with `value` at `path`; shares what does not change, makes the mappings that miss."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if dotted(at) in _SHORTHANDS and isinstance(node, str | int):
        node = {_SHORTHANDS[dotted(at)]: node}
    if node is None and isinstance(head, str):
        node = {}
    if isinstance(head, int) and isinstance(node, list | tuple):
        if head >= len(node):
            raise ScenarioError(f"no such item; the list has {len(node)}", dotted((*at, head)))
        return [*node[:head], _put(node[head], rest, value, (*at, head)), *node[head + 1 :]]
    if isinstance(head, str) and isinstance(node, dict):
        return {**node, head: _put(node.get(head), rest, value, (*at, head))}
    raise ScenarioError(
        f"is {shown(node)}, which has no {dotted((head,))}; set {dotted(at)} as a whole", dotted(at)
    )


def _validate(document: Any, folder: Path | None = None, check: Check | None = None) -> Scenario:
    try:
        scenario = Scenario.model_validate(document, context={"folder": folder or Path()})
    except ValidationError as error:
        problems = error.errors(include_url=False)
        more = len(problems) - 1
        tail = f" (and {more} more problem{'s' * (more > 1)})" if more else ""
        problem, key = _translated(problems[0], document)
        raise ScenarioError(problem + tail, key) from None
    if check:
        check(scenario)
    return scenario


def _translated(error: Any, document: Any) -> tuple[str, str]:
    """Return a pydantic error as the problem and the key, in the words of the file."""
    path: list[str | int] = []
    node = document
    for item in error["loc"]:  # a shorthand's inner key is not in the file
        if (isinstance(node, dict) and item in node) or (isinstance(node, list) and item in range(len(node))):
            path.append(item)
            node = node[item]
    if error["type"] == "scenario":
        return error["ctx"]["problem"], dotted((*path, *error["ctx"]["path"]))
    problem = error["msg"]
    for theirs, ours in _WORDS.items():
        problem = problem.replace(theirs, ours)
    return f"{problem}, not {shown(error['input'])}", dotted(tuple(path))


def _check_sweep(scenario: Scenario, document: Any, folder: Path, check: Check | None) -> None:
    bare = {key: value for key, value in document.items() if key != "sweep"}
    for key, values in scenario.sweep.items():
        if key in ("name", "sweep") or key.startswith("sweep."):
            raise ScenarioError("cannot be swept; sweep a key such as cluster.workers", f"sweep.{key}")
        for index, value in enumerate(values):
            try:
                _validate(_put(bare, _path(key), value), folder, check)
            except ScenarioError as error:
                inner = "" if error.key in ("", key) else f"{error.key}: "
                raise ScenarioError(inner + error.problem, f"sweep.{key}[{index}]") from None


def _located(error: ScenarioError, file: str, places: dict[str, str | int]) -> ScenarioError:
    """Return `error` at the line, or the override, of its key or of the nearest key above it."""
    if error.file or error.line:
        return ScenarioError(error.problem, error.key, error.file or file, error.line)
    at = error.key
    while at and at not in places:
        at = re.sub(r"[.\[]?[^.\[]*\Z", "", at, count=1)
    place = places.get(at, 1)
    if isinstance(place, str):
        return ScenarioError(error.problem, error.key, place)
    return ScenarioError(error.problem, error.key, file, place)
