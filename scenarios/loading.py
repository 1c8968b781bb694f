"""From a file to a Scenario and back, with every error in the user's words and at the user's line."""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from lockstep.scenarios import profile as profiles
from lockstep.scenarios import renamed
from lockstep.scenarios.document import BYTES, DEPTH, Keys, dotted, parse, written
from lockstep.scenarios.errors import place, translated
from lockstep.scenarios.problem import ScenarioError
from lockstep.scenarios.schema import Scenario
from lockstep.scenarios.shelves import shelf, shipped
from lockstep.scenarios.sweep import Changes, combinations, parts, runs
from lockstep.scenarios.units import shown

Check = Callable[[Scenario], object]
Context = Mapping[str, Any]
AUTHOR: Context = {"folder": Path(), "author": True}
"""Of a scenario that is made in Python, whose author could have called all code that it names."""
T = TypeVar("T")
RUNS = 100_000  # of a sweep
_KEY = re.compile(r"[\w-]+(\.[\w-]+|\[\d{1,6}\])*", re.ASCII)
_OF_SWEEP = re.compile(r"sweep\b")
_OTHER_SWEEP = "the file's sweep may not suit --set: give another, --set 'sweep={…}', or none, --set sweep={}"
_SHORTHANDS = {
    "strategy": "name",
    "cluster": "preset",
    "workload": "preset",
    "cluster.servers": "count",
    "cluster.network.topology": "kind",
}
TAKEN_OVER = ("cluster.preset", "cluster.profile", "workload.preset")
"""Keys of files only: what a file says there has become part of the scenario."""


class Written(NamedTuple):
    """The text of a scenario that is in no file: what it names relatively is in `folder`."""

    text: str
    folder: Path

    def __str__(self) -> str:
        return "the text"


def load(
    source: str | Path | Written,
    overrides: Sequence[str] = (),
    check: Check | None = None,
    *,
    alone: bool = False,
    beside: bool = True,
    changed: bool = False,
) -> Scenario:
    """Return the scenario in the file `source`, in a text, or the shipped one of that name.

    `overrides` are `dotted.key=YAML` and win over the file. `check` sees the scenario and, like the schema,
    each swept value by itself; it may raise `ScenarioError(problem, key)`. `alone`: its sweep is of no use,
    and left out if it is not valid, unless overrides have made it. `beside`: code that lies beside the file
    may run (scenarios/code.py). `changed`: so may code that has changed since it was written. Raises only
    ScenarioError, with the file and line, or the override, that is to blame.
    """
    return _loaded(source, overrides, check, _itself, alone, beside, changed)


def points(
    source: str | Path | Scenario, overrides: Sequence[str] = (), check: Check | None = None
) -> tuple[Scenario, list[tuple[Changes, Scenario]]]:
    """Return the scenario as `load` does, and for each point of its sweep what changes and what it is then.

    Seeds apart: those of a point are `scenarios.seeds`. A Scenario may stand for its file, but what has been
    taken over from a preset or a profile stays as it is. Raises ScenarioError as `load` does, for
    combinations too.
    """

    def expand(
        scenario: Scenario, document: dict[str, Any], context: Context
    ) -> tuple[Scenario, list[tuple[Changes, Scenario]]]:
        if (count := runs(scenario.sweep)) > RUNS:
            raise ScenarioError(f"has {count:,} runs; at most {RUNS:,}", "sweep")
        made = []
        for changes in combinations(scenario.sweep):
            try:
                made.append((changes, _validate(_changed(document, changes, context), context, check)))
            except ScenarioError as error:
                which = ", ".join(f"{key}={shown(value)}" for key, value in changes.items())
                problem = f"{error.key}: {error.problem}" if error.key else error.problem
                raise ScenarioError(f"with {which}: {problem}", "sweep") from None
        return scenario, made

    if not isinstance(source, Scenario):
        return _loaded(source, overrides, check, expand)
    for key in {key for part in parts(source.sweep) for each in part for key in each.changes}:
        if key in TAKEN_OVER:
            raise ScenarioError("is taken over when a file is read; sweep the file", f"sweep.{key}")
    document = {key: value for key, value in _document(source).items() if key != "sweep"}
    _check_sweep(source, document, AUTHOR, check)
    return expand(source, document, AUTHOR)


