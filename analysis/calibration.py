"""The picture of a calibration: compute times and what fits them, what updates cost, how cores are shared."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lockstep.analysis.plots import style
from lockstep.analysis.plots.style import COLOURS, styled

_STYLES = ("-", "--", ":")
_MARKERS = "osD^vP*X"


class Sample(NamedTuple):
    """Times (s) of one workload's gradients, and scipy's distributions that fit them, the best first."""

    name: str
    times: Sequence[float]
    fits: Mapping[str, Any]


@styled
def picture(samples: Sequence[Sample], evidence: Mapping[str, Any], path: Path) -> list[Path]:
    """A row for each sample, and one for `apply` and `cores` of a profile's evidence, if they are there.

    Writes `path` with the endings .png and .svg, and returns both; nothing if there is nothing to show.
    """
    last = [key for key in ("apply", "cores") if key in evidence]
    rows = len(samples) + bool(last)
    if not rows:
        return []
    figure = style.figure(style.DOUBLE, 2.5 * rows)
    grid = figure.subfigures(rows, 1, squeeze=False)[:, 0]
    for part, sample in zip(grid, samples, strict=False):
        left, right = part.subplots(1, 2)
        _densities(left, sample)
        _quantiles(right, sample)
    if last:
        axes = np.atleast_1d(grid[-1].subplots(1, len(last)))
        for ax, key in zip(axes, last, strict=True):
            {"apply": _apply, "cores": _cores}[key](ax, evidence[key])
    return style.save(figure, path, ("png", "svg"))


def _densities(ax: Axes, sample: Sample) -> None:
    """A histogram of the central 99%, and the densities."""
    ms = 1e3 * np.asarray(sample.times)
    low, high = np.quantile(ms, [0.0, 0.99])
    high = max(high, low * (1 + 1e-6))
    ax.hist(
        ms, bins=60, range=(low, high), weights=np.full(len(ms), 60 / (high - low) / len(ms)), color="0.8"
    )
    x = np.linspace(low, high, 400)
    for (name, fit), colour, line in zip(sample.fits.items(), COLOURS, _STYLES, strict=False):
        ax.plot(x, fit.pdf(x / 1e3) / 1e3, line, color=colour, label=name)
    ax.set(title=f"Gradients: {sample.name} (n = {len(ms):,})", xlabel="time of a gradient (ms)")
    ax.set(ylabel="density (1/ms)", xlim=(low - 0.02 * (high - low), high))
    ax.legend()


def _quantiles(ax: Axes, sample: Sample) -> None:
    """Measured quantiles against those of the distributions: on the diagonal they agree."""
    ms = 1e3 * np.sort(sample.times)
    shares = (np.arange(len(ms)) + 0.5) / len(ms)
    few = np.unique(np.round(np.linspace(0, len(ms) - 1, 200)).astype(int))
    few = np.union1d(few, np.arange(max(0, len(ms) - 10), len(ms)))
    for number, (name, fit) in enumerate(sample.fits.items()):  # the first ones larger: others may cover them
        colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
        ax.plot(
            1e3 * fit.ppf(shares[few]),
            ms[few],
            marker,
            ms=max(2, 5 - 1.5 * number),
            color=colour,
            label=name,
            mfc="none",
        )
    ends = ms[0], ms[-1]
    ax.plot(ends, ends, color="grey", lw=0.8)
    margin = 0.05 * (ends[1] - ends[0]) or 0.05 * ends[0]
    ax.set(xlim=(ends[0] - margin, ends[1] + margin), ylim=(ends[0] - margin, ends[1] + margin))
    ax.set(title="Quantiles", xlabel="of the distribution (ms)", ylabel="measured (ms)")
    ax.legend()


def _apply(ax: Axes, evidence: Mapping[str, Any]) -> None:
    """Seconds of an update against the size of the shard, by rule."""
    sizes = np.asarray(evidence["sizes"]) / 1e6
    for number, (name, rule) in enumerate(evidence["rules"].items()):
        colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
        ms = 1e3 * np.asarray(rule["seconds"])
        label = f"{name} ({rule['passes']} passes)"
        ax.plot(sizes, ms, marker=marker, ms=3, lw=0.8, color=colour, label=label)
    ax.set(xscale="log", yscale="log", xlabel="shard (MB)", ylabel="time of an update (ms)", title="Updates")
    ax.legend(ncols=1, loc="upper left", bbox_to_anchor=(1.0, 1.02))


def _cores(ax: Axes, evidence: Mapping[str, Any]) -> None:
    """How much longer a gradient takes when m processes compute, and the curve max(1, m ÷ c)."""
    m = np.array([int(count) for count in evidence["slowdown"]])
    ax.plot(m, list(evidence["slowdown"].values()), "o", color=COLOURS[1], label="measured")
    x, c = np.linspace(1, m.max(), 200), evidence["effective"]
    ax.plot(x, np.maximum(1, x / c), color=COLOURS[0], label=f"max(1, m ÷ {c:.3g})")
    ax.set(title="Cores", xlabel="processes m that compute at once", ylabel="time of a gradient ÷ alone")
    ax.set(ylim=(0, None))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend()
