"""Pictures, made with matplotlib and saved as PNG and SVG."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from analysis.records import Result

PREDICTED, MEASURED = "#0072B2", "#D55E00"  # Okabe and Ito's blue and vermilion: safe for the colour-blind


def predicted_and_measured(pairs: Sequence[tuple[Result, Result]], path: Path) -> list[Path]:
    """Throughput, staleness and, where something was learned, loss against time of (predicted, measured).

    Writes `path` with the endings .png and .svg, and returns both.
    """
    learned = any(len(predicted.curve) for predicted, _ in pairs)
    figure, axes = plt.subplots(
        1, 3 if learned else 2, figsize=(11 if learned else 7.5, 3.6), layout="constrained"
    )
    names = [predicted.scenario.strategy.name for predicted, _ in pairs]
    for ax, title, unit, values in (
        (axes[0], "Throughput", "samples/s", [[r.metrics["throughput"] or 0 for r in p] for p in pairs]),
        (
            axes[1],
            "Mean staleness",
            "versions",
            [[r.metrics["staleness"]["mean"] or 0 for r in p] for p in pairs],
        ),
    ):
        _bars(ax, names, np.array(values))
        ax.set(title=title, ylabel=unit)
    axes[0].legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1.1), ncols=2)
    if learned:
        _curves(axes[2], pairs)
    written = []
    for ending in (".png", ".svg"):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path.with_suffix(ending), dpi=150)
        written.append(path.with_suffix(ending))
    plt.close(figure)
    return written


def _bars(ax: Axes, names: Sequence[str], values: np.ndarray) -> None:
    """A predicted and a measured bar for each name; values has the shape (names, 2)."""
    places = np.arange(len(names))
    for side, (label, colour) in enumerate((("predicted", PREDICTED), ("measured", MEASURED))):
        bars = ax.bar(places + (side - 0.5) * 0.38, values[:, side], 0.36, label=label, color=colour)
        ax.bar_label(bars, fmt="%.3g", fontsize=7, padding=1)
    ax.set_xticks(places, [name.replace("-", "-\n") for name in names], fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.margins(y=0.12)


def _curves(ax: Axes, pairs: Sequence[tuple[Result, Result]]) -> None:
    """Held-out loss against time: lines predicted, dots measured, one grey level and marker a strategy."""
    markers = "osD^vP*X"
    for number, (predicted, measured) in enumerate(pairs):
        shade = plt.get_cmap("viridis")(number / max(1, len(pairs) - 0.5))
        name = predicted.scenario.strategy.name
        ax.plot(predicted.curve["time"], predicted.curve["loss"], color=shade, lw=1.5, label=name)
        step = max(1, len(measured.curve) // 12)
        dots = measured.curve.iloc[::step]
        ax.plot(dots["time"], dots["loss"], markers[number % 8], color=shade, ms=4)
    ax.plot([], [], "-", color="grey", label="predicted")
    ax.plot([], [], "o", color="grey", ms=4, label="measured")
    ax.set(title="Held-out loss", xlabel="time (s)", ylabel="cross entropy")
    ax.legend(frameon=False, fontsize=7)
    ax.spines[["top", "right"]].set_visible(False)