class Changing(NamedTuple):
    """A scenario without its sweep, the profile that it names, and what makes it anew with keys set.

    Those win over file and overrides, and are set before presets and profiles are taken over. What is made
    raises ScenarioError, with the key.
    """

    scenario: Scenario
    profile: Path | None
    changed: Callable[[Changes], Scenario]


def changing(
    source: str | Path | Scenario, overrides: Sequence[str] = (), check: Check | None = None
) -> Changing:
    """Return the scenario as `load` does, to be changed; a Scenario may stand for its file."""

    def keep(scenario: Scenario, document: dict[str, Any], context: Context) -> Changing:
        def changed(changes: Changes) -> Scenario:
            for key in changes:
                if key in TAKEN_OVER and isinstance(source, Scenario):
                    raise ScenarioError("is taken over when a file is read; give the file", key)
            return _validate(_changed(document, changes, context), context, check)

        named = profiles.named(document, context["folder"])
        return Changing(scenario.model_copy(update={"sweep": {}}), named, changed)

    if not isinstance(source, Scenario):
        return _loaded(source, overrides, check, keep, alone=True)
    document: Any = {key: value for key, value in _document(source).items() if key != "sweep"}
    for given in overrides:
        document = _override(document, given, {})
    return keep(_validate(document, AUTHOR, check) if overrides else source, document, AUTHOR)


def value(scenario: Scenario, key: str) -> Any:
    """Return what a file would have at the dotted `key`, such as `'1.25e9 B/s'`; None if there is nothing."""
    node: Any = _document(scenario)
    for word in _keys(key):
        inside = isinstance(node, dict) and word in node
        if not (inside or (isinstance(node, list | tuple) and isinstance(word, int) and word < len(node))):
            return None
        node = node[word]
    return node


def _itself(scenario: Scenario, *_: object) -> Scenario:
    return scenario


def _loaded(
    source: str | Path | Written,
    overrides: Sequence[str],
    check: Check | None,
    then: Callable[[Scenario, dict[str, Any], Context], T],
    alone: bool = False,
    beside: bool = True,
    changed: bool = False,
) -> T:
    """What `then` makes of the scenario, its document without the sweep, and where that comes from."""
    places: dict[str, int | str] = {}  # the line, or the override, that each dotted key comes from
    try:
        path, document = _opened(source, overrides, places)
        context = {"folder": path.parent, "beside": beside, "changed": changed}
        scenario = _validate(document, context, check)
        bare = {key: value for key, value in document.items() if key != "sweep"}
        try:
            _check_sweep(scenario, bare, context, check)
            return then(scenario, bare, context)
        except ScenarioError as error:
            if any(_OF_SWEEP.match(given) for given in overrides):
                raise  # it is what was asked for
            if alone:
                return then(scenario.model_copy(update={"sweep": {}}), bare, context)
            if not overrides:
                raise
            raise ScenarioError(f"{error.problem}; {_OTHER_SWEEP}", error.key) from None
    except ScenarioError as error:
        place(error, places, str(source))
        raise


def _opened(
    source: str | Path | Written, overrides: Sequence[str], places: dict[str, int | str]
) -> tuple[Path, Any]:
    """The file, and its document with overrides; notes in `places` where each key comes from."""
    path, text = _read(source)
    places[""] = 1
    document = parse(text, places)
    if document is None:
        raise ScenarioError("the file is empty; see `quickstart` for a whole scenario")
    if isinstance(document, dict):
        document.setdefault("name", path.stem)
    for given in overrides:
        document = _override(document, given, places)
    changes = [given.partition("=")[0] for given in overrides]
    document = _fitted(document, changes, path.parent, places)
    places |= {new: places[old] for old, new in renamed.COLUMNS.items() if old in places}
    return path, document


