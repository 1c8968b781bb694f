"""A sweep on the terminal: its points with means and 95% intervals, and the best."""

import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from lockstep import terminal
from lockstep.analysis.bottleneck import typical
from lockstep.analysis.bottleneck_words import in_short
from lockstep.analysis.table import disturbed, intervals, undisturbed
from lockstep.analysis.words import NOTHING, count, number
from lockstep.sweeping.points import Plan
from lockstep.sweeping.sweep import Swept

_ROWS = 100  # of a table that is still read
_WARNINGS = 5
_METRICS = {"throughput": "samples/s", "speedup": "speedup", "staleness.mean": "mean staleness"}
# Of runs in which something fails.
_LOSSES = {
    "lost_samples": "lost samples",
    "time_to_recover_s": "s to recover",
    "availability": "availability",
}
_FEWER = ("s to recover", "availability")
# What to leave out until the table fits a terminal; at last as with the narrowest, and cells are broken.
_TOO_WIDE: tuple[tuple[str, ...], ...] = (
    *((), _FEWER, (*_FEWER, "speedup"), (*_FEWER, "bottleneck"), (*_FEWER, "speedup", "bottleneck")),
    (*_FEWER, "speedup", "bottleneck", "mean staleness"),
)
_ENDS = {"time_to_target_s": "s to target", "loss": "held-out loss"}  # the first of them that is there
_COSTS = {"cost_to_target": "USD to target", "cost_of_million": "USD a million"}  # likewise


def show(plan: Plan, swept: Swept, out: Path | None) -> None:
    """Print the points, what failed, the best of them, and where everything is."""
    table = swept.table
    ended = table[table["status"] == "ok"]
    good, noisy = undisturbed(ended), disturbed(ended)
    if "goodput" in good:  # of a machine that fails: what was lost again does not count
        good = good.assign(throughput=good["goodput"].fillna(good["throughput"]))
    fails = "failures" in good and good["failures"].fillna(0).any()
    chosen = [*_METRICS, *(_LOSSES if fails else ()), *_first(good, _ENDS), *_first(good, _COSTS)]
    shown = {name: title for name, title in (_METRICS | _LOSSES | _ENDS | _COSTS).items() if name in chosen}
    if "goodput" in good:
        shown["throughput"] = "goodput samples/s"
    found = {name: _by_point(good, name) for name in shown if name in good}
    labels = {key: [_label(changes, key) for changes in plan.points] for key in plan.swept}
    labels = {key: texts for key, texts in labels.items() if len(set(texts)) > 1}
    points = table["point"].drop_duplicates().tolist()
    runs = good.groupby("point").size()
    loud = {*ended["point"]} - {*ended["point"][~noisy]}  # all whose runs stayed disturbed
    quiet = {name: {p: row for p, row in rows.items() if p not in loud} for name, rows in found.items()}
    best = _best(quiet, runs)
    columns = {"point": [f"{point}{' (disturbed)' * (point in loud)}" for point in points]}
    heads = _heads([*labels])
    columns |= {heads[key]: [texts[point] for point in points] for key, texts in labels.items()}
    made = [int(runs.get(point, 0)) for point in points]
    if len(set(made)) > 1:
        columns["runs"] = [str(each) for each in made]
    for name in found:
        columns[shown[name]] = [_estimate(found[name].get(point), runs.get(point, 0)) for point in points]
    limits = {point: in_short(typical(rows)) for point, rows in good.groupby("point")}
    columns["bottleneck"] = [limits.get(point, NOTHING) for point in points]
    title = plan.scenario.name
    if max(made) > 1:
        of = f" of {made[0]} runs" if len(set(made)) == 1 else ""
        title += f": means and 95% intervals{of}"
    in_bold = points.index(best[0]) if best else None
    for without in _TOO_WIDE:
        some = {name: texts[:_ROWS] for name, texts in columns.items() if name not in without}
        drawn = _drawn(title, some, ("point", *heads.values(), "bottleneck"), in_bold)
        if terminal.narrow_enough(drawn):
            break
    terminal.show_table(drawn)
    if missing := [name for name in without if name in columns]:
        print(f"Not shown for want of width: {', '.join(missing)}.")
    if len(points) > _ROWS:
        print(f"and {count(len(points) - _ROWS, 'more point')}.")
    if best:
        _say_best(best, {key: texts[best[0]] for key, texts in labels.items()})
        _say_who_learns_more(best, quiet.get("loss", {}))
    if "throughput" in found and _seeds_change_nothing(found["throughput"]):
        print("The seed changes nothing: there is no chance in these scenarios, and one would have done.")
    if swept.failed:
        first = table[table["status"] == "failed"].iloc[0]
        about = f"the first, of point {first['point']}: {first['error']}"
        print(f"{swept.failed} of {count(len(table), 'run')} failed; {about}")
    if noisy.any():
        where = _some(ended["point"][noisy].drop_duplicates().tolist())
        counts = ", and count in no mean of a point that has others" * (len(good) < len(ended))
        print(f"{noisy.sum()} of {count(len(table), 'run')} stayed disturbed{counts}: {where}.")
    if "warnings" in ended:
        _warn(ended)
    if out is not None:
        print(f"Written to {out}: results.parquet, scenario.yaml.")


