"""Predicted against measured in small panels, one a table of what others measured."""

from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from lockstep.analysis.plots import style
from lockstep.analysis.plots.style import styled

_BAND = 0.12
_LOOKS: dict[str, dict[str, Any]] = {
    "fitted": {"marker": "x", "color": "#666666", "zorder": 3},
    "predicted, mechanism not modelled": {
        "marker": "o",
        "color": style.MEASURED,
        "fillstyle": "none",
        "zorder": 4,
    },
    "predicted": {"marker": "o", "color": style.PREDICTED, "zorder": 5},
}


@styled
def panels(rows: pd.DataFrame, finding: str) -> Figure:
    """A panel for each `table`, both axes logarithmic; below the line what is predicted too low.

    `rows`: table, use, modelled, measured, predicted; a row a point. `finding`: the title.
    """
    names = list(dict.fromkeys(rows["table"]))
    across = min(4, len(names))
    down = -(-len(names) // across)
    whole = style.figure(style.DOUBLE if across > 1 else style.SINGLE, 1.75 * down)
    axes = whole.subplots(down, across, squeeze=False).ravel()
    for ax in axes[len(names) :]:
        ax.remove()
    for ax, name in zip(axes, names, strict=False):
        _panel(ax, rows[rows["table"] == name], name)
    entries = {word: Line2D([], [], linestyle="none", **look) for word, look in _LOOKS.items()}
    style.legend(whole, {**entries, f"within {_BAND:.0%}": Patch(color="#DDDDDD")}, finding)
    style.note(whole, "Across: measured; up: predicted (samples/s, tokens/s, or seconds of a step).")
    return whole


def _panel(ax: Axes, rows: pd.DataFrame, name: str) -> None:
    values = rows[["measured", "predicted"]]
    low, high = float(values.min().min()) / 1.3, float(values.max().max()) * 1.3
    line = np.array([low, high])
    ax.fill_between(line, line * (1 - _BAND), line * (1 + _BAND), color="#DDDDDD", lw=0, zorder=0)
    ax.plot(line, line, color="grey", lw=0.7, zorder=1)
    kinds = np.where(
        rows["use"] == "fit",
        "fitted",
        np.where(rows["modelled"], "predicted", "predicted, mechanism not modelled"),
    )
    for word, look in _LOOKS.items():
        its = rows[kinds == word]
        ax.plot(its["measured"], its["predicted"], linestyle="none", markersize=3, **look)
    ax.set(xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1,) if high > 20 * low else (1, 2, 5), numticks=6))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(EngFormatter(sep=""))
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    ax.set_title(fill(name, 26), fontsize=6.5)  # as wide as a panel
    ax.tick_params(labelsize=6)