@contextmanager
def placing(source: str | Path, overrides: Sequence[str] = ()) -> Iterator[None]:
    """Inside, what is wrong with a scenario that `load` has read is told as there: with its file and line.

    Much is known only once it runs. What is about something else, such as an option, is left as it is.
    """
    try:
        yield
    except ScenarioError as error:
        places: dict[str, int | str] = {}
        with suppress(ScenarioError):  # it has changed meanwhile
            _opened(source, overrides, places)
            if re.split(r"[.\[]", error.key, maxsplit=1)[0] in places.keys() - {""}:
                place(error, places, str(source))
        raise


def dump(scenario: Scenario) -> str:
    """Return YAML that `load` reads back as an equal scenario."""
    return written(_document(scenario), flow=False, width=1 << 30)


def override(scenario: Scenario, key: str, value: Any) -> Scenario:
    """Return `scenario` with the dotted `key` set to a YAML-like `value`, such as `'10 Gbit/s'`.

    Setting `strategy.name` keeps the strategy's other parameters. Raises ScenarioError with the key.
    What came from a preset or a profile stays as it is: for another one load the file anew.
    """
    if key in TAKEN_OVER:
        raise ScenarioError("is taken over when a file is read; give it to load as an override", key)
    return _validate(_put(_document(scenario), _keys(key), value), AUTHOR)


def _document(scenario: Scenario) -> dict[str, Any]:
    document = scenario.model_dump(exclude_none=True, by_alias=True)
    # in these two a null is a value
    return document | {"strategy": scenario.strategy.model_dump(), "sweep": scenario.sweep}


