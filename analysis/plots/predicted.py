"""Predicted against measured metrics, with the bands of 5 and 10%."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from lockstep.analysis.plots import style
from lockstep.analysis.plots.findings import worst
from lockstep.analysis.plots.series import Unfit, lines, ready, varied
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import scale, words
from lockstep.analysis.table import disturbed

_METRICS = ("throughput", "staleness.mean", "loss", "time_to_target_s")
_BANDS = {0.10: "#EEEEEE", 0.05: "#D5D5D5"}


def pairs(table: pd.DataFrame) -> pd.DataFrame:
    """The table of both engines side by side: strategy.name, metric, predicted, measured; a row a metric.

    Runs belong together that have the same strategy, workers, seed and all else that is not the engine's.
    """
    which = list(dict.fromkeys(["strategy.name", "cluster.workers", "seed", *varied(table)]))
    which = [key for key in which if key != "engine"]
    sides = [table[table["engine"] == engine] for engine in ("simulator", "executor")]
    found = []
    for name in _METRICS:
        if name in table:
            left, right = (side[[*which, name]].dropna(subset=name) for side in sides)
            both = left.merge(right, on=which, suffixes=("_p", "_m"))
            both = both.rename(columns={f"{name}_p": "predicted", f"{name}_m": "measured"})
            found.append(both.assign(metric=name))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


@styled
def predicted_against_measured(table: pd.DataFrame) -> Figure:
    """Predicted against measured: a panel a metric, a point a pair of runs; inside a band it is within it."""
    table, failed = ready(table)
    both = pairs(table[~disturbed(table)])
    if not len(both):
        both = pairs(table)
    if not len(both):
        raise Unfit("it takes runs of both engines, such as the folder of 'lockstep validate --out'")
    metrics = [name for name in _METRICS if (both["metric"] == name).any()]
    columns = style.beside(2 if len(metrics) == 4 else len(metrics))
    rows = -(-len(metrics) // columns)
    whole = style.figure(
        style.SINGLE if columns == 1 else style.DOUBLE, (2.9 if columns == 1 else 2.45) * rows
    )
    all_axes = whole.subplots(rows, columns, squeeze=False).ravel()
    entries: dict[str, Any] = {}
    for ax, name in zip(all_axes, metrics, strict=True):
        entries |= _panel(ax, both[both["metric"] == name], name)
    entries |= {f"within {100 * part:.0f}%": Patch(color=grey) for part, grey in list(_BANDS.items())[::-1]}
    style.legend(whole, entries)
    style.note(whole, failed)
    return whole


def _panel(ax: Axes, both: pd.DataFrame, name: str) -> dict[str, Any]:
    unit = scale(name, both["measured"])
    values = both[["predicted", "measured"]] * unit.factor
    low, high = float(values.min().min()), float(values.max().max())
    wide = style.is_wide([low, high], 10)
    low, high = (low / 1.3, high * 1.3) if wide else (min(0.0, 1.1 * low), 1.1 * high or 1.0)
    line = np.geomspace(low, high, 50) if wide else np.linspace(low, high, 50)
    for part, grey in _BANDS.items():
        ax.fill_between(line, line - part * abs(line), line + part * abs(line), color=grey, lw=0, zorder=0)
    ax.plot(line, line, color="grey", lw=0.7, zorder=1)
    entries = {}
    for each in lines(both, "strategy.name"):
        look = each.look | {"linestyle": "none", "markersize": 5, "clip_on": False, "zorder": 3}
        points = values.loc[each.rows.index]
        (entries[each.name],) = ax.plot(points["measured"], points["predicted"], **look)
    if wide:
        style.logarithmic(ax, "x", [low, high])
        style.logarithmic(ax, "y", [low, high])
    else:
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(4))
            style.numbers(axis)
    unit_text = f" ({unit.unit})" if unit.unit else ""
    said = worst(values["predicted"].tolist(), values["measured"].tolist())
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    ax.set(title=f"{words(name).capitalize()} {said}".rstrip())
    ax.set(xlabel=f"measured{unit_text}", ylabel=f"predicted{unit_text}")
    return entries
