"""Pictures of how near predictions were to measurements, as PNG and SVG."""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from textwrap import wrap

import matplotlib

matplotlib.use("Agg")  # no window is wanted
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from lockstep.analysis.plots import MEASURED, PREDICTED, style
from lockstep.analysis.plots.findings import headed
from lockstep.analysis.plots.style import styled
from lockstep.analysis.words import percent

# Okabe and Ito's colours, safe for the colour-blind, each with a marker and a line of its own.
_REGIMES = {
    "network": ("network-bound", "#0072B2", "o", "-"),
    "balanced": ("balanced", "#E69F00", "s", "--"),
    "compute": ("compute-bound", "#009E73", "^", "-."),
}
_OTHERS = ("drawn cables", "#CC79A7", "D", ":")
_BAND = 0.05
_NAME = 34  # characters of 6 pt above a panel


@styled
def pictures(table: pd.DataFrame, out: Path, knee: float) -> list[Path]:
    """Draw what the table of comparisons has, into a folder; the files.

    `knee`: how many times as long as alone messages take once queues have formed.
    """
    whole = table[table["error"].isna()]
    if len(whole):
        whole = whole[~whole["disturbed"].astype(bool)]  # of these no headline tells either
    rates, learners = whole[whole["part"] != "learning"], whole[whole["part"] == "learning"]
    stale = rates[rates["staleness_ks"].notna()] if len(rates) else rates
    written = []
    if len(rates):
        written += _save(_scatter(rates, knee), out / "scatter") + _save(_distribution(rates), out / "errors")
    if len(stale):
        written += _save(_histograms(stale), out / "staleness")
    if len(learners):
        written += _save(_curves(learners), out / "curves")
    return written


def _save(figure: Figure, path: Path) -> list[Path]:
    plt.close(figure)
    return style.save(figure, path, ("png", "svg"))


def _held_out(rates: pd.DataFrame) -> pd.DataFrame:
    """The runs that no calibration has seen; all, if it has seen all."""
    return rates[rates["held_out"]] if rates["held_out"].any() else rates


def _spread(rates: pd.DataFrame, column: str, said: Callable[[float], str]) -> str:
    """How large the errors of held-out runs are."""
    sizes = _held_out(rates)[column].dropna().abs()
    if not len(sizes):
        return ""
    half, most = (said(float(np.quantile(sizes, share))) for share in (0.5, 0.9))
    return f"half of {len(sizes)} within {half}, 90% within {most}"


def _groups(rates: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str, str], pd.DataFrame]]:
    """The label, colour, marker and line of each group that has points, and these."""
    kinds = rates["regime"].map(_REGIMES).map(lambda known: known if isinstance(known, tuple) else _OTHERS)
    for group in (*_REGIMES.values(), _OTHERS):
        if (kinds == group).any():
            yield group, rates[kinds == group]