def _read(source: str | Path | Written) -> tuple[Path, str]:
    if isinstance(source, Written):
        if len(source.text.encode(errors="replace")) > BYTES:
            raise ScenarioError("over 1 MiB; a scenario is smaller")
        return source.folder / "pasted", source.text
    path, known = Path(source), shipped()
    name = str(source).removesuffix(".yaml")
    try:
        if name in known and not path.is_file():
            path = known[name]
        with path.open("rb") as file:
            content = file.read(BYTES + 1)
        if len(content) > BYTES:
            raise ScenarioError("over 1 MiB; a scenario file is smaller")
        return path, content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ScenarioError("is not UTF-8 text; save it as UTF-8", line=line) from None
    except FileNotFoundError:
        near = [other for other in known if other.endswith(f"/{name}")]
        near += difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        some = [*dict.fromkeys(near)] or [*(other for other in known if "/" not in other), "strategies/…"]
        part = next(
            (
                f"a shipped {what[:-1]} is not a scenario: give one, and --set {what[:-1]}={name}; "
                for what in ("clusters", "workloads")
                if name in shelf(what)
            ),
            "no such file; ",
        )
        raise ScenarioError(f"{part}shipped scenarios: {', '.join(some)}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"cannot be read: {reason}; give a scenario file") from None


def _override(document: Any, given: str, places: dict[str, int | str]) -> Any:
    """Return `document` changed by `given`; note in `places` what comes from it."""
    key, equals, text = given.partition("=")
    source = f"--set {given}"
    try:
        if not equals:
            raise ScenarioError("has no '='; write key=value, such as cluster.workers=8")
        document = _put(document, path := _keys(key), parse(text, {}))
    except ScenarioError as error:
        raise ScenarioError(error.problem, error.key, source) from None
    for stale in [at for at in places if at.startswith((f"{key}.", f"{key}["))]:
        del places[stale]
    for end in range(1, len(path)):  # mappings made on the way
        places.setdefault(dotted(path[:end]), source)
    places[key] = source
    return document


def _keys(key: str) -> Keys:
    if not isinstance(key, str) or not _KEY.fullmatch(key) or len(key) > 32 * DEPTH:
        raise ScenarioError(f"{shown(key)} is not a key; write one such as cluster.stragglers[0].worker")
    if key.startswith("sweep.zip."):  # the keys of these mappings are dotted themselves
        return "sweep", "zip", key.removeprefix("sweep.zip.")
    if key.startswith("sweep.") and not key.startswith("sweep.points["):
        return "sweep", key.removeprefix("sweep.")
    return tuple(int(index) if index else word for index, word in re.findall(r"\[(\d+)\]|([\w-]+)", key))


def _put(node: Any, path: Keys, value: Any, at: Keys = ()) -> Any:
    """Return `node` with `value` at `path`; shares what does not change, makes the mappings that miss."""
    if not path:
        return value
    head, rest, here = path[0], path[1:], dotted(at)
    if here in _SHORTHANDS and isinstance(node, str | int):
        node = {_SHORTHANDS[here]: node}
    if isinstance(head, int) and isinstance(node, list | tuple):
        if head >= len(node):
            raise ScenarioError(f"no such item; the list has {len(node)}", dotted((*at, head)))
        return [*node[:head], _put(node[head], rest, value, (*at, head)), *node[head + 1 :]]
    if isinstance(head, str) and (node is None or isinstance(node, dict)):
        node = node or {}
        return {**node, head: _put(node.get(head), rest, value, (*at, head))}
    raise ScenarioError(f"is {shown(node)}, which has no {dotted((head,))}; set {here} as a whole", here)


def made(document: Mapping[str, Any], check: Check | None = None) -> Scenario:
    """Return the scenario that a document says which is made in Python. Raises ScenarioError with the key."""
    return _validate(dict(document), AUTHOR, check)


def _validate(document: Any, context: Context, check: Check | None = None) -> Scenario:
    try:
        scenario = Scenario.model_validate(document, context=context)
    except ValidationError as error:
        raise translated(error, document) from None
    if check:
        check(scenario)
    return scenario


def _check_sweep(scenario: Scenario, bare: dict[str, Any], context: Context, check: Check | None) -> None:
    """Each swept value by itself, those that vary together together."""
    for part in parts(scenario.sweep):
        for changes, at in part:
            try:
                _validate(_changed(bare, changes, context), context, check)
            except ScenarioError as error:
                inner = "" if error.key in ("", *changes) else f"{error.key}: "
                where = f"sweep.{at.get(error.key, at[''])}"
                raise ScenarioError(inner + error.problem, where) from None


def _changed(document: Any, changes: Changes, context: Context) -> Any:
    """Return `document` with several dotted keys set, a section before the keys in it."""
    for key, value in sorted(changes.items(), key=lambda change: str(change[0]).count(".")):
        try:
            document = _put(document, _keys(key), value)
        except ScenarioError as error:
            raise ScenarioError(error.problem, error.key or key) from None
    names_one = "cluster.profile" in changes or "cluster" in changes
    return _fitted(document, changes, context["folder"], {}) if names_one else document


def _fitted(document: Any, changes: Collection[str], folder: Path, places: dict[str, int | str]) -> Any:
    """Return `document` with what its profile has fitted, but for keys that `changes` have set.

    They win over the file, which says where the fit began. A change of the whole cluster names the profile.
    """
    path = profiles.named(document, folder)
    if path is None:
        return document
    for key, value in profiles.fitted(path).items():
        above = {key[:end] for end in (*(at.start() for at in re.finditer(r"[.\[]", key)), len(key))}
        if above & set(changes) - {"cluster"}:
            continue
        try:
            document = _put(document, _keys(key), value)
        except ScenarioError as error:
            raise ScenarioError(error.problem, error.key or key, str(path)) from None
        places[key] = str(path)
    return document
