"""How much stragglers cost: a metric relative to the mildest ones, against how slow or frequent they are."""

import pandas as pd
from matplotlib.figure import Figure

from lockstep.analysis.plots.against import against
from lockstep.analysis.plots.series import Unfit, axes, known, named, numeric, ready, value, varied
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import words


@styled
def stragglers(
    table: pd.DataFrame, x: str | None = None, by: str | None = None, y: str = "throughput"
) -> Figure:
    """The metric `y` ÷ its value at the least `x`, of the same seed, against `x`.

    x: by default the first number of `cluster.stragglers` that varies, slowdowns first.
    """
    table, _ = ready(table)
    x = known(table, x, "--x") if x else _slowness(table)
    if not numeric(table, x) or table[x].nunique() < 2:
        raise Unfit(f"{words(x)} has to be a number that varies")
    y = known(table, y, "--y")
    others = [key for key in [*varied(table), "seed"] if key != x and not _part_of(key, x)]
    least = table[x].min()
    alike = [table[key] for key in others]
    base = table[y].where(table[x] == least).groupby(alike, dropna=False).transform("mean")
    table = table.assign(relative=table[y] / base)
    table = table[table[x].groupby(alike, dropna=False).transform("nunique") > 1]
    if not table["relative"].notna().any():
        raise Unfit(f"no two runs differ in {words(x)} alone")
    _, by = axes(table, x, by)
    text = f"{words(y)} relative\nto {words(x)} {value(table, x, least)}"
    found = _kept(table, x, by)
    return against(table, "relative", x, by, title="Stragglers", finding=found, y_label=text)


def _kept(table: pd.DataFrame, x: str, by: str) -> str:
    """How much of the metric the best and the worst keep at the end: "at slowdown 8 ssp keeps 20%, …"."""
    last = table[table[x] == table[x].max()]
    kept = last.groupby(by, sort=False)["relative"].mean().dropna().sort_values()
    if len(kept) < 2:
        return ""
    said = [f"{named(table, by, kept.index[place])} keeps {kept.iloc[place]:.0%}" for place in (-1, 0)]
    return f"at {named(table, x, last[x].iloc[0])} {', '.join(said)}"


def _slowness(table: pd.DataFrame) -> str:
    there = [k for k in varied(table) if k.startswith("cluster.stragglers") and numeric(table, k)]
    if not there:
        raise Unfit("no number of cluster.stragglers varies, such as a slowdown")
    return next((key for key in there if key.endswith(".slowdown")), there[0])


def _part_of(key: str, x: str) -> bool:
    """Whether two keys belong to one item of a list, such as the worker and its slowdown."""
    return "[" in x and key.startswith(x[: x.rindex(".") + 1])
