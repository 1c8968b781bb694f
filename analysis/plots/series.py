"""What of a table goes where: which key is the x axis, which tells lines apart, which makes panels.

Only runs that differ in nothing but their seed are averaged. Keys that vary besides those shown make panels.
"""

import json
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lockstep.analysis.plots.style import nth_style, plain, style
from lockstep.analysis.plots.words import METRICS, is_key, scale, words
from lockstep.analysis.table import disturbed, undisturbed
from lockstep.analysis.words import count
from lockstep.analysis.written import said
from lockstep.scenarios import TAKEN_OVER, ScenarioError
from lockstep.strategies.registry import STRATEGIES

MOST_PANELS = 6
_NOT_SWEPT = ("seed", "name")
_CAUSES = ("engine", *TAKEN_OVER)
_COUNTED = (  # "8 workers"
    *("cluster.workers", "cluster.servers.count", "parallelism.pipeline", "parallelism.tensor"),
    "parallelism.micro_batches",
)


class Unfit(ScenarioError):
    """The data cannot carry the picture: why, and what would help. A ScenarioError too."""


class Lines(NamedTuple):
    """One of several things compared: its name in the legend, its look, its rows."""

    name: str
    look: dict[str, Any]
    rows: pd.DataFrame


def ready(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows of runs that ended well, with `flat` lists; and what to note of the others."""
    table = table if table.index.is_unique else table.reset_index(drop=True)
    ended = table[table["status"] == "ok"] if "status" in table else table
    if not len(ended):
        raise Unfit("no run has ended well; see the column error" if len(table) else "there is no run")
    failed = len(table) - len(ended)
    notes = [f"{failed} of {count(len(table), 'run')} failed, not shown."] * bool(failed)
    return flat(undisturbed(ended)), " ".join([*notes, *of_disturbed(ended)])


def of_disturbed(ended: pd.DataFrame) -> list[str]:
    """What to note of runs that stayed disturbed."""
    noisy = int(disturbed(ended).sum())
    if not noisy:
        return []
    hidden = len(ended) - len(undisturbed(ended))
    shown = "" if not hidden else ", not shown" if hidden == noisy else f", {hidden} of them not shown"
    return [f"{noisy} of {count(len(ended), 'run')} stayed disturbed{shown}."]


def flat(table: pd.DataFrame) -> pd.DataFrame:
    """A list of mappings that varies as a column for each value in it: `cluster.stragglers[0].slowdown`."""
    for column in [name for name in map(str, table) if is_key(name) and _varied_mappings(table[name])]:
        lists = table[column].fillna("[]")
        new = pd.DataFrame([dict(_leaves(json.loads(text), column)) for text in lists], table.index)
        for name in map(str, new):
            if name.endswith(".slowdown"):
                new[name] = new[name].fillna(1.0)  # nobody is slow
            elif new[name].nunique() == 1:
                new[name] = new[name].dropna().iloc[0]  # of whom does not matter then
        table = pd.concat([table.drop(columns=column), new], axis=1)
    return table


def _varied_mappings(values: pd.Series) -> bool:
    """Whether values are lists, of mappings. A list of words or numbers is one value."""
    there = values.dropna()
    return bool(
        pd.api.types.is_string_dtype(there)
        and there.nunique() > 1
        and there.str.startswith("[").all()
        and there.str.startswith("[{").any()
    )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}[{number}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}")
    else:
        yield path, value


def varied(table: pd.DataFrame) -> list[str]:
    """The keys of the scenario that are not the same in all rows, but for the seed.

    The engine, and presets, come first; what follows from them alone is left out. Then comes how the model
    is split, which batches and activations may follow from.
    """
    there = [
        key
        for key in sorted(map(str, table), key=lambda name: not name.startswith("parallelism."))
        if is_key(key) and key not in _NOT_SWEPT and table[key].nunique(dropna=False) > 1
    ]
    causes = [key for key in _CAUSES if key in there]
    if not causes:
        return there
    return [*causes, *(key for key in there if key not in causes and not follows(table, causes, key))]


def besides(table: pd.DataFrame, shown: Sequence[str]) -> list[str]:
    """The keys that vary where all of `shown` are the same; none that follows from others of them."""
    found: list[str] = []
    for key in varied(table):
        if not follows(table, [*shown, *found], key):
            found.append(key)
    return found


def numeric(table: pd.DataFrame, key: str) -> bool:
    """Whether the values of a key are numbers."""
    values = table[key].dropna()
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def numbers(table: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    """Of the keys those whose values are numbers: the workers, and then what has most values."""
    found = [key for key in keys if numeric(table, key)]
    return sorted(found, key=lambda key: (key != "cluster.workers", -table[key].nunique()))


def known(table: pd.DataFrame, name: str, option: str) -> str:
    """The column that `name` means: a key, or the end of one such as "workers"; of --y, a metric.

    Raises ScenarioError, in the name of the `option`, that lists what there is.
    """
    metrics = [column for column in table if column in METRICS]
    columns = metrics if option == "--y" else [str(column) for column in table if is_key(str(column))]
    if name in columns:
        return name
    ends = [column for column in columns if column.endswith(f".{name}") or words(column) == name]
    if len(ends) == 1:
        return ends[0]
    if len(ends) > 1:
        raise ScenarioError(f"{name!r} may be {' or '.join(ends)}; say which", key=option)
    what, there = ("metric", metrics) if option == "--y" else ("key", varied(table) or columns)
    near = get_close_matches(name, columns, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    which = "keys that vary" if what == "key" and varied(table) else f"{what}s"
    raise ScenarioError(f"no {what} {name!r}{hint} ({which}: {', '.join(map(str, there))})", key=option)


def axes(table: pd.DataFrame, x: str | None, by: str | None) -> tuple[str | None, str]:
    """The keys of the x axis and of the lines: as given, or what suits the keys that vary.

    The x axis: the workers, or else the number with most values; None if no number varies. Lines: the
    strategies, or else the first other key that varies.
    """
    by = by and known(table, by, "--by")
    x = x and known(table, x, "--x")
    there = varied(table)
    if by is None:
        wanted = x or next(iter(numbers(table, there)), None)
        free = [key for key in there if wanted is None or not follows(table, [wanted], key)]
        others = ["strategy.name", *(key for key in there if not numeric(table, key)), *free]
        by = next((key for key in others if key in there and key != wanted), "strategy.name")
    if x is None:
        free = [key for key in there if key != by and not follows(table, [by], key)]
        x = next(iter(numbers(table, free)), None)
    return x, by


def apart(table: pd.DataFrame, by: str | None) -> str:
    """The key that tells things apart without an x axis: as given, or what suits the keys that vary."""
    found = axes(table, None, by)[1]
    others = [key for key in varied(table) if key != "cluster.workers"]
    return others[0] if others and by is None and found not in others else found


def follows(table: pd.DataFrame, keys: Sequence[str], key: str) -> bool:
    """Whether a key has one value only wherever `keys` have the same."""
    if not keys:
        return bool(table[key].nunique(dropna=False) == 1)
    return bool((table.groupby(list(keys), dropna=False)[key].nunique(dropna=False) == 1).all())


def panels(table: pd.DataFrame, shown: Sequence[str | None]) -> list[tuple[str, pd.DataFrame]]:
    """The table in as many parts as it takes for no key to vary but those `shown`: (title, rows).

    Raises Unfit for more than six.
    """
    keys = besides(table, list(dict.fromkeys(key for key in shown if key is not None)))
    if not keys:
        return [("", table)]
    parts = list(table.groupby(keys, dropna=False))
    if "strategy.name" in keys:
        at = keys.index("strategy.name")
        parts.sort(key=lambda part: place(str(part[0][at])))
    if "engine" in keys:
        parts.sort(key=lambda part: str(part[0][0]), reverse=True)  # the simulator's first
    if len(parts) > MOST_PANELS:
        raise Unfit(f"{len(parts)} pictures would be needed, for {' × '.join(keys)} varies too; "
                    f"fix some, such as with {fixed(table, keys)}, or show one with --x or --by")  # fmt: skip
    titled = []
    for values, rows in parts:
        names = [named(table, k, v) for k, v in zip(keys, values, strict=True)]
        titled.append((", ".join(names), rows))
    return titled


def lines(table: pd.DataFrame, by: str) -> list[Lines]:
    """The rows of each value of a key, in an order that does not depend on that of the rows."""
    distinct = table[by].unique().tolist()
    if by == "strategy.name":
        order = sorted(distinct, key=place)
        return [Lines(name, style(name), table[table[by] == name]) for name in order]
    order = (
        sorted(distinct, key=lambda v: (isinstance(v, str), v != v, v)) if None not in distinct else distinct
    )
    found = []
    for number, item in enumerate(order):
        rows = table[table[by].isna()] if pd.isna(item) else table[table[by] == item]
        found.append(Lines(named(table, by, item), nth_style(number), rows))
    return found


def within(each: Lines, rows: pd.DataFrame) -> pd.DataFrame:
    """Those of a line's rows that are among a panel's."""
    return each.rows[each.rows.index.isin(rows.index)]


def place(strategy: str) -> tuple[int, str]:
    """What strategies are ordered by: as in `lockstep strategies`, and then the unknown by name."""
    known = [*STRATEGIES]
    return (known.index(strategy) if strategy in STRATEGIES else len(known)), strategy


def named(table: pd.DataFrame, key: str, item: Any) -> str:
    """A key and its value: "bandwidth 100 Mbit/s", "8 workers"; of a strategy or a preset its name."""
    said = value(table, key, item)
    if key in _COUNTED:
        many, *more = words(key).split()
        one = many.removesuffix("es" if many.endswith("ches") else "s")
        return " ".join([said, many if item != 1 else one, *more])
    return said if key in (*_CAUSES, "strategy.name") else f"{words(key)} {said}"


def value(table: pd.DataFrame, key: str, item: Any) -> str:
    """A value of a key as it is read: "100 Mbit/s", "[tensor, data, pipeline]"."""
    if key == "engine":
        return {"simulator": "predicted", "executor": "measured"}.get(item, str(item))
    if isinstance(item, bool | np.bool_):
        return "yes" if item else "no"
    if item is None or item != item:
        return "not set"
    if not numeric(table, key):
        return said(item, key)
    its = scale(key, [item])
    return f"{plain(item * its.factor)} {its.unit}".rstrip()


def titles(table: pd.DataFrame) -> list[str]:
    """What to call each scenario, a row of the table: "ssp, 8 workers", and in what those alike differ."""
    table = flat(table)
    differ = besides(table, ["engine", "strategy.name", "cluster.workers"])
    return [
        ", ".join([
            str(row["strategy.name"]),
            count(row["cluster.workers"], "worker"),
            *(named(table, key, row[key]) for key in differ),
        ])
        for row in table.to_dict("records")
    ]  # fmt: skip


def once(texts: Sequence[str]) -> str:
    """Texts as one, each said once; nothing for none."""
    return "\n".join(dict.fromkeys(filter(None, texts)))


def fixed(table: pd.DataFrame, keys: Sequence[str]) -> str:
    """The options that fix keys, each at its first value: "--only cluster.workers=4 --only seed=1"."""
    chosen = [
        f"{key}={'simulator' if key == 'engine' else value(table, key, table[key].iloc[0])}" for key in keys
    ]
    return " ".join(f"--only {quote(each)}" for each in chosen)
