"""How stale gradients are: the histogram, and its quantiles against the workers."""

import json
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from lockstep.analysis.plots import style
from lockstep.analysis.plots.against import BARS, errorbars, points_of, x_axis, x_places, y_axis
from lockstep.analysis.plots.only import only_by, varies
from lockstep.analysis.plots.series import Unfit, apart, axes, besides, known, lines, once, ready
from lockstep.analysis.plots.style import styled
from lockstep.analysis.table import intervals

_MOST = 12  # panels
_BINS = 40
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
    style.title(whole, all_axes, [each.name for each in stale])
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
    """Median, 99th percentile and maximum of staleness against the workers, or another key."""
    table, failed = ready(table)
    x, by = axes(table, x, by)
    if x is None or table[x].nunique() < 2:
        raise Unfit("nothing varies that it could be drawn against, such as cluster.workers")
    table = table[table["staleness.mean"].notna()]
    if not table["staleness.max"].any():
        raise Unfit("no gradient was stale")
    if keys := besides(table, [x, by]):
        raise varies(table, keys)
    whole, all_axes = style.grid(len(_QUANTILES))
    across, places = x_places(table, x)
    entries: dict[str, Any] = {}
    notes, heights = [failed], list[float]()
    compared = lines(table, by)
    for ax, (metric, title) in zip(all_axes, _QUANTILES.items(), strict=True):
        ax.set_title(title)
        for number, each in enumerate(compared):
            points = points_of(each.rows, known(table, metric, "--y"), x)
            points["place"] = points[x].map(places)
            entries.setdefault(each.name, errorbars(ax, points, each.look, 1 - number / len(compared)))
            heights += points["mean"].tolist()
            notes += [BARS] * bool((points["runs"] > 1).any())
    x_axis(all_axes, table, x, across)
    y_axis(all_axes, "staleness (versions)", heights, wide=False)
    all_axes[0].yaxis.set_major_locator(MaxNLocator(6, integer=True))
    style.legend(whole, entries)
    style.note(whole, once(notes))
    return whole
