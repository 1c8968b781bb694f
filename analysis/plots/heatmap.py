"""A metric over two keys, its values in the cells."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from lockstep.analysis.plots import style
from lockstep.analysis.plots.findings import headed
from lockstep.analysis.plots.series import (
    Unfit,
    follows,
    known,
    numbers,
    numeric,
    of_disturbed,
    panels,
    place,
    ready,
    value,
    varied,
)
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import label, scale, words
from lockstep.analysis.table import undisturbed

_COLOURS = "cividis"  # safe for the colour-blind, and grey that rises
_CELL = (0.36, 0.22)  # inches, at least
_LEAST = 0.6  # inches of all rows together: the colour bar's numbers take room too
_MOST = 13  # columns that have room for numbers


@styled
def heat_map(
    table: pd.DataFrame, x: str | None = None, by: str | None = None, y: str | None = None
) -> Figure:
    """The mean over seeds of the metric `y` over the keys `x` (columns) and `by` (rows).

    By default the keys that vary, and the time to the target or else the throughput. Cells without a value
    say why: the runs failed, or did not reach the target.
    """
    ended, failed = ready(table)
    y = known(ended, y, "--y") if y else _metric(ended)
    x, by = _keys(ended, x and known(ended, x, "--x"), by and known(ended, by, "--by"))
    if not ended[y].notna().any():
        raise Unfit(f"no run has a {words(y)}")
    lost = table["status"] != "ok" if "status" in table else pd.Series(False, table.index)
    if lost.any() and {x, by} <= {*table}:  # what failed has a cell
        failed = " ".join(of_disturbed(table[~lost]))
        table = pd.concat([undisturbed(table[~lost]), table[lost]]).sort_index()
        ended = table.assign(**{y: table[y].where(table["status"] == "ok")})
    parts = panels(ended, [x, by])
    across, down = (_order(ended, key) for key in (x, by))
    shade = scale(y, ended[y].dropna())
    parts_cells = [(title, *_cells(rows, x, by, y, across, down)) for title, rows in parts]
    shown = np.concatenate([values.to_numpy().ravel() for _, values, _ in parts_cells]) * shade.factor
    norm = _norm(shown[np.isfinite(shown)])
    whole, all_axes, beside = _grid(len(parts), len(across), len(down))
    head = label(y, shade)
    head = head[0].upper() + head[1:]
    found = headed(head, _finding(shown[np.isfinite(shown)])) if len(parts) == 1 else head
    style.title(whole, all_axes, [title or found for title, _ in parts])
    for ax, (_, values, texts) in zip(all_axes, parts_cells, strict=True):
        _draw(ax, values * shade.factor, texts, norm)
        ax.set_xticks(range(len(across)), [value(ended, x, item) for item in across])
        ax.set_yticks(range(len(down)), [value(ended, by, item) for item in down])
        wide = (whole.get_figwidth() - 1.5) / len(across) / beside  # inches of a cell
        if any(0.06 * len(tick.get_text()) > wide for tick in ax.get_xticklabels()):
            ax.tick_params(axis="x", rotation=40)
            for tick in ax.get_xticklabels():
                tick.set(ha="right", rotation_mode="anchor")
        ax.set_xlabel(words(x))
        if style.is_left(ax):
            ax.set_ylabel(words(by))
    bar = whole.colorbar(ScalarMappable(norm, _COLOURS), ax=all_axes, pad=0.02)
    whole.suptitle(head if len(parts) > 1 else "")
    style.numbers(bar.ax.yaxis)
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.outline.set_visible(False)
    style.note(whole, failed)
    style.make_room(whole, all_axes, max(_LEAST, _CELL[1] * len(down)), _CELL[0] * len(across))
    return whole


def _metric(table: pd.DataFrame) -> str:
    reached = "time_to_target_s" in table and table["time_to_target_s"].notna().any()
    return "time_to_target_s" if reached else "throughput"


def _keys(table: pd.DataFrame, x: str | None, by: str | None) -> tuple[str, str]:
    """Columns: the workers or another number; rows: the strategies or another key."""
    there = [key for key in varied(table) if key not in (x, by)]
    if by is None:
        others = ["strategy.name", *(k for k in there if not numeric(table, k)), *there[::-1]]
        only = [k for k in others if k in there and (x is None or not follows(table, [x], k))]
        if only:
            by = only[0]
            there.remove(by)
    if x is None and by is not None:
        others = [*numbers(table, there), *there]
        x = next((k for k in others if k in there and not follows(table, [by], k)), None)
    if x is None or by is None:
        raise Unfit("it takes two keys that vary independently of each other")
    return x, by


def _finding(values: np.ndarray) -> str:
    """Between what all cells are."""
    low, high = style.plain(float(values.min())), style.plain(float(values.max()))
    return f"{low} to {high}" if low != high else ""


def _order(table: pd.DataFrame, key: str) -> list[Any]:
    values = table[key].unique().tolist()
    if key == "strategy.name":
        return sorted(values, key=place)
    return sorted(values, key=lambda item: (item is None or item != item, item), reverse=key == "engine")


def _cells(
    rows: pd.DataFrame, x: str, by: str, y: str, across: list[Any], down: list[Any]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Values, NaN where there is none, and what stands there instead."""
    groups = rows.groupby([by, x], dropna=False)
    values = groups[y].mean().unstack().reindex(index=down, columns=across)
    why = groups.apply(lambda group: _why(group, y)).unstack().reindex(index=down, columns=across)
    return values.astype(float), why.astype(object).where(why.notna(), "–")


def _why(group: pd.DataFrame, y: str) -> str:
    if "status" in group and (group["status"] != "ok").all():
        return "failed"
    return "never" if y == "time_to_target_s" else "–"


def _norm(values: np.ndarray) -> Normalize:
    low, high = float(values.min()), float(values.max())
    return LogNorm(low, high) if low > 0 and high > 30 * low else Normalize(low, high)


def _grid(count: int, columns: int, rows: int) -> tuple[Figure, list[Axes], int]:
    """Axes one below another, or two beside each other where cells stay wide enough."""
    beside = style.beside(2 if count > 1 and columns <= _MOST // 2 else 1)
    width = 1.5 + _CELL[0] * columns * beside
    whole = style.figure(style.fitting(width), (0.75 + _CELL[1] * rows) * -(-count // beside))
    axes = whole.subplots(-(-count // beside), beside, squeeze=False, sharex=True, sharey=True).ravel()
    for ax in axes[count:]:
        ax.remove()
    return whole, list(axes[:count]), beside


def _draw(ax: Axes, values: pd.DataFrame, why: pd.DataFrame, norm: Normalize) -> None:
    """The cells and, unless they are too many, their values, dark on bright and bright on dark."""
    ax.imshow(values, cmap=_COLOURS, norm=norm, aspect="auto")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for (row, column), number in np.ndenumerate(values.to_numpy()):
        if np.isfinite(number) and values.shape[1] <= _MOST:
            colour = "white" if norm(number) < 0.5 else "#111111"
            ax.text(column, row, style.plain(number), ha="center", va="center", fontsize=6.5, color=colour)
        elif not np.isfinite(number):
            ax.text(
                column, row, str(why.iloc[row, column]), ha="center", va="center", fontsize=6, color="#444444"
            )
