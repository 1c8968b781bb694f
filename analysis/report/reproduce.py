"""The command that makes a row of a table again."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from lockstep.analysis.table import keys
from lockstep.analysis.written import kinds, written
from lockstep.scenarios import TAKEN_OVER, Scenario

_WORD = re.compile(r"(?!(null|true|false|yes|no|on|off)$)[A-Za-z][\w.-]*", re.ASCII)


def command(engine: str, file: str, scenario: Scenario, row: Mapping[str, Any]) -> str:
    """The command for the run of `row`, whose scenario is that in `file` but for some keys.

    `row` has a value for each key of its scenario, as `analysis.table.keys` names them.
    """
    verb = "simulate" if engine == "simulator" else "run"
    sets = [f"--set {shlex.quote(setting)}" for setting in settings(scenario, row)]
    return " ".join(["lockstep", verb, shlex.quote(file), *sets])


def settings(scenario: Scenario, row: Mapping[str, Any]) -> list[str]:
    """What --set has to say ("cluster.workers=8") so that `scenario` becomes that of the row."""
    have = {key: value for key, value in keys(scenario).items() if is_key(key)}
    want = {key: value for key, value in row.items() if is_key(key) and value is not None and value == value}
    found = {key: want[key] for key in want if key not in have or have[key] != want[key]}
    for gone in have.keys() - want.keys():
        found |= _without(gone, want)
    sections = [key for key in found if isinstance(found[key], dict)]
    found = {key: value for key, value in found.items() if not any(key.startswith(f"{s}.") for s in sections)}
    order = {key: place for place, key in enumerate((*have, *want))}
    ordered = sorted(found, key=lambda key: (key not in sections, order.get(key, 0), key))
    return [f"{key}={_yaml(written(found[key], key))}" for key in ordered]


def _without(key: str, want: Mapping[str, Any]) -> dict[str, Any]:
    """What to set so that a key is not there any more: itself, or a section that it is in."""
    while key:
        rest = [other for other in want if other == key or other.startswith(f"{key}.")]
        if key in rest:
            return {key: want[key]}
        if rest:
            return {key: _nested(want, f"{key}.")}
        if type(None) in kinds(key):
            return {key: None}
        key = key.rpartition(".")[0]
    return {}


def is_key(column: str) -> bool:
    """Whether a column of a table of runs is a key of the scenario, not only of its file."""
    if column in TAKEN_OVER:
        return False
    sections = ("cluster.", "workload.", "parallelism.", "strategy.", "stop.")
    return column == "seed" or column.startswith(sections)


def _nested(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The keys below a prefix as nested mappings."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        if key.startswith(prefix):
            place = found
            *path, last = key.removeprefix(prefix).split(".")
            for word in path:
                place = place.setdefault(word, {})
            place[last] = value
    return found


def _yaml(value: Any) -> str:
    """A value in YAML's flow style, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, str) and (_WORD.fullmatch(value) or re.fullmatch(r"[\d.e+-]+ [A-Za-z/]+", value)):
        return value
    return json.dumps(value)
