"""The tables of a report, as rows of cells that know what they are sorted by."""

import json
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import pandas as pd

from lockstep.analysis.bottleneck import of_row
from lockstep.analysis.bottleneck_words import sentence
from lockstep.analysis.memory import told
from lockstep.analysis.report.points import Estimate, Point, phrase, title
from lockstep.analysis.words import NOTHING, aim, number, percent, size
from lockstep.analysis.written import said

_PARTS = {"compute": "computing", "update": "own updates", "network": "network", "wait": "waiting"}
_NAMES = {"strategy.name": "Strategy", "cluster.workers": "Workers", "engine": "By", "seed": "Seed"}


class Cell(NamedTuple):
    """A text, and the number it is sorted by; None: by the text."""

    text: str
    order: float | None = None
    kind: str = ""
    """ "words" for a sentence, "command" for a command, "bad" for what is wrong."""


class Table(NamedTuple):
    """A caption, column heads, and rows of as many cells; `numeric` columns are set to the right."""

    caption: str
    head: list[str]
    numeric: list[bool]
    rows: list[list[Cell]]


def of_points(points: Sequence[Point], target: str | None, which: str = "") -> Table:
    """A row a point, in the order given; `which` points they are, if there are others."""
    reaches = "to the target (s)" if target is None else f"to {target.removesuffix(' accuracy')} (s)"
    metrics: list[tuple[str, str, float]] = [
        (f"Time {reaches}", "time_to_target_s", 1),
        ("Samples/s", "throughput", 1),
        ("Speedup", "speedup", 1),
        ("Mean staleness", "staleness.mean", 1),
        ("Accuracy (%)", "accuracy", 100),
        ("USD to the target", "cost_to_target", 1),
        ("USD a million samples", "cost_of_million", 1),
    ]
    metrics = [item for item in metrics if any(point.metrics[item[1]].runs for point in points)]
    if "accuracy" not in (item[1] for item in metrics) and any(
        point.metrics["loss"].runs for point in points
    ):
        metrics.append(("Held-out loss", "loss", 1))  # of a problem that has no accuracy
    memory = any(point.metrics["memory_bytes"].runs and told(point.runs.iloc[0]) for point in points)
    first, others = metrics[:1], metrics[1:]
    keys = list(points[0].settings)
    last = ["Memory of a device", "Runs"] if memory else ["Runs"]
    head = [*map(name, keys), *(f[0] for f in first), "Bottleneck", *(f[0] for f in others), *last]
    rows = [
        [
            *(_setting(key, point.settings[key]) for key in keys),
            *(_estimate(point, metric, times) for _, metric, times in first),
            Cell(sentence(point.bottleneck) or NOTHING, kind="words"),
            *(_estimate(point, metric, times) for _, metric, times in others),
            *([_bytes(point.metrics["memory_bytes"].mean)] if memory else []),
            Cell(_runs(point), len(point.runs)),
        ]
        for point in points
    ]
    caption = f"{which}: points, the best first" if which else "Points, the best first"
    return Table(caption, head, [_numeric(rows, place) for place in range(len(head))], rows)


def _runs(point: Point) -> str:
    others = {"failed": point.failed, "disturbed": point.noisy}
    made = f"{len(point.runs)}{' disturbed' * point.disturbed}"
    return " + ".join([made, *(f"{n} {what}" for what, n in others.items() if n)])


def of_runs(runs: pd.DataFrame, keys: Sequence[str]) -> Table:
    """A row a run, with the command that makes it again."""
    shown = [key for key in (*keys, "seed") if key in runs]
    metrics: list[tuple[str, str]] = [
        ("Time to target (s)", "time_to_target_s"),
        ("Samples/s", "throughput"),
        ("Duration (s)", "duration_s"),
        ("Mean staleness", "staleness.mean"),
        ("Held-out loss", "loss"),
        ("Accuracy", "accuracy"),
    ]
    metrics = [(head, metric) for head, metric in metrics if metric in runs and runs[metric].notna().any()]
    rows = []
    for row in runs.to_dict("records"):
        shown_metrics = [_number(row[metric]) for _, metric in metrics]
        command = Cell(row["command"], kind="command")
        rows.append([*(_setting(key, row[key]) for key in shown), *shown_metrics, command])
    head = [*map(name, shown), *(head for head, _ in metrics), "Command"]
    return Table("Runs, and the command for each", head, [_numeric(rows, i) for i in range(len(head))], rows)


