"""From the time of one step to that of another: what each activity added or saved."""

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from lockstep.analysis.plots import style
from lockstep.analysis.plots.breakdown import NAMES
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import label, scale

if TYPE_CHECKING:
    from lockstep.analysis.differences import Pair

_LESS, _MORE, _WHOLE = "#009E73", "#D55E00", "#666666"


@styled
def waterfall(pair: "Pair") -> Figure:
    """A bar for each step, and between them a bar for each activity of the mean worker that changed."""
    firsts, seconds = (sum(values) for values in zip(*pair.step_s.values(), strict=True))
    its = scale("duration_s", [firsts, seconds])
    changed = [
        (part, b - a) for part, (a, b) in pair.step_s.items() if abs(b - a) > 1e-3 * max(firsts, seconds)
    ]
    whole, (ax,) = style.grid(1, height=0.8 + 0.24 * (len(changed) + 2))
    names, reached = [pair.sides[0]], firsts
    ax.barh(0, firsts * its.factor, 0.66, color=_WHOLE)
    for place, (part, change) in enumerate(changed, 1):
        colour = _MORE if change > 0 else _LESS
        ax.barh(place, change * its.factor, 0.66, reached * its.factor, color=colour)
        ax.annotate(f"{change * its.factor:+.3g}", (max(reached, reached + change) * its.factor, place),
                    (3, 0), textcoords="offset points", va="center", fontsize=6.5)  # fmt: skip
        names.append(NAMES[part])
        reached += change
    last = len(changed) + 1
    ax.barh(last, seconds * its.factor, 0.66, color=_WHOLE)
    for place, value in ((0, firsts), (last, seconds)):
        ax.annotate(f"{value * its.factor:.3g}", (value * its.factor, place), (3, 0),
                    textcoords="offset points", va="center", fontsize=6.5)  # fmt: skip
    names.append(pair.sides[1])
    ax.set_yticks(range(len(names)), [name if len(name) < 28 else f"…{name[-26:]}" for name in names])
    ax.set_ylim(last + 0.6, -0.6)
    ax.margins(x=0.16)
    ax.set_xlim(0)
    ax.set_xlabel(label("duration_s", its).replace("duration", "time of a step"))
    relative = seconds / firsts - 1
    style.title(whole, [ax], [f"a step takes {abs(relative):.1%} {'longer' if relative > 0 else 'less'}"])
    return whole
