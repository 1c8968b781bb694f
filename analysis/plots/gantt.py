"""What everybody did in the first iterations, or around the first failure.

A row a worker, a server and a direction of a link.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lockstep.analysis.arrows import arrows
from lockstep.analysis.breakdown import PARTS, shares
from lockstep.analysis.plots import activities, style
from lockstep.analysis.plots.series import Unfit, titles
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import Scale, scale
from lockstep.analysis.records import of
from lockstep.analysis.result import Result
from lockstep.analysis.runs import describe
from lockstep.analysis.summary import DONE
from lockstep.analysis.tracks import lanes, slices, tracks_of
from lockstep.analysis.words import count, number
from lockstep.strategies.placement import Role
from lockstep.strategies.resource import ResourceId

_ITERATIONS = 3
_MOST = {"server": 2, "relay": 2}  # of each kind that are drawn
_WORKERS, _WORKERS_EACH = 8, 4  # that are all drawn: of one run, and of each of several
_MOST_PANELS = 4
_MOST_ARROWS = 40
_RED = "#D55E00"
_BARS = {  # event: its colour, and what the legend calls it
    "fault": (activities.DOWN, "down"),
    "checkpoint": (activities.CHECKPOINT, "checkpoint"),
    "gradient": (activities.COMPUTING, "computing"),
    "forward": (activities.FORWARD, "forward"),
    "backward": (activities.COMPUTING, "backward"),
    "work": (activities.UPDATE, "own updates"),
    "collective": (activities.COLLECTIVE, "collective"),
    "memory": (activities.COLLECTIVE, "collective"),
}
_INCHES = 0.16  # of a process's row; a link's is narrower
_LINK = 0.62
_NARROW = 0.003  # of the axis: bars that are narrower, mostly, have no outline


class Row(NamedTuple):
    """A row of the picture, of a process or of a link."""

    track: int
    name: str
    top: float
    height: float
    link: str  # "sending" or "receiving"; nothing for a process
    waits: bool = False  # when it does nothing: a worker's


@styled
def gantt(results: Sequence[Result], iterations: int = _ITERATIONS, width: float = style.DOUBLE) -> Figure:
    """Up to four runs above one another, until the median worker has done so many iterations.

    Where something fails: the first failure, from an iteration before until one after it. They share their
    time axis, on which the first mini-batch, or what is drawn, starts at 0. `width` in inches. Of runs that
    differ in the seed alone, the first. Where a worker waits, it may wait for messages that are drawn below.
    """
    known = [result for result in results if (result.records["event"] == "gradient").any()]
    if not known:
        raise Unfit("it takes the records of a run, such as the folder of 'lockstep simulate --out'")
    distinct = describe(known).drop(columns="seed").drop_duplicates().index
    shown = [known[place] for place in distinct[:_MOST_PANELS]]
    failures = [found for result in shown if (found := _failure(result, iterations)) is not None]
    begin = min((since for since, _ in failures), default=0.0)
    until = max((to - begin for _, to in failures), default=0.0)
    until = until or float(np.median([_window(result, iterations) for result in shown]))
    over = scale("duration_s", [until])
    workers = [_workers(result, _WORKERS if len(shown) == 1 else _WORKERS_EACH) for result in shown]
    rows = [rows_of(result, _drawn(result, some)) for result, some in zip(shown, workers, strict=True)]
    heights = [each[-1].top + each[-1].height for each in rows]
    whole = style.figure(width, sum(_INCHES * height + 0.22 for height in heights) + 0.3)
    panels = whole.subplots(len(shown), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    entries: dict[str, Any] = {}
    for ax, result, each, title in zip(panels, shown, rows, titles(describe(shown)), strict=True):
        span = result.span[0] + begin, result.span[0] + begin + until
        entries |= panel(ax, result, each, span, over)
        ax.set_title(f"{DONE[result.engine]}: {title} – {_finding(result, span)}", loc="left", pad=2)
        ax.set_ylim(each[-1].top + each[-1].height, 0)
    since = f"{number(begin, 's')} after the first mini-batch" if begin else "the first mini-batch"
    panels[-1].set(xlabel=f"time since {since} ({over.unit})", xlim=(0, until * over.factor))
    style.legend(whole, {name: entries[name] for name in LEGEND if name in entries})
    style.note(whole, _left_out(shown, workers, len(distinct) - len(shown)))
    return whole


LEGEND = {
    "computing": Patch(color=activities.COMPUTING),
    "forward": Patch(color=activities.FORWARD),
    "backward": Patch(color=activities.COMPUTING),
    "own updates": Patch(color=activities.UPDATE),
    "waiting": Patch(color=activities.WAITING),
    "down": Patch(color=activities.DOWN),
    "checkpoint": Patch(color=activities.CHECKPOINT),
    "sending": Patch(color=activities.SENDING),
    "receiving": Patch(color=activities.RECEIVING),
    "collective": Patch(color=activities.COLLECTIVE),
    "update": Line2D([], [], color="black", lw=1.2, marker="|", ls="none", ms=7, mew=1.2),
    "dropped": Line2D([], [], color=_RED, marker="x", ls="none", ms=4, mew=1.2),
    "push → update": Line2D([], [], color="#555555", lw=0.6),
}


def _finding(result: Result, span: tuple[float, float]) -> str:
    """How much of what is drawn the mean worker computes."""
    found = shares(result.records, result.scenario.cluster.workers, *span)
    return f"workers compute {found[PARTS.index('compute')].mean():.0%} of this time"


def _window(result: Result, iterations: int) -> float:
    """How long the median worker takes for its first iterations, s; up to the next, if there is one."""
    gradients = of(result.records, "gradient", ["node", "start", "end"]).sort_values(["node", "start"])
    ends = [
        float(mine["start"].iloc[iterations]) if len(mine) > iterations else float(mine["end"].iloc[-1])
        for _, mine in gradients.groupby("node")
    ]
    return float(np.median(ends)) - result.span[0]


def _failure(result: Result, iterations: int) -> tuple[float, float] | None:
    """The first failure, with an iteration before and after it: from when until when, s; None: there is none.

    It is over when who failed, or the job, is at work again; when it is noticed, if nobody comes back.
    """
    faults = of(result.records, "fault", ["start", "left", "end"])
    during = faults[faults["start"].between(*result.span)].sort_values("start").to_numpy(float)
    if not len(during):
        return None
    start, noticed, end = map(float, during[0])
    back = of(result.records, "recovery", ["end"])["end"]
    if (later := back[back >= start]).size:
        end = max(end, float(later.min()))
    elif noticed == noticed:
        end = noticed
    iteration = _window(result, iterations) / iterations
    return max(0.0, start - iteration - result.span[0]), end + iteration - result.span[0]


def _workers(result: Result, most: int) -> list[int]:
    """The workers that are drawn: all, or of more than `most` the fastest, a median one and the slowest.

    By the mean time of a mini-batch's gradient.
    """
    gradients = of(result.records, "gradient", ["node", "start", "end"])
    workers = range(result.scenario.cluster.workers)
    if len(workers) <= most:
        return [*workers]
    takes = (gradients["end"] - gradients["start"]).groupby(gradients["node"]).mean().dropna()
    order = takes.sort_values(kind="stable").index
    return sorted({int(order[place]) for place in (0, (len(order) - 1) // 2, -1)})


def _drawn(result: Result, workers: Sequence[int]) -> set[int]:
    """The ranks that are drawn: some workers, and the first servers and relays."""
    return {
        rank
        for rank, role in enumerate(result.plan.roles)
        if (role.index in workers if role.kind == "worker" else role.index < _MOST[role.kind])
    }


def rows_of(result: Result, drawn: Collection[int]) -> list[Row]:
    """The rows that are drawn, from top to bottom: of some ranks, and of their hosts' links.

    Links on which nothing can take time have no row: the card of a host that is alone, and the link inside a
    host where the scenario does not say how fast it is.
    """
    found = tracks_of(result)
    links = dict.fromkeys(found.up.tolist(), "sending") | dict.fromkeys(found.down.tolist(), "receiving")
    links |= dict.fromkeys(found.inner.tolist(), "sending")
    own = {int(found.own[rank]) for rank in drawn}
    several = len(set(found.host.tolist())) > 1
    inside = result.plan.scenario.cluster.network.intra_host is not None
    kinds = [found.up, found.down] * several + [found.inner] * inside
    wanted = {int(kind[rank]) for rank in drawn for kind in kinds}
    rows: list[Row] = []
    top = 0.0
    for track, whose in enumerate(found.whose):
        if isinstance(whose, Role) and track in own:
            top += 0.25  # apart from the host above
            rows.append(Row(track, whose.name, top, 1.0, "", whose.kind == "worker"))
        elif isinstance(whose, ResourceId) and track in wanted:
            rows.append(Row(track, whose.noun, top, _LINK, links[track]))
        else:
            continue
        top += rows[-1].height
    return rows


def panel(
    ax: Axes, result: Result, rows: Sequence[Row], span: tuple[float, float], over: Scale, led: bool = True
) -> dict[str, Any]:
    """Draw a run from one time to another (s), the first at 0; the legend's entries that it needs.

    `led`: with arrows from pushes to their updates.
    """
    found = tracks_of(result)
    table = slices(result, found)
    begin, until = round(span[0] * 1e9), span[1] - span[0]
    table = table[(table["end"] >= begin) & (table["start"] <= begin + until * 1e9)]
    table = table.assign(event=_what(result.records)[table["row"]])
    since = (table["start"].to_numpy() - begin) / 1e9 * over.factor
    takes = (table["end"] - table["start"]).to_numpy() / 1e9 * over.factor
    lane = lanes(*(table[name].to_numpy() for name in ("track", "start", "end")))
    entries: list[str] = []
    for row in rows:
        here = (table["track"] == row.track).to_numpy()
        if not row.link:
            if row.waits:
                ax.barh(row.top + 0.5, until * over.factor, 0.86, color=activities.WAITING, lw=0)
                entries.append("waiting")
            events = table["event"].to_numpy()[here]
            entries += _process(ax, row, events, since[here], takes[here], until * over.factor)
        elif here.any():
            _link(ax, row, since[here], takes[here], lane[here])
            entries.append(row.link)
    entries += _arrows(ax, result, table, rows, begin, over) if led else []
    labels = ax.set_yticks([row.top + row.height / 2 for row in rows], [row.name for row in rows])
    for tick, row in zip(labels, rows, strict=True):
        tick.label1.set(fontsize=7 if not row.link else 6, color="black" if not row.link else "#555555")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    return {name: LEGEND[name] for name in entries}


def _what(records: pd.DataFrame) -> np.ndarray:
    """The event of every record; of a pass, which way it goes."""
    event = records["event"].to_numpy().astype(object)
    passes = event == "pass"
    event[passes] = np.where(records["kind"][passes].isin(["forward", "recompute"]), "forward", "backward")
    return event


def _process(
    ax: Axes, row: Row, events: np.ndarray, since: np.ndarray, takes: np.ndarray, until: float
) -> list[str]:
    """What a process did: bars, and marks for instants."""
    entries = []
    for event, (colour, name) in _BARS.items():
        mine = events == event
        if mine.any():
            bars = list(zip(since[mine], takes[mine], strict=True))
            narrow = name == "own updates" or np.median(takes[mine]) < _NARROW * until  # than an outline
            outline: Any = {"lw": 0, "snap": False} if narrow else {"lw": 0.4, "edgecolor": "white"}
            ax.broken_barh(bars, (row.top + 0.07, 0.86), facecolor=colour, **outline)
            entries.append(name)
    marks: Any = {
        "update": {"marker": "|", "ms": 9, "mew": 1.2, "color": "black"},
        "drop": {"marker": "x", "ms": 4, "mew": 1.2, "color": _RED},
    }
    for event, look in marks.items():
        mine = events == event
        if mine.any():
            ax.plot(since[mine], np.full(mine.sum(), row.top + 0.5), ls="none", zorder=4, **look)
            entries.append("update" if event == "update" else "dropped")
    return entries


def _link(ax: Axes, row: Row, since: np.ndarray, takes: np.ndarray, lane: np.ndarray) -> None:
    """Messages on a link: those at the same time share the row's height."""
    count = lane.max() + 1
    height = 0.86 * row.height / count
    look: Any = {"edgecolor": "white", "lw": 0.4} if count == 1 else {"lw": 0}
    colour = activities.SENDING if row.link == "sending" else activities.RECEIVING
    for place in range(count):
        bars = list(zip(since[lane == place], takes[lane == place], strict=True))
        low = row.top + 0.07 * row.height + place * height
        ax.broken_barh(bars, (low, height * (1.0 if count == 1 else 0.8)), facecolor=colour, **look)


