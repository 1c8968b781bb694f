"""Time against cost or, where hosts have no price, machine time: what is worth its price."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep.analysis.plots import style
from lockstep.analysis.plots.against import BARS
from lockstep.analysis.plots.findings import headed
from lockstep.analysis.plots.series import Unfit, apart, lines, once, ready, varied
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import label, scale
from lockstep.analysis.table import intervals
from lockstep.analysis.words import count


@styled
def pareto(table: pd.DataFrame, by: str | None = None) -> Figure:
    """Time to the target against its cost or, where that is not known, that time × hosts: a point a scenario.

    Where no target is reached, the time in which a million samples are applied, which says nothing of what
    staleness costs.
    The front joins the points that no other beats in both. Numbers at points: the workers, if they vary, and
    if there is room.
    """
    table, failed = ready(table)
    if "hosts" not in table:
        raise Unfit("the table has no column hosts")
    if table["engine"].nunique() > 1:
        raise Unfit("there are predicted and measured runs; choose with --only engine=simulator")
    reached = "time_to_target_s" in table and table["time_to_target_s"].notna().any()
    time = "time_to_target_s" if reached else "million_s"
    table = table.assign(million_s=1e6 / table["throughput"])
    dear = "cost_to_target" if reached else "cost_of_million"
    if dear not in table or table[dear].isna().ne(table[time].isna()).any():
        dear = "machine_time"
        table["machine_time"] = table[time] * table["hosts"]
    by = apart(table, by)
    keys = list(dict.fromkeys([*varied(table), by, "cluster.workers"]))
    times = intervals(table, keys, time)[["mean", "low", "high"]].add_suffix("_time")
    points = intervals(table, keys, dear).join(times)
    if len(points) < 2:
        raise Unfit("it takes two scenarios or more that differ in a key")
    never = table.groupby(keys, dropna=False).ngroups - len(points)
    price, delay = scale(dear, points["mean"]), scale(time, points["mean_time"])
    points[["mean", "low", "high"]] *= price.factor
    points[["mean_time", "low_time", "high_time"]] *= delay.factor
    whole = style.figure(style.SINGLE, 2.4)
    ax = whole.subplots()
    entries: dict[str, Any] = {}
    for each in lines(points, by):
        entries[each.name] = _points(ax, each.rows, each.look)
    front, line = _front(ax, points)
    if line is not None:
        entries["front"] = line
    for axis, column in (("x", "mean"), ("y", "mean_time")):
        if style.is_wide(points[column].tolist(), 10):
            style.logarithmic(ax, "x" if axis == "x" else "y", points[column])
            ax.set(**{f"{axis}lim": (points[column].min() / 1.5, points[column].max() * 1.5)})
        else:
            ax.set(**{f"{axis}lim": (0, 1.2 * points[column].max())})
            style.numbers(ax.xaxis if axis == "x" else ax.yaxis)
    ax.grid(True)
    title = f"Time against {'machine time' if dear == 'machine_time' else 'cost'}"
    there = [each.name for each in lines(points, by) if each.rows.index.isin(front.index).any()]
    finding = f"{', '.join(there)} on the front" if len(there) < points[by].nunique() else ""
    style.title(whole, [ax], [headed(title, finding)])
    ax.set(xlabel=label(dear, price), ylabel=label(time, delay))
    style.legend(whole, entries)
    numbered = points["cluster.workers"].nunique() > 1
    notes = ["Numbers: workers."] * numbered
    notes += [BARS] * bool((points["runs"] > 1).any())
    notes += [f"{count(never, 'scenario')} never reached the target."] * (never > 0)
    style.note(whole, once([*notes, failed]))
    if numbered:
        style.label(ax, points["mean"], points["mean_time"], points["cluster.workers"].map("{:.0f}".format))
    return whole


def _points(ax: Axes, rows: pd.DataFrame, look: dict[str, Any]) -> Any:
    up, along = (
        np.array([rows[f"mean{which}"] - rows[f"low{which}"], rows[f"high{which}"] - rows[f"mean{which}"]])
        for which in ("_time", "")
    )
    look = look | {"linestyle": "none", "markersize": 5}
    return ax.errorbar(rows["mean"], rows["mean_time"], up, along, elinewidth=0.6, capsize=0, **look)[0]


def _front(ax: Axes, points: pd.DataFrame) -> tuple[pd.DataFrame, Any]:
    """The points that are faster than all that cost no more, and a line through them; None if that is one."""
    rising = points.sort_values(["mean", "mean_time"])
    best = rising[rising["mean_time"] < rising["mean_time"].cummin().shift(fill_value=float("inf"))]
    if len(best) < 2:
        return best, None
    return best, ax.plot(best["mean"], best["mean_time"], color="grey", lw=0.8, ls=(0, (2, 2)), zorder=1)[0]
