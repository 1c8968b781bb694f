"""What was fitted: measured points, the fitted curve, and the band in which a new measurement would be."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from lockstep.analysis.plots import style
from lockstep.analysis.plots.findings import worst
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import label, scale, words

_KEYS = ("measured", "predicted", "low", "high", "error", "use", "left_out")
_FORMATS = ("png", "svg")


@styled
def picture(rows: pd.DataFrame, measure: str, path: Path) -> list[Path]:
    """Draw the rows of a fit against the key with most numbers, a line for what else varies.

    Where no key has numbers it is row by row. Writes `path` with the endings .png and .svg; returns both.
    """
    keys = [str(key) for key in rows if key not in _KEYS]
    numeric = [key for key in keys if pd.to_numeric(rows[key], errors="coerce").notna().all()]
    across = max(numeric, key=lambda key: rows[key].nunique(), default=None)
    whole = style.figure(style.SINGLE, 2.7)
    ax = whole.subplots()
    others = [key for key in keys if key != across and rows[key].astype(str).nunique() > 1]
    groups = (
        list(rows.groupby([rows[key].astype(str) for key in others])) if others and across else [("", rows)]
    )
    entries: dict[str, Any] = {}
    for number, (name, group) in enumerate(groups):
        colour = style.COLOURS[number % len(style.COLOURS)]
        group_of = name if isinstance(name, tuple) else ()  # one without columns that vary has none
        said = ", ".join(f"{words(key)} {value}" for key, value in zip(others, group_of, strict=False))
        entries |= _line(ax, group, across, measure, colour, said)
    style.legend(whole, entries)
    values = rows["measured"]
    ax.set_ylabel("throughput (samples/s)" if measure == "throughput" else "time of a step (s)")
    if across is None:
        ax.set_xlabel("row of the table")
        style.numbers(ax.xaxis)
    else:
        numbers = pd.to_numeric(rows[across])
        unit = scale(across, numbers)
        ax.set_xlabel(label(across, unit) if unit.factor == 1 else words(across))
        if style.is_wide(sorted(numbers.unique()), 10):
            style.logarithmic(ax, "x", sorted(numbers.unique()))
    if style.is_wide([values.min(), values.max()], 10):
        style.logarithmic(ax, "y", [values.min(), values.max()])
    else:
        style.from_zero(ax, float(max(values.max(), rows["predicted"].max())))
    left = rows[rows["use"] == "predict"]
    its, said = (left, "not fitted") if len(left) else (rows, "fitted")
    found = worst(its["predicted"].tolist(), its["measured"].tolist())
    style.title(whole, [ax], [f"What was {said} is {found}" if found else ""])
    return style.save(whole, path, _FORMATS)


def _line(
    ax: Axes, rows: pd.DataFrame, across: str | None, measure: str, colour: str, name: str
) -> dict[str, Any]:
    """One line: its band, its curve, and its points, hollow where they were not fitted."""
    x = np.arange(1, len(rows) + 1) if across is None else pd.to_numeric(rows[across]).to_numpy()
    order = np.argsort(x, kind="stable")
    rows, x = rows.iloc[order], x[order]
    entries: dict[str, Any] = {}
    alone = len(np.unique(x)) == 1  # a line of one point cannot be seen
    if rows["low"].notna().all():
        low, high = rows["low"].to_numpy(float), rows["high"].to_numpy(float)
        said = "95% of new measurements"
        if alone:
            entries[said] = ax.vlines(x, low, high, color=colour, alpha=0.2, lw=8)
        else:
            entries[said] = ax.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
    (entries[f"predicted{name and f', {name}'}"],) = ax.plot(
        x, rows["predicted"], "_" if alone else "-", color=colour, markersize=16, markeredgewidth=1.5
    )
    for use, face in (("fit", colour), ("predict", "white")):
        its = (rows["use"] == use).to_numpy()
        if its.any():
            said = "measured, fitted" if use == "fit" else "measured, not fitted"
            (entries[said],) = ax.plot(
                x[its], rows["measured"][its], "o", color=colour, markerfacecolor=face, markeredgecolor=colour
            )
    return entries