def _arrows(
    ax: Axes, result: Result, table: pd.DataFrame, rows: Sequence[Row], begin: int, over: Scale
) -> list[str]:
    """Lines from where pushes are sent to their updates; none if there were too many to follow."""
    led = arrows(result)
    led = led[(result.records["event"].to_numpy() == "update")[led["effect"]]]
    ends = table[table["event"] == "update"].merge(led, left_on="row", right_on="effect")
    both = table[table["out"]].merge(ends, left_on="row", right_on="message", suffixes=("", "_to"))
    middle = {row.track: row.top + row.height / 2 for row in rows}
    both = both[both["track"].isin(middle) & both["track_to"].isin(middle)]
    if not 0 < len(both) <= _MOST_ARROWS:
        return []
    for start, end, track, to in both[["end", "end_to", "track", "track_to"]].itertuples(index=False):
        ax.annotate(
            "",
            ((end - begin) / 1e9 * over.factor, middle[to]),
            ((start - begin) / 1e9 * over.factor, middle[track]),
            arrowprops={"arrowstyle": "-|>,head_width=0.1,head_length=0.25", "lw": 0.5, "color": "#555555",
                        "shrinkA": 0, "shrinkB": 2},
            annotation_clip=True,
        )  # fmt: skip
    return ["push → update"]


def _left_out(shown: Sequence[Result], workers: Sequence[Sequence[int]], panels: int) -> str:
    """What is not drawn, in words."""
    roles = max((tracks_of(result).roles for result in shown), key=len)
    texts, notes = [], []
    more = max(
        result.scenario.cluster.workers - len(some) for result, some in zip(shown, workers, strict=True)
    )
    if more > 0:
        notes.append("Workers shown where not all are: the fastest, a median one and the slowest.")
        texts.append(count(more, "more worker"))
    for kind, most in _MOST.items():
        more = sum(role.kind == kind for role in roles) - most
        if more > 0:
            texts.append(count(more, f"more {kind}"))
    if panels:
        texts.append(count(panels, "more scenario"))
    return " ".join([*notes, *[f"Not shown: {', '.join(texts)}."] * bool(texts)])
