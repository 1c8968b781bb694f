"""Some of the runs: those with a value of a key, as `--only` says it."""

import json
from contextlib import suppress
from typing import Any

import pandas as pd

from lockstep.analysis.plots.series import Unfit, besides, fixed, flat, follows, known, numeric, value
from lockstep.analysis.words import count
from lockstep.analysis.written import unit
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.document import parse


def only_by(table: pd.DataFrame, by: str) -> tuple[pd.DataFrame, str]:
    """The rows with the most workers, if nothing else varies but `by`, and a note that it is they.

    Raises Unfit, with all that has to be fixed, if something else does.
    """
    said = ""
    if by != "cluster.workers" and not follows(table, [by], "cluster.workers"):
        most = table["cluster.workers"].max()
        table, said = (
            table[table["cluster.workers"] == most],
            f"With {count(most, 'worker')}, the most there are.",
        )
    if keys := besides(table, [by]):
        raise varies(table, keys)
    return table, said


def varies(table: pd.DataFrame, keys: list[str]) -> Unfit:
    """The error that keys vary which no picture can show, and what would fix all of them."""
    verb, it = ("varies", "it") if len(keys) == 1 else ("vary", "them")
    return Unfit(f"{', '.join(keys)} {verb} too; fix {it}, such as with {fixed(table, keys)}")


def only(table: pd.DataFrame, choice: str) -> pd.DataFrame:
    """The rows with KEY=VALUE: as in the table, in a scenario file ("16 MB"), or as pictures say it.

    Raises ScenarioError that lists the values if none has it.
    """
    name, equals, wanted = choice.partition("=")
    if not equals:
        raise ScenarioError(f"{choice!r} is not KEY=VALUE, such as workers=8", key="--only")
    every = flat(table)
    key = known(every, name.strip(), "--only")
    distinct = every[key].unique().tolist()
    wanted = wanted.strip()
    read = _read(wanted, key, numeric(every, key))
    chosen = [item for item in distinct if wanted in (str(item), value(every, key, item)) or _is(item, read)]
    if not chosen:
        there = ", ".join(value(every, key, item) for item in distinct)
        raise ScenarioError(f"no run has {key} {wanted!r} (values: {there})", key="--only")
    return table[every[key].isin(chosen)]


def _read(wanted: str, key: str, is_number: bool) -> Any:
    """A value as a scenario file has it, as the table has it; what cannot be read is itself."""
    if is_number and (quantity := unit(key)):
        with suppress(ValueError):
            return quantity.parse(wanted)
    try:
        found = parse(wanted, {})
    except ScenarioError:
        return wanted
    return json.dumps(found) if isinstance(found, list | dict) else found


def _is(item: Any, read: Any) -> bool:
    """Whether a value of the table is what was read; quantities but for rounding."""
    if isinstance(read, bool) or isinstance(item, bool):
        return item is read
    if isinstance(read, int | float) and isinstance(item, int | float):
        return abs(item - read) <= 1e-9 * abs(read)
    return bool(item == read)
