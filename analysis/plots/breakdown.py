"""What workers do with their time: computing, own updates, in the network, waiting for others."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from lockstep.analysis.plots import activities, style
from lockstep.analysis.plots.series import Lines, Unfit, apart, lines, once, panels, ready, varied, within
from lockstep.analysis.plots.style import styled
from lockstep.analysis.table import intervals

# Hatches tell apart what is alike in grey.
_PARTS: dict[str, dict[str, Any]] = {
    "computing": {"facecolor": activities.COMPUTING},
    "own updates": {"facecolor": activities.UPDATE},
    "sending": {"facecolor": activities.SENDING, "hatch": "xxxx", "edgecolor": "white"},
    "network": {"facecolor": activities.RECEIVING, "hatch": "////", "edgecolor": "white"},
    "waiting for others": {"facecolor": activities.WAITING},
}
NAMES = {
    "compute": "computing",
    "update": "own updates",
    "send": "sending",
    "network": "network",
    "wait": "waiting for others",
}
_BARS = "Bars: 95% intervals over seeds of where parts end."
_MOST_WORKERS = 64
_VISIBLE = 0.3  # percent


@styled
def breakdown(table: pd.DataFrame, by: str | None = None) -> Figure:
    """Shares of the mean worker's time: a bar for each strategy, or value of `by`.

    Of a single scenario, a bar for each worker.
    """
    table, failed = ready(table)
    table = table[table["breakdown.compute"].notna()]
    if not len(table):
        raise Unfit("no run has a breakdown")
    if by is None and not varied(table) and table["cluster.workers"].iloc[0] <= _MOST_WORKERS:
        whole, notes = _by_worker(table)
    else:
        whole, notes = _by_key(_sending_apart(table), apart(table, by))
    style.note(whole, once([*notes, failed]))
    return whole


def _sending_apart(table: pd.DataFrame) -> pd.DataFrame:
    """With what the mean worker sends as a column of its own: in the table it is part of the network."""
    runs = [json.loads(text) for text in table["breakdown_by_worker"]]
    if not all("send" in run for run in runs):
        return table
    send = np.array([np.mean(run["send"]) for run in runs])
    network = (table["breakdown.network"] - send).clip(lower=0.0)
    return table.assign(**{"breakdown.send": send, "breakdown.network": network})


def _by_key(table: pd.DataFrame, by: str) -> tuple[Figure, list[str]]:
    parts = panels(table, [by])
    compared = lines(table, by)
    count = len(compared)
    whole, all_axes = style.grid(len(parts), height=0.7 + 0.19 * count)
    notes = []
    columns = {part: f"breakdown.{part}" for part in NAMES}
    names = _shown({part: table[name] for part, name in columns.items() if name in table})
    finding = _finding(compared) if len(parts) == 1 else ""
    style.title(whole, all_axes, [title or finding for title, _ in parts])
    for ax, (_, rows) in zip(all_axes, parts, strict=True):
        for number, each in enumerate(compared):
            notes += _bar(ax, number, within(each, rows)[[columns[part] for part in names]], names)
        _finish(ax, [each.name for each in compared], count, "the mean worker's")
    _legend(whole, names)
    style.make_room(whole, all_axes, 0.19 * count)
    return whole, notes


def _finding(compared: Sequence[Lines]) -> str:
    """Who computes least and most."""
    shares = {each.name: 100 * each.rows["breakdown.compute"].mean() for each in compared}
    if len(shares) == 1:
        return "; ".join(f"{name} computes {share:.0f}% of the time" for name, share in shares.items())
    (least, low), *_, (most, high) = sorted(shares.items(), key=lambda item: item[1])
    return f"{least} computes {low:.0f}% of the time, {most} {high:.0f}%"


def _by_worker(table: pd.DataFrame) -> tuple[Figure, list[str]]:
    runs = [json.loads(text) for text in table["breakdown_by_worker"]]
    workers = int(table["cluster.workers"].iloc[0])
    whole, (ax,) = style.grid(1, height=0.7 + (0.19 if workers <= 16 else 0.13) * workers)
    notes = []
    names = _shown({part: [max(run[part]) for run in runs] for part in NAMES if part in runs[0]})
    for worker in range(workers):
        rows = pd.DataFrame([{part: run[part][worker] for part in names} for run in runs])
        notes += _bar(ax, worker, rows, names)
    _finish(ax, [f"worker {worker}" for worker in range(workers)], workers, "each worker's")
    _legend(whole, names)
    return whole, notes


def _shown(shares: Mapping[str, Iterable[float]]) -> dict[str, str]:
    """The parts that are drawn: sending and own updates only where somebody does any."""
    return {
        part: name
        for part, name in NAMES.items()
        if part in shares and (part not in ("send", "update") or any(share > 0 for share in shares[part]))
    }


def _bar(ax: Axes, number: int, rows: pd.DataFrame, parts: dict[str, str]) -> list[str]:
    """One stacked bar (%), with the interval of where each part but the last ends; none without runs."""
    if rows.empty:
        return []
    ends = 100 * rows.cumsum(axis=1)
    left = 0.0
    for column, name in zip(ends, parts.values(), strict=True):
        found = intervals(ends.assign(all=0), ["all"], str(column)).iloc[0]
        ax.barh(number, found["mean"] - left, 0.72, left, linewidth=0, **_PARTS[name])
        if len(rows) > 1 and column != ends.columns[-1]:
            half = found["high"] - found["mean"]
            half = half if half > _VISIBLE else np.nan
            ax.errorbar(found["mean"], number, xerr=half, fmt="none", ecolor="black", elinewidth=0.8)
        left = found["mean"]
    return [_BARS] * (len(rows) > 1)


def _finish(ax: Axes, names: Sequence[str], count: int, whose: str) -> None:
    ax.set_yticks(np.arange(len(names)), names)
    ax.set_ylim(count - 0.4, -0.6)
    ax.set_xlim(0, 100)
    if ax.xaxis.get_tick_params()["labelbottom"]:
        ax.set_xlabel(f"share of {whose} time (%)")


def _legend(whole: Figure, parts: dict[str, str]) -> None:
    style.legend(whole, {name: Patch(linewidth=0, **_PARTS[name]) for name in parts.values()})
