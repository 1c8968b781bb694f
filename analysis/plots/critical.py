"""The critical path of an iteration: who did what meanwhile, and the chain that ended it."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from lockstep.analysis.critical import CriticalPath, Part, critical_path
from lockstep.analysis.plots import style
from lockstep.analysis.plots.gantt import LEGEND, Row, panel, rows_of
from lockstep.analysis.plots.series import Unfit, titles
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import Scale, scale
from lockstep.analysis.result import Result
from lockstep.analysis.runs import describe
from lockstep.analysis.summary import DONE
from lockstep.analysis.tracks import tracks_of
from lockstep.analysis.words import count

_MOST_PANELS = 3
_MOST_RANKS = 8  # of those on the path, that are drawn
_INCHES = 0.16  # of a process's row
_LOOK: dict[str, Any] = {
    "color": "black",
    "lw": 1.6,
    "solid_capstyle": "butt",
    "solid_joinstyle": "miter",
    "zorder": 6,
}
_PATH = "the path that ends it"


@styled
def critical(results: Sequence[Result]) -> Figure:
    """The second iteration of the worker that takes longest, of up to three runs (`analysis.critical`).

    A line goes through what ends it: over bars that it consists of, and from a message's link to the one on
    which it arrives; it is dotted where nothing is recorded, such as at a server that applies updates. Of
    runs that differ in the seed alone, the first. Of more than eight processes on the path, those on which
    it lasts longest are drawn.
    """
    paths = [(result, critical_path(result)) for result in results]
    known = [(result, path) for result, path in paths if path is not None]
    if not known:
        raise Unfit("it takes the records of a run, such as the folder of 'lockstep simulate --out'")
    distinct = describe([result for result, _ in known]).drop(columns="seed").drop_duplicates().index
    shown = [known[place] for place in distinct[:_MOST_PANELS]]
    rows = [rows_of(result, _ranks(path)) for result, path in shown]
    heights = [each[-1].top + each[-1].height for each in rows]
    whole = style.figure(style.DOUBLE, sum(_INCHES * height + 0.55 for height in heights))
    panels = whole.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    entries: dict[str, Any] = {}
    notes = []
    names = titles(describe([result for result, _ in shown]))
    for ax, (result, path), each, name in zip(panels, shown, rows, names, strict=True):
        begin, end = path.parts[0].start, path.parts[-1].end
        over = scale("duration_s", [path.seconds])
        entries |= panel(ax, result, each, (begin, end), over, led=False)
        _line(ax, result, path.parts, each, begin, over)
        ax.set_title(f"{DONE[result.engine]}: {name}\n{_finding(path)}", loc="left", pad=2)
        ax.set_ylim(each[-1].top + each[-1].height, 0)
        ax.set_xlim(0, path.seconds * over.factor)
        ax.set_xlabel(f"time since {result.plan.roles[path.worker].name} began the iteration ({over.unit})")
        notes.append(_overlap(path, name if len(shown) > 1 else ""))
        if (more := len({part.node for part in path.parts}) - _MOST_RANKS) > 0:
            notes.append(f"Not shown: {count(more, 'more process')} on it.")
    legend = {each: entries[each] for each in LEGEND if each in entries}
    style.legend(whole, legend | {_PATH: Line2D([], [], **_LOOK)})
    style.note(whole, "\n".join(notes))
    return whole


def _ranks(path: CriticalPath) -> set[int]:
    """The ranks that are drawn: those on which the path lasts longest."""
    lasts: dict[int, float] = {path.worker: float("inf")}
    for part in path.parts:
        for rank in {part.node, part.peer} - {-1}:
            lasts[rank] = lasts.get(rank, 0.0) + part.end - part.start
    return set(sorted(lasts, key=lambda rank: (-lasts[rank], rank))[:_MOST_RANKS])


def _finding(path: CriticalPath) -> str:
    """What the path consists of."""
    return ", ".join(f"{share:.0%} {what}" for what, share in path.shares.items() if share >= 0.005)


def _overlap(path: CriticalPath, name: str) -> str:
    """How much of the messages is hidden."""
    under_way = path.hidden + path.exposed
    if not under_way > 0:
        return ""
    said = f"{path.hidden / under_way:.0%} of the mean worker's messages hide behind its computing"
    its = scale("duration_s", [path.exposed])
    exposed = f"{style.plain(path.exposed * its.factor)} {its.unit}"
    return f"{name}: {said}; {exposed} do not." if name else f"{said}; {exposed} do not."


def _line(
    ax: Axes, result: Result, parts: Sequence[Part], rows: Sequence[Row], begin: float, over: Scale
) -> None:
    """The path through the rows; what has no row is left out."""
    found = tracks_of(result)
    middle = {row.track: row.top + row.height / 2 for row in rows}

    def at(seconds: float) -> float:
        return (seconds - begin) * over.factor

    last = None
    for part in parts:
        here = middle.get(int(found.own[part.node]))
        places: list[tuple[float, float, float | None]] = [(part.start, part.end, here)]
        if part.what == "network" and part.peer >= 0:
            far = found.host[part.node] != found.host[part.peer]
            out = middle.get(int((found.up if far else found.inner)[part.node]), here)
            into = out
            if far:
                into = middle.get(int(found.down[part.peer]), middle.get(int(found.own[part.peer])))
            places = [(part.start, part.left, out), (part.left, part.end, into)]
        dotted = part.what in ("server's update", "waiting")
        for start, end, height in places:
            if height is None:
                last = None
                continue
            if end <= start:
                continue
            if last is not None and last != height:
                ax.plot([at(start)] * 2, [last, height], **{**_LOOK, "lw": 0.8})
            halo = [] if dotted else [withStroke(linewidth=2.8, foreground="white")]
            ax.plot([at(start), at(end)], [height] * 2, ls=":" if dotted else "-", path_effects=halo, **_LOOK)
            last = height
