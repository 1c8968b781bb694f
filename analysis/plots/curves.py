"""What is learned, against time and against updates."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep.analysis.plots import findings, style
from lockstep.analysis.plots.against import MOST_LINES, OTHERS
from lockstep.analysis.plots.series import Unfit, apart, lines, once, panels, ready, within
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import METRICS, Scale, label, scale
from lockstep.analysis.result import Result
from lockstep.analysis.runs import describe
from lockstep.analysis.student import half_width_of
from lockstep.scenarios import ScenarioError

_SEEDS = "Thin: each seed; thick: their mean."
_MARKS = 8  # markers on a line


@styled
def learning(
    results: Sequence[Result],
    against: Literal["time", "updates"] = "time",
    by: str | None = None,
    y: str = "loss",
) -> Figure:
    """Held-out loss, accuracy or another metric of runs, against time or updates: what staleness costs.

    A line for each strategy, or value of `by`: the mean over seeds, as far as all of them go, and a thin one
    for each seed. More than six have a panel each, with the others in grey.
    """
    learned = [result for result in results if len(result.curve)]
    if not learned:
        raise Unfit("nothing was learned" if results else "there are no records of runs")
    known = {"loss": 0, "accuracy": 0} | {name: 0 for each in learned for name in each.curve.columns[2:]}
    if y not in known:
        raise ScenarioError(f"no curve of {y!r} (curves: {', '.join(known)})", key="--y")
    learned = [result for result in learned if y in result.curve]
    table, noted = ready(describe(learned).assign(disturbed=[result.disturbed for result in learned]))
    by = apart(table, by)
    parts = panels(table, [by])
    curves = [_curve(result, against, y) for result in learned]
    over = Scale(1.0, "")
    if against == "time":
        over = scale("duration_s", [curve[0][-1] for curve in curves])
    compared = lines(table, by)
    heading = f"Held-out {y} against {against}"
    if len(parts) == 1:
        ends = [_end(each.name, [curves[i][1][-1] for i in each.rows.index]) for each in compared]
        heading = findings.headed(heading, findings.leads(ends, y, "the end"))
    multiples = len(parts) == 1 and len(compared) > MOST_LINES
    if multiples:
        parts = [(each.name, table) for each in compared]
    whole, all_axes = style.grid(len(parts), 1.75 if multiples else 2.1)
    entries: dict[str, Any] = {}
    notes = [noted] * bool(noted)
    style.title(whole, all_axes, [title or heading for title, _ in parts])
    for ax, (panel, rows) in zip(all_axes, parts, strict=True):
        for number, each in enumerate(compared):
            runs = [(curves[i][0] * over.factor, curves[i][1]) for i in within(each, rows).index]
            if multiples and each.name != panel:
                (entries["all others"],) = ax.plot(*_mean(runs), **OTHERS)
                continue
            notes += [_SEEDS] * (len(runs) > 1)
            entries[each.name] = _line(ax, runs, each.look, number, len(compared))
        ax.grid(True, axis="y")
        style.numbers(ax.xaxis)
        if ax.xaxis.get_tick_params()["labelbottom"]:
            what = f"time since the first mini-batch ({over.unit})"
            ax.set_xlabel(what if against == "time" else "updates (number)")
        if style.is_left(ax):
            ax.set_ylabel(label(y, scale(y, [])) if y in METRICS else f"held-out {y}")
    _limits(all_axes, curves, y)
    if multiples:
        entries = {"all others": entries["all others"]}
    style.legend(whole, entries, "" if len(parts) == 1 else heading)
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
    """One run as it is; of several the mean, and each as a thin line."""
    over, values = _mean(runs)
    if len(runs) > 1:
        for run in runs:
            ax.plot(*run, color=look["color"], lw=0.4, alpha=0.5)
    every = max(1, len(over) // _MARKS)
    start = number * every // max(1, count)  # not all at the same places
    width = 0.9 + 0.9 * (1 - number / count)
    (line,) = ax.plot(over, values, markevery=(start, every), linewidth=width, **look)
    return line


def _mean(runs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The mean of runs, until the first of them ends."""
    if len(runs) < 2:
        return runs[0] if runs else (np.empty(0), np.empty(0))
    over = np.unique(np.concatenate([run[0] for run in runs]))
    over = over[(over >= max(run[0][0] for run in runs)) & (over <= min(run[0][-1] for run in runs))]
    return over, np.array([np.interp(over, *run) for run in runs]).mean(axis=0)


def _end(name: str, last: Sequence[float]) -> findings.Value:
    """What a line comes to, and its 95% interval over seeds."""
    mean, half = float(np.mean(last)), float(half_width_of(np.array(last))) if len(last) > 1 else 0.0
    return findings.Value(name, mean, mean - half, mean + half, len(last))


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
