"""How busy links and processors are over time."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from lockstep.analysis.plots import style
from lockstep.analysis.plots.series import MOST_PANELS, Unfit, titles
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import Scale, scale
from lockstep.analysis.result import Result
from lockstep.analysis.runs import describe
from lockstep.analysis.utilisation import of_those_there
from lockstep.analysis.words import count

_COLOURS = "cividis"
_MOST = 8  # resources of a run
_STEPS = 200


@styled
def link_utilisation(results: Sequence[Result]) -> Figure:
    """Of up to six simulations the busiest links and processors: a row each, the brighter the busier.

    The mean over the run stands behind each name. Of runs that differ in the seed alone, the first: the
    title says which.
    """
    known = [result for result in results if result.utilisation is not None and len(result.utilisation)]
    if not known:
        raise Unfit("only a simulation knows it, and there are records of none")
    table = describe(known)
    known = [
        known[place] for place in table.drop(columns="seed").drop_duplicates().index
    ]  # of seeds the first
    shown = known[:MOST_PANELS]
    busiest = [_busiest(result) for result in shown]
    rows = max(map(len, busiest))
    columns, narrow = style.beside(1 if len(shown) == 1 else 2), style.beside(2) == 1
    down = -(-len(shown) // columns)
    whole = style.figure(style.SINGLE if narrow else style.DOUBLE, (0.65 + 0.16 * rows) * down + 0.15)
    all_axes = list(whole.subplots(down, columns, squeeze=False).ravel())
    for ax in all_axes[len(shown) :]:
        ax.remove()
    said = []
    for ax, result, busy, title in zip(all_axes, shown, busiest, titles(describe(shown)), strict=False):
        _strips(ax, result, busy)
        name, share = next(iter(busy.items()))
        said.append(f"{title}, seed {result.scenario.seed}: {name} is busiest, {share:.0%}")
    style.title(whole, all_axes[: len(shown)], said)
    bar = whole.colorbar(
        ScalarMappable(Normalize(0, 100), _COLOURS), ax=all_axes[: len(shown)], pad=0.02, aspect=30,
        location="top" if narrow else "right",
    )  # fmt: skip
    bar.set_label("busy (%)")
    bar.outline.set_visible(False)
    more = len(known) - len(shown)
    style.note(whole, f"Not shown: {count(more, 'more scenario')}." * (more > 0))
    return whole


def _busiest(result: Result) -> dict[str, float]:
    """The busiest resources and the fraction of the run that each was busy, busiest first."""
    table = of_those_there(result)
    there = set() if table is None else {*table["resource"]}
    busy = {name: share for name, share in (result.busy or {}).items() if name in there}
    return dict(sorted(busy.items(), key=lambda item: -item[1])[:_MOST])


def _strips(ax: Axes, result: Result, busy: dict[str, float]) -> None:
    begin, finish = result.span
    over: Scale = scale("duration_s", [finish - begin])
    table = result.utilisation
    assert table is not None
    edges = np.linspace(begin, finish, _STEPS + 1)
    cells = np.array([_over(table[table["resource"] == name], edges) for name in busy])
    ax.pcolormesh(
        (edges - begin) * over.factor, np.arange(len(busy) + 1), 100 * cells,
        cmap=_COLOURS, vmin=0, vmax=100, rasterized=True,
    )  # fmt: skip
    ax.set_yticks(np.arange(len(busy)) + 0.5, [f"{name} ({share:.0%})" for name, share in busy.items()])
    ax.tick_params(axis="y", length=0)
    ax.hlines(np.arange(1, len(busy)), *((edges[[0, -1]] - begin) * over.factor), color="white", lw=1)
    ax.set_ylim(len(busy), 0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel(f"time ({over.unit})")


def _over(rows: pd.DataFrame, edges: np.ndarray) -> np.ndarray:
    """The busy fraction between each two edges, of a resource's intervals; shape (edges − 1,)."""
    rows = rows.sort_values("start")
    times = np.append(rows["start"].to_numpy(), rows["end"].to_numpy()[-1])
    seconds = np.append(0.0, np.cumsum(rows["busy"] * (rows["end"] - rows["start"])))
    return np.asarray(np.diff(np.interp(edges, times, seconds)) / np.diff(edges))