def of_comparisons(comparisons: Sequence[Mapping[str, Any]]) -> Table:
    """A row a strategy: predicted, measured, error."""
    metrics: dict[str, tuple[str, Callable[[Mapping[str, Any]], float | None]]] = {
        "Samples/s": ("throughput", lambda m: m["throughput"]),
        "Mean staleness": ("staleness_mean", lambda m: m["staleness"]["mean"]),
        "Held-out loss": ("loss", lambda m: m["loss"]),
        "Time to target (s)": ("time_to_target_s", lambda m: m["time_to_target_s"]),
    }
    known = {
        name: (error, value)
        for name, (error, value) in metrics.items()
        if any(value(c[side]) is not None for c in comparisons for side in ("predicted", "measured"))
    }
    head = ["Strategy", "Workers"]
    for name in known:
        head += [f"{name}, predicted", "measured", "error"]
    head.append("Bottleneck, as predicted")
    rows = []
    for c in comparisons:
        strategy = c["measured"]["strategy"] + " (disturbed)" * bool(c["measured"].get("disturbed"))
        row = [Cell(strategy), Cell(str(c["measured"]["workers"]), c["measured"]["workers"])]
        for error, value in known.values():
            row += [_number(value(c["predicted"])), _number(value(c["measured"]))]
            row.append(Cell(percent(c["error"][error], sign=True), _order(c["error"][error])))
        rows.append([*row, Cell(c["predicted"]["bottleneck"] or NOTHING, kind="words")])
    numeric = [_numeric(rows, place) for place in range(len(head))]
    return Table("Predicted and measured", head, numeric, rows)


def of_one(row: Mapping[str, Any] | pd.Series) -> list[tuple[str, str]]:
    """The metrics of one run, in words and units."""
    stale = {key: number(row.get(f"staleness.{key}")) for key in ("mean", "p50", "p99", "max")}
    parts = {
        name: percent(row[f"breakdown.{part}"])
        for part, name in _PARTS.items()
        if part != "update" or row.get("breakdown.update")
    }
    wanted = row.get("stop.target_accuracy"), row.get("stop.target.at_least"), row.get("stop.target.at_most")
    found = [value for value in wanted if value is not None and value == value]
    metrics = {
        "Time to target": "" if not found
        else f"{number(row['time_to_target_s'], 's', 'not reached')} "
        f"(to {aim(row.get('stop.target.metric'), found[0])})",
        "Duration": number(row["duration_s"], "s"),
        "Throughput": number(row["throughput"], "samples/s"),
        "Speedup": f"{number(row['speedup'])} (efficiency {percent(row['efficiency'])})",
        "Updates": f"{row['updates']:,} ({number(row['updates_per_s'])}/s)",
        "Staleness": "" if stale["mean"] == NOTHING
        else "mean {mean}, median {p50}, 99th percentile {p99}, maximum {max} versions".format(**stale),
        "Mean worker's time": ", ".join(f"{name} {share}" for name, share in parts.items()),
        "Bottleneck": sentence(of_row(row)) or NOTHING,
        "Dropped": f"{row['dropped']:,} mini-batches" if row["dropped"] else "",
        "Sent": size(row["bytes_sent"]),
        "Memory": f"{size(row['memory_bytes'])} at most on a device" if told(row) else "",
        "Held-out loss": "" if row["loss"] is None else number(row["loss"]),
        "Accuracy": "" if row["accuracy"] is None else percent(row["accuracy"]),
    }  # fmt: skip
    return [(key, text) for key, text in metrics.items() if text]


def warnings(points: Sequence[Point]) -> dict[str, list[str]]:
    """What runs warn of, and which points they are of."""
    found: dict[str, list[str]] = {}
    for point in points:
        said = point.runs.get("warnings", ())  # no column where all runs failed
        texts = dict.fromkeys(text for each in said if each for text in json.loads(each))
        for text in texts:
            found.setdefault(text, []).append(point.name)
    return found


def failures(runs: pd.DataFrame, keys: Sequence[str]) -> Table | None:
    """A row a run that failed."""
    failed = runs[runs["status"] != "ok"]
    if failed.empty:
        return None
    shown = [key for key in (*keys, "seed") if key in failed]
    rows = [
        [*(_setting(key, row[key]) for key in shown), Cell(str(row["error"] or row["status"]), kind="words")]
        for row in failed.to_dict("records")
    ]
    head = [*map(name, shown), "Error"]
    return Table("Runs that failed", head, [_numeric(rows, place) for place in range(len(head))], rows)


def name(key: str) -> str:
    """The head of a key's column."""
    words = title(key)
    return _NAMES.get(key, words[:1].upper() + words[1:])


def _setting(key: str, value: Any) -> Cell:
    if value is None or value != value:
        return Cell(NOTHING)
    order = float(value) if isinstance(value, Real) and not isinstance(value, bool) else None
    if key == "engine":
        return Cell(phrase(key, value))
    return Cell(said(value, key), order)


def _estimate(point: Point, metric: str, times: float) -> Cell:
    estimate: Estimate = point.metrics[metric]
    if estimate.mean is None:
        missed = metric == "time_to_target_s" and len(point.runs)
        return Cell("not reached" if missed else NOTHING)
    text = estimate.text(times=times)
    if metric == "time_to_target_s" and point.missed(metric):
        text += f" ({estimate.runs} of {len(point.runs)})"
    return Cell(text, estimate.mean)


def _bytes(value: float | None) -> Cell:
    return Cell(NOTHING if value is None else size(value), value)


def _number(value: float | None) -> Cell:
    return Cell(number(None if value is None or value != value else float(value)), _order(value))


def _order(value: float | None) -> float | None:
    return None if value is None or value != value else float(value)


def _numeric(rows: Sequence[Sequence[Cell]], place: int) -> bool:
    return any(row[place].order is not None for row in rows)
