"""How stale gradients are: the histogram, and its quantiles against the workers."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from lockstep.analysis.plots import style
from lockstep.analysis.plots.against import BARS, MOST_LINES, errorbars, points_of, x_axis, x_places, y_axis
from lockstep.analysis.plots.findings import headed
from lockstep.analysis.plots.only import only_by, varies
from lockstep.analysis.plots.series import Unfit, apart, axes, besides, known, lines, once, ready
from lockstep.analysis.plots.style import styled
from lockstep.analysis.table import intervals

_MOST = 12  # panels
_BINS = 40
_FAR, _TICKS = 10, 10  # versions from which on axes are logarithmic; how many ticks there are at most
_QUANTILES = {"staleness.p50": "Median", "staleness.p99": "99th percentile", "staleness.max": "Maximum"}
_MEAN: dict[str, Any] = {"color": "black", "lw": 0.8, "ls": "--"}


@styled
def staleness_histogram(table: pd.DataFrame, by: str | None = None) -> Figure:
    """The share of gradients at each staleness: a panel for each strategy, or value of `by`.

    Of several numbers of workers the largest. What is never stale is named below.
    """
    table, failed = ready(table)
    by = apart(table, by)
    table = table[table["staleness.mean"].notna()]
    if not table["staleness.max"].any():
        raise Unfit("no gradient was stale")
    table, said = only_by(table, by)
    compared = lines(table, by)
    stale = [each for each in compared if (each.rows["staleness.max"] != 0).any()]
    fresh = [each.name for each in compared if not (each.rows["staleness.max"] != 0).any()]
    if not stale:
        raise Unfit("no gradient was stale")
    stale, left_out = stale[:_MOST], [each.name for each in stale[_MOST:]]
    whole, all_axes = style.grid(
        len(stale), height=2.1 if len(stale) == 1 else 1.75 if len(stale) <= 3 else 1.4
    )
    style.title(whole, all_axes, [f"{each.name}: {_said(each.rows)}" for each in stale])
    width = max(1, int((table["staleness.max"].max() + _BINS) // _BINS))
    notes, highest = [said], 0.0
    for ax, each in zip(all_axes, stale, strict=True):
        high, more = _histogram(ax, each.rows, each.look["color"], width)
        highest, notes = max(highest, high), notes + more
        ax.grid(True, axis="y")
        if style.is_left(ax):
            ax.set_ylabel("share of\ngradients (%)")
        if ax.xaxis.get_tick_params()["labelbottom"]:
            ax.set_xlabel("staleness (versions)")
    all_axes[0].set_ylim(0, 1.3 * highest)
    notes += [f"Bars of {width} versions."] * (width > 1)
    notes += [f"Never stale: {', '.join(fresh)}."] * bool(fresh)
    notes += [f"Not shown: {', '.join(left_out)}."] * bool(left_out)
    style.legend(whole, {"mean": Line2D([], [], **_MEAN)})
    style.note(whole, once([*notes, failed]))
    return whole


def _said(rows: pd.DataFrame) -> str:
    """What the histogram of some runs says."""
    return f"mean {style.plain(rows['staleness.mean'].mean())}, at most {rows['staleness.max'].max():,.0f}"


def _histogram(ax: Axes, rows: pd.DataFrame, colour: str, width: int) -> tuple[float, list[str]]:
    """The mean over the runs of the shares (%) in bins of `width` versions, with its interval.

    Returns the highest, and what to note.
    """
    shares = []
    for text in rows["staleness.histogram"]:
        counts = pd.Series({int(version): count for version, count in json.loads(text).items()})
        binned = counts.groupby(np.floor_divide(counts.index, width) * width).sum()
        shares.append(100 * binned / binned.sum())
    table = pd.concat(shares, axis=1).fillna(0.0).sort_index().melt(ignore_index=False, value_name="share")
    found = intervals(table.rename_axis("staleness").reset_index(), ["staleness"], "share")
    several = len(shares) > 1
    error = [found["mean"] - found["low"].clip(lower=0), found["high"] - found["mean"]] if several else None
    middle = found["staleness"] + (width - 1) / 2
    ax.bar(middle, found["mean"], 0.9 * width, color=colour, yerr=error, capsize=1,
           error_kw={"elinewidth": 0.6})  # fmt: skip
    ax.axvline(rows["staleness.mean"].mean(), **_MEAN)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return float(found["mean"].max()), [BARS] * several


@styled
def staleness_quantiles(table: pd.DataFrame, x: str | None = None, by: str | None = None) -> Figure:
    """Median, 99th percentile and maximum of staleness against the workers, or another key.

    Against the workers with a line at workers − 1. More than six things compared have a panel each.
    """
    table, failed = ready(table)
    x, by = axes(table, x, by)
    if x is None or table[x].nunique() < 2:
        raise Unfit("nothing varies that it could be drawn against, such as cluster.workers")
    table = table[table["staleness.mean"].notna()]
    if not table["staleness.max"].any():
        raise Unfit("no gradient was stale")
    if keys := besides(table, [x, by]):
        raise varies(table, keys)
    compared = lines(table, by)
    columns = {title: known(table, metric, "--y") for metric, title in _QUANTILES.items()}
    drawn = {
        title: [_Line(each.name, each.look, each.rows, metric) for each in compared]
        for title, metric in columns.items()
    }
    if len(compared) > MOST_LINES:
        drawn = {
            each.name: [
                _Line(title, style.nth_style(number), each.rows, metric)
                for number, (title, metric) in enumerate(columns.items())
            ]
            for each in compared
        }
    whole, all_axes = style.grid(len(drawn), 2.1 if len(drawn) <= 3 else 1.75)
    across, places = x_places(table, x)
    entries: dict[str, Any] = {}
    notes, heights = [failed], list[float]()
    for ax, (title, its) in zip(all_axes, drawn.items(), strict=True):
        ax.set_title(title)
        for number, each in enumerate(its):
            points = points_of(each.rows, each.metric, x)
            points["place"] = points[x].map(places)
            entries.setdefault(each.name, errorbars(ax, points, each.look, 1 - number / len(its)))
            heights += points["mean"].tolist()
            notes += [BARS] * bool((points["runs"] > 1).any())
    x_axis(all_axes, table, x, across)
    y_axis(all_axes, "staleness (versions)", heights, wide=False)
    all_axes[0].yaxis.set_major_locator(MaxNLocator(6, integer=True))
    heading = ""
    if x == "cluster.workers":
        _reference(all_axes, table[x], max(heights), entries)
        like = [each.name for each in compared if _like_workers(each.rows, columns["Median"])]
        heading = headed("Staleness", f"the median of {', '.join(like)} is workers − 1" if like else "")
    style.legend(whole, entries, heading)
    style.note(whole, once(notes))
    return whole


class _Line(NamedTuple):
    name: str
    look: dict[str, Any]
    rows: pd.DataFrame
    metric: str


def _reference(all_axes: Sequence[Axes], workers: pd.Series, highest: float, entries: dict[str, Any]) -> None:
    """Where one is overtaken by all others once; on logarithmic axes, with 0, where it grows far."""
    there = np.linspace(workers.min(), workers.max(), 60)
    for ax in all_axes:
        (entries["workers − 1"],) = ax.plot(there, there - 1, color="grey", lw=0.8, ls=(0, (2, 2)), zorder=1)
        if ax.get_xscale() == "log" and highest > _FAR:
            ax.set_yscale("symlog", linthresh=1, linscale=0.5)
            ticks = [0.0] + [float(m * 10**k) for k in range(9) for m in (1, 2, 5) if m * 10**k <= highest]
            ax.yaxis.set_major_locator(FixedLocator(ticks if len(ticks) < _TICKS else [0.0, *ticks[1::3]]))
            ax.yaxis.set_minor_locator(NullLocator())
            ax.set_ylim(0, 1.2 * highest)
            style.numbers(ax.yaxis)


def _like_workers(rows: pd.DataFrame, metric: str) -> bool:
    """Whether the median is workers − 1, but for a version or a twentieth."""
    others = rows["cluster.workers"] - 1
    several = rows["cluster.workers"].max() > 2
    return bool(several and ((rows[metric] - others).abs() <= np.maximum(1.0, others / 20)).all())
