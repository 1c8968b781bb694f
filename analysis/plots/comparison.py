"""What `validate` draws: predicted and measured metrics of some strategies, side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from lockstep.analysis.plots.style import from_zero, style
from lockstep.analysis.result import Result

_SIDES: dict[str, dict[str, Any]] = {"predicted": {}, "measured": {"fill": False, "hatch": "////"}}


def predicted_and_measured(pairs: Sequence[tuple[Result, Result]], path: Path) -> list[Path]:
    """Throughput, staleness and, where something was learned, loss against time of (predicted, measured).

    Writes `path` with the endings .png and .svg, and returns both.
    """
    learned = any(len(result.curve) for pair in pairs for result in pair)
    names = [predicted.scenario.strategy.name for predicted, _ in pairs]
    bars = 1 + 0.55 * len(pairs)  # inches
    heights = [bars, 3.4] if learned else [bars]
    figure = Figure(figsize=(9, sum(heights) + 0.9), layout="constrained")
    rows = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    left, right = rows[0].subplots(1, 2, sharey=True)
    _bars(left, names, [[r.metrics["throughput"] for r in pair] for pair in pairs])
    left.set(title="Throughput", xlabel="samples/s")
    _bars(right, names, [[r.metrics["staleness"]["mean"] for r in pair] for pair in pairs])
    right.set(title="Mean staleness", xlabel="versions")
    grey = [Patch(color="grey", label=side, **look) for side, look in _SIDES.items()]
    rows[0].legend(handles=grey, loc="outside upper center", frameon=False, ncols=2)
    if learned:
        _curves(rows[1].subplots(), pairs)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [path.with_name(path.name + ending) for ending in (".png", ".svg")]
    figure.get_layout_engine().set(w_pad=0.1)  # type: ignore[union-attr,call-arg]
    for file in written:
        figure.savefig(file, dpi=150)
    return written


def _bars(ax: Axes, names: Sequence[str], values: Sequence[Sequence[float | None]]) -> None:
    """A predicted and a measured bar for each name, the first at the top; values: (names, 2)."""
    places = np.arange(len(names))
    colours = [style(name)["color"] for name in names]
    for side, look in enumerate(_SIDES.values()):
        lengths = [pair[side] for pair in values]
        widths = [length or 0 for length in lengths]
        bars = ax.barh(places + (side - 0.5) * 0.38, widths, 0.36, color=colours, edgecolor=colours, **look)
        ax.bar_label(bars, [_number(length) for length in lengths], fontsize=8, padding=3)
    ax.set_yticks(places, names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    known = [v for pair in values for v in pair if v]
    ax.set_xlim(1.18 * min([0, *known]), 1.18 * max([0, *known]) or 1)  # models may be from the future
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(lambda x, _: _number(x))
    ax.spines[["top", "right"]].set_visible(False)


def _number(value: float | None) -> str:
    """Three significant digits, or all before the point with commas; a dash for nothing."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _curves(ax: Axes, pairs: Sequence[tuple[Result, Result]]) -> None:
    """Held-out loss against time: lines predicted, dots measured, a colour and a marker a strategy.

    Earlier lines are wider, so that equal ones are all seen.
    """
    first = [result.curve["loss"].iloc[0] for pair in pairs for result in pair if len(result.curve)]
    for number, (predicted, measured) in enumerate(pairs):
        name = predicted.scenario.strategy.name
        look = style(name) | {"markeredgewidth": 0.6}
        over = 1 - number / len(pairs)
        line = {"color": look["color"], "linestyle": look["linestyle"], "lw": 1 + 2 * over}
        ax.plot(predicted.curve["time"], predicted.curve["loss"], **line)
        dots = measured.curve.iloc[:: max(1, len(measured.curve) // 12)]
        ax.plot(dots["time"], dots["loss"], **look | {"linestyle": "none", "markersize": 4 + 4 * over})
        ax.plot([], [], label=name, **look)
    ax.plot([], [], "-", color="grey", label="predicted")
    ax.plot([], [], "o", color="grey", label="measured")
    ax.set(title="Held-out loss", xlabel="time since the first mini-batch (s)", ylabel="loss", xlim=(0, None))
    highest = 2 * max((loss for loss in first if np.isfinite(loss)), default=np.inf)
    from_zero(ax, ax.dataLim.y1)
    ax.set_ylim(0, min(ax.get_ylim()[1], highest))  # one that diverges would flatten all others
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    ax.spines[["top", "right"]].set_visible(False)