def _first(table: pd.DataFrame, names: Iterable[str]) -> list[str]:
    """The first of the metrics that some run has."""
    return [name for name in names if name in table and table[name].notna().any()][:1]


def _heads(keys: Sequence[str]) -> dict[str, str]:
    """Keys as heads of columns: their last words, or all of them where that is not enough."""
    short = {key: key.removesuffix(".name").rpartition(".")[2].replace("_", " ") for key in keys}
    return {key: head if [*short.values()].count(head) == 1 else key for key, head in short.items()}


def _drawn(title: str, columns: Mapping[str, list[str]], words: Collection[str], bold: int | None) -> Table:
    """The columns as a table, all but `words` to the right, a row in bold."""
    drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    drawn.pad_edge = drawn.show_edge = False
    for name in columns:
        is_number = name not in words
        drawn.add_column(name.replace(" ", "\n"), justify="right" if is_number else "left", no_wrap=is_number)
    for place, row in enumerate(zip(*columns.values(), strict=True)):
        drawn.add_row(*row, style="bold" if place == bold else None)
    return drawn


def _by_point(table: pd.DataFrame, metric: str) -> dict[Any, Mapping[Any, Any]]:
    """Mean, low, high and runs of a metric, by point."""
    return {row["point"]: row for row in intervals(table, ["point"], metric).to_dict("records")}


def _seeds_change_nothing(rows: Mapping[Any, Mapping[Any, Any]]) -> bool:
    several = [row for row in rows.values() if row["runs"] > 1]
    return bool(several) and all(row["low"] == row["high"] for row in several)


def _best(
    found: Mapping[str, Mapping[Any, Mapping[Any, Any]]], runs: "pd.Series[int]"
) -> tuple[Any, str, Mapping[Any, Any], list[Any]] | None:
    """The best point, in which metric, its row, and the points whose intervals overlap with its.

    By the time to the target, if any point reaches it with all seeds; by throughput otherwise.
    """
    times = {p: row for p, row in found.get("time_to_target_s", {}).items() if row["runs"] == runs[p]}
    rows, sign = (times, 1) if times else (found.get("throughput", {}), -1)
    if len(rows) < 2:
        return None
    point = min(rows, key=lambda p: sign * rows[p]["mean"])
    row = rows[point]
    near = [p for p in rows if p != point and rows[p]["low"] <= row["high"] and rows[p]["high"] >= row["low"]]
    return point, "s to the target" if times else "samples/s", row, near


def _say_best(best: tuple[Any, str, Mapping[Any, Any], list[Any]], labels: Mapping[str, str]) -> None:
    point, metric, row, near = best
    what = ", ".join(f"{key}={label}" for key, label in labels.items())
    text = f"Best: point {point} ({what}), {_estimate(row, row['runs'])} {metric}."
    if near:
        text += f" Within the intervals as good: {_some(near)}."
    print(text)


def _say_who_learns_more(
    best: tuple[Any, str, Mapping[Any, Any], list[Any]], losses: Mapping[Any, Mapping[Any, Any]]
) -> None:
    """The point with the least loss, if it is not the fastest one: throughput counts samples only."""
    if best[1] != "samples/s" or best[0] not in losses:
        return
    own, point = losses[best[0]], min(losses, key=lambda p: losses[p]["mean"])
    if losses[point]["high"] < own["low"] or (own["runs"] < 2 and losses[point]["mean"] < own["mean"]):
        least, its = (_estimate(row, row["runs"]) for row in (losses[point], own))
        print(
            f"It learns less in these runs: its held-out loss is {its}, that of point {point} {least}. "
            "With a target in stop the best is who reaches it first."
        )


def _warn(table: pd.DataFrame) -> None:
    """Say what runs warn of, each thing once with the points that it is about."""
    found: dict[str, dict[Any, None]] = {}
    for point, said in zip(table["point"], table["warnings"], strict=True):
        for text in json.loads(said):
            found.setdefault(text, {})[point] = None
    for text, points in list(found.items())[:_WARNINGS]:
        print(f"warning: {_some([*points])}: {text}", file=sys.stderr)
    if len(found) > _WARNINGS:
        print(f"and {len(found) - _WARNINGS} more; the column 'warnings' has them all.", file=sys.stderr)


def _some(points: list[Any]) -> str:
    first = ", ".join(map(str, points[:8])) + (", …" if len(points) > 8 else "")
    return f"{'point' if len(points) == 1 else 'points'} {first}"


def _estimate(row: Mapping[Any, Any] | None, runs: int) -> str:
    """`12.3 ± 0.4`, and of how many runs if not all have the metric."""
    if row is None:
        return number(None)
    text = number(row["mean"])
    if row["runs"] > 1:
        text += f" ± {_two_digits(row['high'] - row['mean'])}"
    return text if row["runs"] == runs else f"{text} ({row['runs']} of {runs})"


def _two_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _label(changes: Mapping[str, Any], key: str) -> str:
    """A swept value as the file has it."""
    value = changes.get(key, number(None))
    return value if isinstance(value, str) else json.dumps(value)
