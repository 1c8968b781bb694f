"""Which of several ways is best over two keys: a name in each cell."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lockstep.analysis.plots import style
from lockstep.analysis.plots.findings import headed
from lockstep.analysis.plots.series import (
    Unfit,
    besides,
    follows,
    known,
    named,
    numeric,
    once,
    ready,
    value,
    varied,
)
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import LESS_IS_BETTER, words
from lockstep.analysis.table import intervals
from lockstep.analysis.words import percent

_CELL = (0.08, 0.045, 0.42)  # inches: of a cell besides its text, of a letter, and how high it is
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
_AHEAD = "+: how far the best is ahead of the next; pale below 5%."
_HATCHED = "Hatched: the 95% intervals over seeds of the best and the next overlap."
_CLOSE = 0.05  # of the best: what is behind by less is as good as the best for the model's error


@styled
def decision(
    table: pd.DataFrame, x: str | None = None, by: str | None = None, y: str | None = None
) -> Figure:
    """The best of all that else varies, by the metric `y`, over the keys `x` (columns) and `by` (rows).

    By default those keys that are numbers and say nothing of the strategy or of how the model is split; the
    time to the target or else the throughput. A cell says by how much the best is ahead of the next, and is
    pale where that is less than 5%, and hatched where the 95% intervals of the two over seeds overlap. Left
    out are runs that failed, such as those that do not fit, and ways of which a run has no such metric.
    """
    ended, failed = ready(table)
    y = known(ended, y, "--y") if y else _metric(ended)
    x, by = _keys(ended, x and known(ended, x, "--x"), by and known(ended, by, "--by"))
    ways = besides(ended, [x, by])
    if not ways:
        raise Unfit("it takes something to decide: a key that varies besides those of columns and rows")
    rows = ended[ways].to_dict("records")
    ended = ended.assign(way=[_way(ended, row) for row in rows])
    whole_ways = ended[
        ended[y].notna().groupby([ended[key] for key in (by, x, "way")], dropna=False).transform("all")
    ]
    cells = intervals(whole_ways, [by, x, "way"], y)
    if cells.empty:
        raise Unfit(f"no run has a {words(y)}")
    names = list(dict.fromkeys(ended["way"]))
    colours = _colours(ended, names, ways)
    across, down = (sorted(ended[key].unique().tolist()) for key in (x, by))
    longest = max(len(part) for name in names for part in name.split(", "))
    width = 0.9 + (_CELL[0] + _CELL[1] * longest) * len(across)
    whole = style.figure(style.fitting(width), 0.9 + _CELL[2] * len(down))
    ax = whole.subplots()
    best, unsure = _draw(ax, cells.set_index([by, x]), across, down, colours, y in LESS_IS_BETTER)
    ax.set_xticks(range(len(across)), [value(ended, x, item) for item in across])
    ax.set_yticks(range(len(down)), [value(ended, by, item) for item in down])
    ax.set_xlabel(words(x))
    ax.set_ylabel(words(by))
    style.title(whole, [ax], [headed(f"Best by {words(y)}", _finding(best))])
    style.note(whole, once([_AHEAD, _HATCHED if unsure else "", failed]))
    return whole


def _finding(best: Sequence[str]) -> str:
    """What is best most often: "asynchronous in 4 of 9"."""
    often = Counter(best)
    name, times = often.most_common(1)[0]
    return f"{name} everywhere" if len(often) == 1 else f"{name} in {times} of {len(best)}"


def _colours(table: pd.DataFrame, names: Sequence[str], ways: Sequence[str]) -> dict[str, str]:
    """Of strategies their own, if these differ."""
    own = {name: str(style.style(name)["color"]) for name in names}
    if list(ways) == ["strategy.name"] and len(set(own.values())) == len(names):
        return own
    return {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}


def _way(table: pd.DataFrame, row: Mapping[Hashable, Any]) -> str:
    """What is set of a way: what another strategy has is not missing."""
    said = [named(table, str(key), item) for key, item in row.items() if not pd.isna(item)]
    return ", ".join(said) or "nothing set"


def _metric(table: pd.DataFrame) -> str:
    reached = "time_to_target_s" in table and table["time_to_target_s"].notna().any()
    return "time_to_target_s" if reached else "throughput"


def _keys(table: pd.DataFrame, x: str | None, by: str | None) -> tuple[str, str]:
    there = [
        key
        for key in varied(table)
        if numeric(table, key) and not key.startswith(("strategy.", "parallelism."))
    ]
    there.sort(key=lambda key: (not key.startswith("cluster.network"), not key.startswith("cluster.")))
    x = x or next((key for key in there if key != by), None)
    sizes = sorted(there, key=lambda key: key != "workload.parameters")
    by = by or next((key for key in sizes if key != x and x and not follows(table, [x], key)), None)
    if x is None or by is None:
        raise Unfit("it takes two numbers that vary independently of each other; name them with --x and --by")
    return x, by


def _draw(
    ax: Axes,
    cells: pd.DataFrame,
    across: Sequence[Any],
    down: Sequence[Any],
    colours: dict[str, str],
    lower: bool,
) -> tuple[list[str], bool]:
    """The cells, with the best way in each: what these are, and whether seeds may have chosen one."""
    picture, unsure, chosen = np.ones((len(down), len(across), 3)), False, list[str]()
    for (row, item), (column, other) in ((r, c) for r in enumerate(down) for c in enumerate(across)):
        if (item, other) not in cells.index:
            ax.text(column, row, "none fits", ha="center", va="center", fontsize=6.5, color="#444444")
            continue
        found = cells.loc[[(item, other)]].sort_values("mean", ascending=lower, kind="stable")
        name, best = str(found["way"].iloc[0]), float(found["mean"].iloc[0])
        chosen.append(name)
        second = float(found["mean"].iloc[1]) if len(found) > 1 else np.inf
        if len(found) > 1 and _overlap(found.iloc[0], found.iloc[1]):
            box = Rectangle(
                (column - 0.5, row - 0.5), 1, 1, fill=False, hatch="////", edgecolor="white", lw=0
            )
            ax.add_patch(box)
            unsure = True
        ahead = second / best - 1 if lower else best / second - 1 if second else np.inf
        ahead = ahead if len(found) > 1 else np.inf
        strength = 0.9 if ahead >= _CLOSE else 0.35
        picture[row, column] = 1 - strength * (1 - np.array(to_rgb(colours[name])))
        text = name.replace(", ", "\n") + (f"\n+{percent(ahead)}" if np.isfinite(ahead) else "\nalone")
        dark = picture[row, column].mean() < 0.5
        behind = {"facecolor": picture[row, column], "lw": 0, "pad": 1.2}  # so that no hatch runs through it
        place: Any = {"ha": "center", "va": "center", "fontsize": 6, "bbox": behind}
        ax.text(column, row, text, color="white" if dark else "#111111", **place)
    ax.imshow(picture, aspect="auto")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return chosen, unsure


def _overlap(best: pd.Series, second: pd.Series) -> bool:
    """Whether the intervals of two ways overlap, so that seeds may have made the difference."""
    several = min(best["runs"], second["runs"]) > 1
    return bool(several and best["low"] <= second["high"] and second["low"] <= best["high"])
