"""From one time to another, a bar for each thing that added to it or saved some of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep.analysis.plots import style
from lockstep.analysis.plots.breakdown import NAMES
from lockstep.analysis.plots.series import Unfit
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import label, scale
from lockstep.analysis.what_if import IDEAL, NOW, UNTIL, WhatIf

if TYPE_CHECKING:
    from lockstep.analysis.differences import Pair

_LESS, _MORE, _WHOLE = "#009E73", "#D55E00", "#666666"
_ROW = 0.24  # inches
_REST = "all else but computing"
_SEEN = 1e-3  # of the longer one: a change that has a bar


@styled
def waterfall(pair: "Pair") -> Figure:
    """A bar for each step, and between them a bar for each activity of the mean worker that changed."""
    firsts, seconds = (sum(values) for values in zip(*pair.step_s.values(), strict=True))
    its = scale("duration_s", [firsts, seconds])
    changed = [
        (NAMES[part], (b - a) * its.factor)
        for part, (a, b) in pair.step_s.items()
        if abs(b - a) > _SEEN * max(firsts, seconds)
    ]
    whole, (ax,) = style.grid(1, height=0.8 + _ROW * (len(changed) + 2))
    ends = ((pair.sides[0], firsts * its.factor), (pair.sides[1], seconds * its.factor))
    _bars(ax, ends[0], changed, ends[1])
    ax.set_xlabel(label("duration_s", its).replace("duration", "time of a step"))
    relative = seconds / firsts - 1
    style.title(whole, [ax], [f"a step takes {abs(relative):.1%} {'longer' if relative > 0 else 'less'}"])
    return whole


@styled
def what_if(found: WhatIf) -> Figure:
    """From the time that a run takes now to the ideal: a bar for each change, besides all above it.

    A change after which the target was not reached has no bar. Raises Unfit if it is not reached as it is.
    """
    first = found.steps[0].seconds
    if first is None:
        raise Unfit("nothing was applied, so there is no time to begin with")
    its = scale("duration_s", [first])
    changes = [
        (_REST if step.change == IDEAL else step.change, None if more is None else more * its.factor)
        for step, more in found.changes
    ]
    last = found.steps[-1]
    ideal = (IDEAL, last.seconds * its.factor) if last.change == IDEAL and last.seconds is not None else None
    whole, (ax,) = style.grid(1, height=0.8 + _ROW * (len(changes) + 1 + bool(ideal)))
    _bars(ax, (NOW, first * its.factor), changes, ideal)
    ax.set_xlabel(label("duration_s", its).replace("duration", UNTIL[found.metric]))
    style.title(whole, [ax], [_finding(found)])
    style.note(whole, "Predicted. Each change is made besides those above it.")
    return whole


def _finding(found: WhatIf) -> str:
    """The change that saves most, in words, and what the ideal saves."""
    first = found.steps[0].seconds or 0.0
    saved = {step.change: -(more or 0.0) / first for step, more in found.changes if step.change != IDEAL}
    most = max(saved, key=lambda change: saved[change], default=None)
    parts = [f"{most} saves {saved[most]:.0%}"] if most and saved[most] > _SEEN else []
    last = found.steps[-1]
    if last.change == IDEAL and last.seconds:
        parts.append(f"the ideal {1 - last.seconds / first:.0%}")
    return "; ".join(parts) or "nothing that was tried saves time"


_End = tuple[str, float]


def _bars(ax: Axes, first: _End, changes: Sequence[tuple[str, float | None]], last: _End | None) -> None:
    """What it is at first, what each change adds to it (None: not known), and what it is at last."""
    names, reached = [first[0]], first[1]
    ax.barh(0, reached, 0.66, color=_WHOLE)
    _say(ax, f"{reached:.3g}", reached, 0)
    for row, (name, change) in enumerate(changes, 1):
        names.append(name)
        if change is None:
            _say(ax, "target not reached", reached, row)
            continue
        ax.barh(row, change, 0.66, reached, color=_MORE if change > 0 else _LESS)
        said = f"{change:+.3g}" if abs(change) > _SEEN * first[1] else "±0"
        _say(ax, said, max(reached, reached + change), row)
        ax.plot([reached] * 2, [row - 1 + 0.33, row - 0.33], color=_WHOLE, lw=0.5)
        reached += change
    if last is not None:
        names.append(last[0])
        ax.barh(len(names) - 1, last[1], 0.66, color=_WHOLE)
        _say(ax, f"{last[1]:.3g}", last[1], len(names) - 1)
    ax.set_yticks(range(len(names)), [name if len(name) < 28 else f"…{name[-26:]}" for name in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.margins(x=0.16)
    ax.set_xlim(0)


def _say(ax: Axes, text: str, at: float, row: int) -> None:
    ax.annotate(text, (at, row), (3, 0), textcoords="offset points", va="center", fontsize=6.5)
