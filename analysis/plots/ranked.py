"""The ranking of a recommendation: a bar for each of the best, with its interval over seeds."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from lockstep.analysis.plots import style
from lockstep.analysis.plots.against import BARS
from lockstep.analysis.plots.style import styled
from lockstep.analysis.words import number

_MOST = 8
_LONGEST = 34  # characters of a name
_HOLLOW = (
    "Hollow: not in step; it may need more samples to learn as much, so the best in step is recommended."
)


@styled
def ranked(recommendation: Mapping[str, Any]) -> Figure:
    """What `recommend --json` prints as bars, best first; the recommended one is marked by an arrow."""
    known = [each for each in recommendation["ranking"] if each["mean"] is not None]
    shown, learned = known[:_MOST], recommendation["accuracy"] is not None
    whole, (ax,) = style.grid(1, height=0.7 + 0.2 * len(shown))
    if style.beside(2) == 2:
        whole.set_figwidth(style.DOUBLE)
    for place, each in enumerate(shown):
        half = each["high"] - each["mean"]
        colour = style.style(each["strategy"])["color"]
        steady = learned or each["in_step"]
        ax.barh(place, each["mean"], 0.7, edgecolor=colour, facecolor=colour if steady else "white")
        if half > 0:
            ax.errorbar(each["mean"], place, xerr=half, fmt="none", ecolor="#555555", elinewidth=0.8)
        ax.annotate(number(each["mean"]), (each["mean"] + half, place), (3, 0), textcoords="offset points",
                    va="center", fontsize=6.5)  # fmt: skip
    names = [_name(each["label"], each["label"] == recommendation["recommended"]) for each in shown]
    ax.set_yticks(range(len(shown)), names)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.set_xlim(0, 1.18 * max(each["high"] for each in shown))
    better = "more" if recommendation["better"] == "high" else "less"
    ax.set_xlabel(f"{recommendation['unit']} ({better} is better)")
    style.numbers(ax.xaxis)
    notes = [BARS] * any(each["high"] - each["mean"] > 1e-6 * each["mean"] for each in shown)
    notes += [_HOLLOW] * (not learned and not all(each["in_step"] for each in shown))
    notes += [f"Not shown: {len(known) - len(shown)} more."] * (len(known) > len(shown))
    style.note(whole, "\n".join(notes))
    return whole


def _name(label: str, recommended: bool) -> str:
    short = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
    return f"→ {short}" if recommended else short