def _scatter(rates: pd.DataFrame, knee: float) -> Figure:
    """Predicted against measured throughput; hollow: in calibration's range."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(style.DOUBLE, 3.2), layout="constrained")
    for (label, colour, marker, _), its in _groups(rates):
        for held_out in (False, True):
            rows = its[its["held_out"] == held_out]
            face = colour if held_out else "none"
            look = {"marker": marker, "edgecolors": colour, "facecolors": face, "s": 12, "linewidths": 0.8}
            left.scatter(rows["measured_throughput"], rows["predicted_throughput"], **look)
            right.scatter(rows["stretch"].fillna(1), 100 * rows["throughput_error"], **look)
        left.scatter([], [], marker=marker, color=colour, label=label, s=12)
    left.scatter(
        [],
        [],
        12,
        marker="o",
        edgecolors="grey",
        facecolors="none",
        label="1 or 2 workers, as calibrated",
    )
    values = rates[["measured_throughput", "predicted_throughput"]].to_numpy(float)
    line = np.array([values.min() / 1.2, values.max() * 1.2])
    left.plot(line, line, color="black", lw=0.8, zorder=0)
    left.fill_between(
        line, (1 - _BAND) * line, (1 + _BAND) * line, color="grey", alpha=0.25, lw=0, zorder=0, label="±5%"
    )
    left.set(xscale="log", yscale="log", xlim=line, ylim=line, aspect="equal")
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if line[1] < 30 * line[0] else (1,)))
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axis.set_minor_formatter(NullFormatter())
    left.set(title=headed("Throughput", _spread(rates, "throughput_error", percent)))
    left.set(xlabel="measured (samples/s)", ylabel="predicted (samples/s)")
    left.legend(loc="upper left")
    right.axhspan(-100 * _BAND, 100 * _BAND, color="grey", alpha=0.25, lw=0, zorder=0)
    right.axhline(0, color="black", lw=0.8, zorder=0)
    right.axvline(knee, color="grey", lw=0.8, ls=":", zorder=0)
    right.set(title="Its error; right of the dotted line queues form", xscale="log")
    right.set(xlabel="time of a message ÷ its time alone (predicted)", ylabel="error (%)")
    ticks = [tick for tick in (1, 2, 3, 4, 6, 8, 12, 16) if tick <= rates["stretch"].max() * 1.1]
    right.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
    right.set_xticks([], minor=True)
    return figure


def _distribution(rates: pd.DataFrame) -> Figure:
    """The share of held-out runs whose error is at most so large, by regime."""
    figure, axes = plt.subplots(1, 2, figsize=(style.DOUBLE, 2.4), layout="constrained")
    rows = _held_out(rates)
    for ax, column, scale in ((axes[0], "throughput_error", 100), (axes[1], "staleness_ks", 1)):
        for (label, colour, _, line), its in _groups(rows):
            sizes = np.sort(its[column].dropna().abs().to_numpy(float)) * scale
            if len(sizes):
                shares = np.arange(1, len(sizes) + 1) / len(sizes)
                ax.step(
                    [0, *sizes],
                    [0, *shares],
                    where="post",
                    color=colour,
                    ls=line,
                    label=f"{label} ({len(sizes)})",
                )
        ax.set(ylim=(0, 1.02), xlim=(0, None), ylabel="share of runs")
        ax.axhline(0.5, color="grey", lw=0.6, ls=":")
        ax.axhline(0.9, color="grey", lw=0.6, ls=":")
        if ax.get_legend_handles_labels()[0]:  # a panel may have no runs
            ax.legend(loc="lower right", title="regime (runs)")
    axes[0].set(title=headed("Throughput", _spread(rows, "throughput_error", percent)))
    axes[0].set(xlabel="absolute error (%)")
    axes[1].set(title=headed("Staleness", _spread(rows, "staleness_ks", "{:.3f}".format)))
    axes[1].set(xlabel="Kolmogorov–Smirnov distance")
    return figure


def _histograms(stale: pd.DataFrame, panels: int = 9) -> Figure:
    """Staleness, predicted and measured, of points from the best KS distance to the worst."""
    ordered = stale.sort_values(["staleness_ks", "name"], kind="stable")
    places = np.unique(np.linspace(0, len(ordered) - 1, min(panels, len(ordered))).round().astype(int))
    chosen = ordered.iloc[places]
    figure, axes = _panels(len(chosen), 3)
    for ax, (_, row) in zip(axes, chosen.iterrows(), strict=False):
        for side, colour, look in (
            ("predicted", PREDICTED, {"alpha": 0.45}),
            ("measured", MEASURED, {"fill": False}),
        ):
            counts = np.array(row[f"{side}_staleness_count"], float)
            bars = ax.bar(
                row[f"{side}_staleness"], counts / counts.sum(), 0.9, color=colour, edgecolor=colour, **look
            )
            bars.set_label(side)
        ax.set_title("\n".join([*wrap(row["name"], _NAME), f"KS {row['staleness_ks']:.3f}"]), fontsize=6)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    figure.supxlabel("staleness (versions)", fontsize=8)
    figure.supylabel("share of updates", fontsize=8)
    return figure


def _curves(learners: pd.DataFrame) -> Figure:
    """Held-out loss against time, a panel a strategy, a pair of lines a seed."""
    groups = list(learners.groupby("strategy", sort=False))
    figure, axes = _panels(len(groups), 3)
    for ax, (strategy, rows) in zip(axes, groups, strict=False):
        for _, row in rows.iterrows():
            ax.plot(row["predicted_curve_s"], row["predicted_curve_loss"], color=PREDICTED, lw=0.8)
            ax.plot(row["measured_curve_s"], row["measured_curve_loss"], ".", color=MEASURED, ms=2)
        ax.set_title(str(strategy))
        ax.set(xlim=(0, None), ylim=(0, 2.5))
    lines = [Line2D([], [], color=PREDICTED), Line2D([], [], color=MEASURED, marker=".", ls="")]
    figure.legend(lines, ["predicted", "measured"], loc="outside upper center", ncols=2)
    figure.supxlabel("time since the first mini-batch (s)", fontsize=8)
    figure.supylabel("held-out loss", fontsize=8)
    return figure


def _panels(count: int, columns: int) -> tuple[Figure, Sequence[Axes]]:
    """Panels in rows; those beyond `count` are not there."""
    rows, columns = ceil(count / columns), min(columns, count)
    size = style.DOUBLE if columns > 1 else style.SINGLE, 1.7 * rows + 0.4
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for ax in axes.flat[count:]:
        ax.remove()
    return figure, list(axes.flat[:count])
