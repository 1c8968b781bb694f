"""What is learned, against time and against updates."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep.analysis.plots import style
from lockstep.analysis.plots.series import Unfit, apart, lines, once, panels, ready, within
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import METRICS, Scale, label, scale
from lockstep.analysis.result import Result
from lockstep.analysis.runs import describe
from lockstep.analysis.student import half_width_of
from lockstep.scenarios import ScenarioError

_BANDS = "Bands: 95% intervals over seeds."
_MARKS = 8  # markers on a line


@styled
def learning(
    results: Sequence[Result],
    against: Literal["time", "updates"] = "time",
    by: str | None = None,
    y: str = "loss",
) -> Figure:
    """Held-out loss, accuracy or another metric of runs, against time or updates: what staleness costs.

    A line for each strategy, or value of `by`: the mean over seeds, as far as all of them go.
    """
    learned = [result for result in results if len(result.curve)]
    if not learned:
        raise Unfit("nothing was learned" if results else "there are no records of runs")
    known = {"loss": 0, "accuracy": 0} | {name: 0 for each in learned for name in each.curve.columns[2:]}
    if y not in known:
        raise ScenarioError(f"no curve of {y!r} (curves: {', '.join(known)})", key="--y")
    learned = [result for result in learned if y in result.curve]
    table, _ = ready(describe(learned))
    by = apart(table, by)
    parts = panels(table, [by])
    curves = [_curve(result, against, y) for result in learned]
    over = Scale(1.0, "")
    if against == "time":
        over = scale("duration_s", [curve[0][-1] for curve in curves])
    whole, all_axes = style.grid(len(parts))
    compared = lines(table, by)
    entries: dict[str, Any] = {}
    notes = []
    otherwise = f"Held-out {y} against {against}"
    style.title(whole, all_axes, [title or otherwise for title, _ in parts])
    for ax, (_, rows) in zip(all_axes, parts, strict=True):
        for number, each in enumerate(compared):
            runs = [(curves[i][0] * over.factor, curves[i][1]) for i in within(each, rows).index]
            notes += [_BANDS] * (len(runs) > 1)
            entries[each.name] = _line(ax, runs, each.look, number, len(compared))
        ax.grid(True, axis="y")
        style.numbers(ax.xaxis)
        if ax.xaxis.get_tick_params()["labelbottom"]:
            what = f"time since the first mini-batch ({over.unit})"
            ax.set_xlabel(what if against == "time" else "updates (number)")
        if style.is_left(ax):
            ax.set_ylabel(label(y, scale(y, [])) if y in METRICS else f"held-out {y}")
    _limits(all_axes, curves, y)
    style.legend(whole, entries, "" if len(parts) == 1 else f"Held-out {y} against {against}")
    style.note(whole, once(notes))
    return whole


def _curve(result: Result, against: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """Rising times (s) or updates, and the values there."""
    curve = result.curve
    over = curve["time"] if against == "time" else curve["version"]
    values = pd.Series(curve[y].to_numpy(), over.to_numpy(float)).groupby(level=0).last()
    return values.index.to_numpy(), values.to_numpy(float)


def _line(
    ax: Axes, runs: Sequence[tuple[np.ndarray, np.ndarray]], look: dict[str, Any], number: int, count: int
) -> Any:
    """One run as it is; of several the mean and its 95% interval, until the first of them ends."""
    over, values = runs[0] if runs else (np.empty(0), np.empty(0))
    if len(runs) > 1:
        over = np.unique(np.concatenate([run[0] for run in runs]))
        over = over[(over >= max(run[0][0] for run in runs)) & (over <= min(run[0][-1] for run in runs))]
        each = np.array([np.interp(over, *run) for run in runs])
        values = each.mean(axis=0)
        half = half_width_of(each)
        ax.fill_between(over, values - half, values + half, color=look["color"], alpha=0.18, lw=0)
    every = max(1, len(over) // _MARKS)
    start = number * every // max(1, count)  # not all at the same places
    width = 0.9 + 0.9 * (1 - number / count)
    (line,) = ax.plot(over, values, markevery=(start, every), linewidth=width, **look)
    return line


def _limits(all_axes: Sequence[Axes], curves: Sequence[tuple[np.ndarray, np.ndarray]], y: str) -> None:
    """Time from 0; a loss that falls far on a logarithmic axis, one that diverges flattens no others."""
    values = np.concatenate([values for _, values in curves])
    first = max(values[0] for _, values in curves)
    shown = values[np.isfinite(values) & ((values <= 1.5 * first) | (y != "loss"))]
    for ax in all_axes:
        ax.set_xlim(0, None)
        if y == "loss" and style.is_wide(shown.tolist()):
            style.logarithmic(ax, "y", shown)
            ax.set_ylim(0.9 * shown.min(), 1.1 * shown.max())
        elif len(shown):
            margin = 0.05 * (shown.max() - shown.min()) or 0.1
            ax.set_ylim(shown.min() - margin, shown.max() + margin)
