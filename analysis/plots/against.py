"""A metric against a key: lines with 95% intervals over seeds; bars where no number varies."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep.analysis.plots import findings, style
from lockstep.analysis.plots.series import (
    Unfit,
    axes,
    known,
    lines,
    named,
    numeric,
    once,
    panels,
    place,
    ready,
    value,
    within,
)
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import Scale, label, scale, words
from lockstep.analysis.table import intervals

BARS = "Bars: 95% intervals over seeds."
_HOLLOW = "Hollow: not all seeds have a value; the mean is of those that do."
_NONE = "No point: no seed has a value, such as a target that was not reached."
MOST_LINES = 6  # in a panel; of more each has a panel of its own
OTHERS: dict[str, Any] = {"color": "#CCCCCC", "lw": 0.6, "zorder": 0.5}
Ideal = Callable[[pd.DataFrame, np.ndarray], np.ndarray | None]
Drawn = tuple[str, dict[str, Any], pd.DataFrame]  # a line's name, its look, its points: x, mean, low, high, …


@styled
def against(
    table: pd.DataFrame,
    metric: str,
    x: str | None = None,
    by: str | None = None,
    *,
    title: str = "",
    finding: str = "",
    y_label: str = "",
    ideal: Ideal | None = None,
    closely: bool = False,
) -> Figure:
    """A metric against a key of the scenario; one bar for each of `by` if no number varies.

    More than six lines have a panel each, with the others in grey.

    x, by: keys, or ends of keys; by default the workers, or else the number with most values, and the
    strategies. `title` and `y_label` are those of the metric unless given; the title goes on with a
    `finding`, unless given who leads at the last value of x. `ideal` gives, at numbers of workers, the
    dashed line of a panel's rows; `closely`: the y axis does not begin at 0. Raises ScenarioError for a key
    or metric that the table does not have, and Unfit if the picture cannot be drawn.
    """
    table, failed = ready(table)
    metric = known(table, metric, "--y")
    if not table[metric].notna().any():
        raise Unfit(f"no run has a {words(metric)}")
    x, by = axes(table, x, by)
    ideal = ideal if x == "cluster.workers" else None
    title = title or words(metric).capitalize()
    up = scale(metric, table[metric])
    y_label = y_label or label(metric, up)
    if x is None or table[x].nunique() < 2:
        whole, notes = _bars(table, metric, up, by, title, finding, y_label)
    else:
        whole, notes = _lines(table, metric, up, x, by, title, finding, y_label, ideal, closely)
    style.note(whole, once([*notes, failed]))
    return whole


def _lines(
    table: pd.DataFrame,
    metric: str,
    up: Scale,
    x: str,
    by: str,
    title: str,
    finding: str,
    y_label: str,
    ideal: Ideal | None,
    closely: bool,
) -> tuple[Figure, list[str]]:
    parts = panels(table, [x, by])
    across, places = x_places(table, x)
    compared = lines(table, by)
    if len(parts) == 1:
        last = max(places, key=lambda item: places[item])
        ends = [(each.name, points_of(each.rows[each.rows[x] == last], metric, x)) for each in compared]
        finding = finding or findings.leads(findings.values(ends), metric, named(table, x, last))
        title = findings.headed(title, finding)
    multiples = len(parts) == 1 and len(compared) > MOST_LINES
    if multiples:
        parts = [(each.name, table) for each in compared]
    whole, all_axes = style.grid(len(parts), 1.75 if multiples else 2.1)
    handles: dict[str, Any] = {}
    heights: list[float] = []
    notes: list[str] = []
    style.title(whole, all_axes, [name or title for name, _ in parts])
    for ax, (panel, rows) in zip(all_axes, parts, strict=True):
        for number, each in enumerate(compared):
            here = within(each, rows)
            points = points_of(here, metric, x)
            points["place"] = points[x].map(places)
            points[["mean", "low", "high"]] *= up.factor
            look = each.look if numeric(table, x) else each.look | {"linestyle": "none"}
            if multiples and each.name != panel:
                (handles["all others"],) = ax.plot(points["place"], points["mean"], **OTHERS)
                continue
            handles[each.name] = errorbars(ax, points, look, 1 - number / len(compared))
            heights += points["mean"].tolist()
            notes += [BARS] * bool((points["runs"] > 1).any()) + [_HOLLOW] * bool(points["partly"].any())
            notes += [_NONE] * (points[x].nunique() < here[x].nunique())
    x_axis(all_axes, table, x, across)
    wide = style.is_wide(heights) or (ideal is not None and all_axes[0].get_xscale() == "log")
    if ideal is not None:
        _ideals(all_axes, parts, x, ideal, up, handles)
    y_axis(all_axes, y_label, heights, wide and not closely)
    if closely:
        all_axes[0].set_ylim(0.98 * min(heights), 1.02 * max(1.0, *heights))
    if multiples:
        handles = {name: handles[name] for name in ("all others", "ideal") if name in handles}
    style.legend(whole, handles, title if len(parts) > 1 else "")
    return whole, notes


def points_of(rows: pd.DataFrame, metric: str, x: str) -> pd.DataFrame:
    """Rising x, mean, low, high, runs; partly: some run there has no value."""
    points = intervals(rows, [x], metric).sort_values(x, ignore_index=True)
    points["partly"] = points["runs"] < points[x].map(rows.groupby(x).size())
    return points.astype({"mean": float, "low": float, "high": float})


def x_places(table: pd.DataFrame, x: str) -> tuple[Scale, dict[Any, float]]:
    """The unit of the x axis, and where each value is on it: what is no number is at 0, 1, 2, …"""
    values = sorted(table[x].dropna().unique().tolist(), key=place if x == "strategy.name" else None)
    if not numeric(table, x):
        return Scale(1.0, ""), {item: float(number) for number, item in enumerate(values)}
    across = scale(x, values)
    return across, {item: item * across.factor for item in values}


def errorbars(ax: Axes, points: pd.DataFrame, look: dict[str, Any], over: float) -> Any:
    """One line, for the legend too: at each `place` its mean and interval.

    `over`: 1 for the first line, which is the widest, so that equal ones are all seen.
    """
    look = look | {"markersize": 3.2 + 2.2 * over, "linewidth": 0.9 + 0.9 * over}
    error = np.array([points["mean"] - points["low"], points["high"] - points["mean"]])
    bars = error if (error > 0).any() else None
    drawn = ax.errorbar(points["place"], points["mean"], bars, elinewidth=0.7, **look)
    partly = points[points["partly"]]
    ax.plot(
        partly["place"], partly["mean"], look["marker"],
        mfc="white", mec=look["color"], mew=0.9, ms=look["markersize"],
    )  # fmt: skip
    return drawn[0]


def x_axis(all_axes: Sequence[Axes], table: pd.DataFrame, x: str, across: Scale) -> None:
    """Label the x axis, logarithmic where its values span much, with ticks at what was run."""
    _, places = x_places(table, x)
    for ax in all_axes:
        if numeric(table, x):
            style.ticks_at(ax, list(places.values()))
        else:
            ax.set_xticks(list(places.values()), [value(table, x, item) for item in places])
            ax.set_xlim(-0.4, len(places) - 0.6)
            ax.tick_params(axis="x", rotation=30)
        if ax.xaxis.get_tick_params()["labelbottom"]:
            ax.set_xlabel(label(x, across))


def y_axis(all_axes: Sequence[Axes], text: str, heights: Sequence[float], wide: bool) -> None:
    """Label the y axis; from 0 on, or logarithmic if `wide`."""
    positive = [height for height in heights if height > 0]
    for ax in all_axes:
        ax.grid(True, axis="y")
        if wide and len(positive) == len(heights):
            style.logarithmic(ax, "y", positive)
            ax.set_ylim(max(ax.get_ylim()[0], min(positive) / 2), min(ax.get_ylim()[1], 2 * max(positive)))
        elif len(positive) and min(heights) >= 0:
            style.from_zero(ax, max(heights))
            style.numbers(ax.yaxis)
        if style.is_left(ax):
            ax.set_ylabel(text)


def _ideals(
    all_axes: Sequence[Axes], parts: Sequence[tuple[str, pd.DataFrame]], x: str, ideal: Ideal, up: Scale,
    handles: dict[str, Any],
) -> None:  # fmt: skip
    for ax, (_, rows) in zip(all_axes, parts, strict=True):
        places = np.linspace(rows[x].min(), rows[x].max(), 60)
        heights = ideal(rows, places)
        if heights is not None:
            (line,) = ax.plot(places, heights * up.factor, color="grey", lw=0.8, ls=(0, (2, 2)), zorder=1)
            handles.setdefault("ideal", line)


def _bars(
    table: pd.DataFrame, metric: str, up: Scale, by: str, title: str, finding: str, y_label: str
) -> tuple[Figure, list[str]]:
    """A bar for each of `by`, the first at the top."""
    parts = panels(table, [by])
    compared = lines(table, by)
    count = len(compared)
    if count == len(parts) == 1:
        raise Unfit("nothing varies that it could be drawn against, such as cluster.workers")
    if len(parts) == 1:
        ends = [
            (
                each.name,
                intervals(each.rows, [by], metric).assign(partly=bool(each.rows[metric].isna().any())),
            )
            for each in compared
        ]
        finding = finding or findings.leads(findings.values(ends), metric)
        alone = [name for name, rows in ends if len(rows)]
        if metric == "time_to_target_s" and len(alone) == 1:
            finding = f"only {alone[0]} reaches it"
        title = findings.headed(title, finding)
    whole, all_axes = style.grid(len(parts), height=0.75 + 0.2 * count)
    notes: list[str] = []
    wide = style.is_wide(table[metric].dropna().tolist(), 100)
    style.title(whole, all_axes, [name or title for name, _ in parts])
    for ax, (_, rows) in zip(all_axes, parts, strict=True):
        for number, each in enumerate(compared):
            notes += _bar(ax, number, within(each, rows), metric, up.factor, each.look["color"])
        ax.set_yticks(range(count), [each.name for each in compared])
        ax.set_ylim(count - 0.4, -0.6)
        style.numbers(ax.xaxis)
        if wide:
            style.logarithmic(ax, "x", table[metric].dropna() * up.factor)
        if ax.xaxis.get_tick_params()["labelbottom"]:
            ax.set_xlabel(y_label)
    if not wide and (table[metric].dropna() >= 0).all():
        for ax in all_axes:
            ax.set_xlim(0, None)
    whole.suptitle(title if len(parts) > 1 else "")
    style.make_room(whole, all_axes, 0.2 * count)
    return whole, notes


def _bar(ax: Axes, number: int, rows: pd.DataFrame, metric: str, factor: float, colour: str) -> list[str]:
    has = rows[metric].dropna() * factor
    if not len(has):
        ax.text(0.01, number, "not reached" if metric == "time_to_target_s" else "no value",
                transform=ax.get_yaxis_transform(), va="center", fontsize=7, color="#444444")  # fmt: skip
        return []
    found = intervals(rows.assign(all=0), ["all"], metric).iloc[0] * factor
    partly = len(has) < len(rows)
    ax.barh(number, found["mean"], 0.7, color="white" if partly else colour, edgecolor=colour)
    if len(has) > 1:
        half = found["high"] - found["mean"]
        ax.errorbar(found["mean"], number, xerr=half, color="black", elinewidth=0.8, fmt="none")
    return [BARS] * (len(has) > 1) + [_HOLLOW] * partly
