"""What `validate` draws: predicted and measured metrics of some strategies, side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from lockstep.analysis.plots import style
from lockstep.analysis.plots.findings import worst
from lockstep.analysis.plots.style import styled
from lockstep.analysis.result import Result
from lockstep.analysis.words import percent

_SIDES: dict[str, dict[str, Any]] = {"predicted": {}, "measured": {"fill": False, "hatch": "////"}}


@styled
def predicted_and_measured(pairs: Sequence[tuple[Result, Result]], path: Path) -> list[Path]:
    """Throughput, staleness and, where something was learned, loss against time of (predicted, measured).

    The error of each prediction stands at its bar. Writes `path` with the endings .png and .svg, and returns
    both.
    """
    learned = any(len(result.curve) for pair in pairs for result in pair)
    names = [(predicted.scenario.strategy.name, measured.disturbed) for predicted, measured in pairs]
    bars = 0.75 + 0.38 * len(pairs)  # inches
    heights = [bars, 2.5] if learned else [bars]
    whole = style.figure(style.DOUBLE, sum(heights) + 0.3)
    rows = whole.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    left, right = rows[0].subplots(1, 2, sharey=True)
    _bars(left, names, [[r.metrics["throughput"] for r in pair] for pair in pairs], "Throughput", "samples/s")
    stale = [[r.metrics["staleness"]["mean"] for r in pair] for pair in pairs]
    _bars(right, names, stale, "Mean staleness", "versions")
    grey = [Patch(color="grey", label=side, **look) for side, look in _SIDES.items()]
    rows[0].legend(handles=grey, loc="outside upper center", frameon=False, ncols=2)
    if learned:
        _curves(rows[1].subplots(), pairs)
    return style.save(whole, path, ("png", "svg"))


def _bars(
    ax: Axes,
    names: Sequence[tuple[str, bool]],
    values: Sequence[Sequence[float | None]],
    what: str,
    unit: str,
) -> None:
    """A predicted and a measured bar for each name, the first at the top; values: (names, 2).

    A name that stayed disturbed is marked so, and not in the title's error.
    """
    places = np.arange(len(names))
    colours = [style.style(name)["color"] for name, _ in names]
    for side, look in enumerate(_SIDES.values()):
        lengths = [pair[side] for pair in values]
        widths = [length or 0 for length in lengths]
        bars = ax.barh(places + (side - 0.5) * 0.38, widths, 0.36, color=colours, edgecolor=colours, **look)
        errors = [_error(*pair) if side == 0 else "" for pair in values]
        said = [f"{_number(length)}{error}" for length, error in zip(lengths, errors, strict=True)]
        ax.bar_label(bars, said, fontsize=6.5, padding=3)
    ax.set_yticks(places, [f"{name}{' (disturbed)' * noisy}" for name, noisy in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    known = [v for pair in values for v in pair if v]
    ax.set_xlim(1.35 * min([0, *known]), 1.35 * max([0, *known]) or 1)  # models may be from the future
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(lambda x, _: _number(x))
    counted = [pair for pair, (_, noisy) in zip(values, names, strict=True) if not noisy]
    both = [(p, m) for p, m in counted if p is not None and m is not None]
    found = worst([p for p, _ in both], [m for _, m in both])
    ax.set(title=f"{what} {found}".rstrip(), xlabel=unit)


def _error(predicted: float | None, measured: float | None) -> str:
    """How far off the prediction is, relative to what was measured; nothing where that is 0."""
    if predicted is None or not measured:
        return ""
    return f" ({percent(predicted / measured - 1, sign=True)})"


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
        look = style.style(name)
        over = 1 - number / len(pairs)
        line = {"color": look["color"], "linestyle": look["linestyle"], "lw": 0.8 + 1.2 * over}
        ax.plot(predicted.curve["time"], predicted.curve["loss"], **line)
        dots = measured.curve.iloc[:: max(1, len(measured.curve) // 12)]
        ax.plot(dots["time"], dots["loss"], **look | {"linestyle": "none", "markersize": 4.5 + 2 * over})
        ax.plot([], [], label=name, **look)
    ax.plot([], [], "-", color="grey", label="predicted")
    ax.plot([], [], "o", color="grey", label="measured")
    ax.set(
        title="Held-out loss against time",
        xlabel="time since the first mini-batch (s)",
        ylabel="loss",
        xlim=(0, None),
    )
    highest = 2 * max((loss for loss in first if np.isfinite(loss)), default=np.inf)
    style.from_zero(ax, ax.dataLim.y1)
    ax.set_ylim(0, min(ax.get_ylim()[1], highest))  # one that diverges would flatten all others
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
