"""A step of a pipeline as papers draw it: a row a stage, a cell a pass, bubbles white; and what is kept."""

from collections.abc import Sequence
from colorsys import hls_to_rgb
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from lockstep.analysis.pipeline import Step
from lockstep.analysis.plots import style
from lockstep.analysis.plots.series import MOST_PANELS, Unfit, besides, flat, named
from lockstep.analysis.plots.style import styled
from lockstep.analysis.plots.words import Scale, scale
from lockstep.analysis.result import Result
from lockstep.analysis.runs import describe
from lockstep.analysis.summary import DONE
from lockstep.analysis.words import count, of_replica, size

_BOX, _FLOOR, _ROW = 0.56, 0.95, 1.0  # of a stage: to the end of its cells, of what it keeps, of all
_INCHES = 0.28  # of a stage, if the figure does not get higher than a page
_NUMBERED = 0.22  # of a stage whose cells have room for numbers: words beside a single one take much
_PAGE = 8.0
_TEXT = 6.0  # points
_KEPT, _FRAME, _GREY = "#A8A8A8", "#CCCCCC", "#555555"
_DARK, _WHITE = "#0B2545", "#FFFFFF"  # numbers in cells
_LIGHTNESS = {  # in the first chunk and in the last
    "forward": (0.84, 0.74),
    "recompute": (0.84, 0.74),
    "backward": (0.50, 0.38),
    "backward-inputs": (0.50, 0.38),
    "backward-weights": (0.24, 0.24),
}


@styled
def pipeline(results: Sequence[Result], width: float = style.DOUBLE) -> Figure:
    """Up to six runs above one another on one time axis, a mini-batch of each (`analysis.pipeline.Step`).

    Numbers are micro-batches, from 0, where they fit. `width` in inches. Of runs that differ in the seed
    alone, the first; of the replicas of a model, the first.
    """
    known = [result for result in results if (result.records["event"] == "pass").any()]
    if not known:
        raise Unfit(
            "no run with records computes gradients in passes (parallelism.pipeline, or micro_batches)"
        )
    distinct = describe(known).drop(columns="seed").drop_duplicates().index
    shown = sorted((known[place] for place in distinct[:MOST_PANELS]), key=_order)
    steps = [Step(result) for result in shown]
    stages = [len(step.ranks) for step in steps]
    longest = max(step.seconds for step in steps)
    over = scale("duration_s", [longest])
    most = max(float(step.kept(stage)[1].max()) for step in steps for stage in range(len(step.ranks)))
    inches = min(_INCHES, _PAGE / sum(stages))
    narrowest = min(float((step.cells["end"] - step.cells["start"]).median()) for step in steps)
    edge = 0.4 if inches > 0.15 and narrowest * 60 * width > 3 * longest else 0.0  # 60 of 72 points an inch
    whole = style.figure(width, sum(inches * many + 0.2 for many in stages) + 0.35)
    panels = whole.subplots(len(steps), 1, squeeze=False, sharex=True, height_ratios=stages)[:, 0]
    title, names = _titles(shown)
    for ax, step, name in zip(panels, steps, names, strict=True):
        ax.set_title(name, loc="left", pad=2)
        ax.set_title(f"bubbles {step.bubbles:.1%}", loc="right", pad=2)
        _rows(ax, step, over, inches, edge)
        if most:
            _memory(ax, step, over, most, inches)
    since = "mini-batch" if all(step.flush for step in steps) else "first mini-batch shown"
    panels[-1].set(xlabel=f"time since the {since} began ({over.unit})", xlim=(0, longest * over.factor))
    style.legend(whole, _legend(steps, most > 0), title)
    style.note(whole, _left_out(shown, len(distinct) - len(shown)))
    style.make_room(whole, [*panels], min(inches, _NUMBERED) * stages[0])
    for ax, step in zip(panels, steps, strict=True):
        _numbers(ax, step, over, whole)
    return whole


def _order(result: Result) -> tuple[bool, str]:
    """What panels are sorted by: those without a flush come last."""
    return result.plan.strategy.own_passes, _name(result)


def _name(result: Result) -> str:
    """Of the order of passes."""
    own = result.plan.strategy.own_passes or result.plan.units is not None
    return result.scenario.strategy.name if own else result.scenario.split.order


def _titles(results: Sequence[Result]) -> tuple[str, list[str]]:
    """What all have in common, and of each its order and in what else they differ."""
    table = flat(describe(results))
    splits = [result.plan.scenario.split for result in results]
    keys = ("order", "pipeline", "tensor", "redundancy", "chunks")
    for key in keys:
        table[f"parallelism.{key}"] = [getattr(split, key) for split in splits]
    table["parallelism.micro_batches"] = [result.plan.micro_batches for result in results]
    said = ["engine", *(f"parallelism.{key}" for key in (*keys, "micro_batches"))]
    differ = besides(table, said)
    facts = []
    for result, split, row in zip(results, splits, table.to_dict("records"), strict=True):
        chunks = [count(split.chunks, "chunk")] if split.chunks > 1 else []
        chunks += [count(result.plan.units, "unit")] if result.plan.units is not None else []
        replicas = count(result.plan.replicas, "replica")
        facts.append([
            _name(result), DONE[result.engine],
            of_replica(split.pipeline, split.parts, split.redundancy),
            _micro_batches(result), *chunks,
            *(replicas if key == "cluster.workers" else named(table, key, row[key]) for key in differ),
        ])  # fmt: skip
    common = [fact for fact in facts[0][1:] if all(fact in other for other in facts)]
    each = [
        ", ".join(dict.fromkeys([fact[0], *(text for text in fact[1:] if text not in common)]))
        for fact in facts
    ]
    return ", ".join(common), each


def _micro_batches(result: Result) -> str:
    return count(result.plan.micro_batches, "micro-batch")


def _rows(ax: Axes, step: Step, over: Scale, inches: float, edge: float) -> None:
    """A box for each stage, as long as the step; cells in it, with so wide an `edge` (points); the flush."""
    stages, cells = len(step.ranks), step.cells
    long = step.seconds * over.factor
    chunks = int(cells["chunk"].max()) + 1
    for stage in range(stages):
        box: Any = {"facecolor": "none", "edgecolor": _FRAME, "linewidth": 0.4, "zorder": 0.5}
        ax.add_patch(Rectangle((0, stage * _ROW), long, _BOX, **box))
    alike: Any = cells.groupby(["stage", "kind", "chunk", "own"], sort=False)
    for (stage, kind, chunk, own), some in alike:
        start = (some["start"].clip(lower=step.begin) - step.begin) * over.factor
        end = (some["end"].clip(upper=step.end) - step.begin) * over.factor
        look: Any = {"facecolor": _colour(kind, chunk, chunks), "alpha": None if own else 0.35}
        bars = list(zip(start, end - start, strict=True))
        outline: Any = {"lw": edge, "edgecolor": _WHITE} if edge else {"lw": 0, "snap": False}
        ax.broken_barh(bars, (stage * _ROW, _BOX), label=kind, **outline, **look)
    if step.flush:
        ax.plot([long, long], [-0.12, stages * _ROW], color="black", lw=1.2, clip_on=False, zorder=4)
    every = max(1, round(0.1 / inches))
    ax.set_yticks(
        [stage * _ROW + _BOX / 2 for stage in range(0, stages, every)],
        [f"stage {stage}" for stage in range(0, stages, every)],
    )
    ax.set_ylim(stages * _ROW, -0.12)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _colour(kind: str, chunk: int, chunks: int) -> tuple[float, float, float]:
    """Blue; the later a chunk, the darker and the greener."""
    first, last = _LIGHTNESS[kind]
    along = chunk / max(1, chunks - 1)
    return hls_to_rgb(0.585 - 0.1 * along, first + (last - first) * along, 0.62)


def _memory(ax: Axes, step: Step, over: Scale, most: float, inches: float) -> None:
    """What each stage keeps, below its cells, all to one scale; on the right, the most that it does."""
    for stage in range(len(step.ranks)):
        times, kept = step.kept(stage)
        floor = stage * _ROW + _FLOOR
        ax.stairs(
            floor - (_FLOOR - _BOX) * kept / most, (times - step.begin) * over.factor, baseline=floor,
            fill=True, color=_KEPT, lw=0,
        )  # fmt: skip
        if inches > 0.12:
            place: Any = {"transform": ax.get_yaxis_transform(), "va": "center", "ha": "left"}
            middle = floor - (_FLOOR - _BOX) / 2
            ax.text(1.008, middle, size(float(kept.max())), fontsize=_TEXT, color=_GREY, **place)


def _numbers(ax: Axes, step: Step, over: Scale, whole: Figure) -> None:
    """The number of each cell that it fits into. The last that is drawn: what is where has to be settled."""
    whole.draw_without_rendering()
    (left, low), (right, high) = ax.transData.transform([(0, _BOX), (1, 0)]) * 72 / whole.dpi
    if high - low < _TEXT + 1:
        return
    look: Any = {"ha": "center", "va": "center_baseline", "fontsize": _TEXT, "clip_on": True}
    cells = step.cells[step.cells["own"]]
    columns = cells[["stage", "kind", "number", "start", "end"]]
    for stage, kind, number, start, end in columns.itertuples(index=False):
        start, end = max(start, step.begin), min(end, step.end)
        text = str(number)
        if (end - start) * over.factor * (right - left) < 0.64 * _TEXT * len(text) + 1:
            continue
        middle = ((start + end) / 2 - step.begin) * over.factor
        colour = _DARK if kind == "forward" else _WHITE
        ax.text(middle, stage * _ROW + _BOX / 2, text, color=colour, **look)


def _legend(steps: Sequence[Step], keeps: bool) -> dict[str, Any]:
    chunks = max(int(step.cells["chunk"].max()) + 1 for step in steps)
    kinds = {kind for step in steps for kind in step.cells["kind"]}
    names = {"forward": "forward", "backward": "backward"}
    if "backward-inputs" in kinds:
        names["backward"] = "backward, whole or inputs" if "backward" in kinds else "backward, inputs"
        names["backward-weights"] = "backward, weights"
    entries: dict[str, Any] = {name: Patch(color=_colour(kind, 0, chunks)) for kind, name in names.items()}
    if chunks > 1:
        entries["last chunk, or unit"] = Patch(color=_colour("backward", chunks - 1, chunks))
    entries["bubble"] = Patch(facecolor="none", edgecolor=_FRAME, linewidth=0.6)
    if any(step.flush for step in steps):
        entries["flush"] = Line2D([], [], color="black", lw=1.2, marker="|", ls="none", ms=8, mew=1.2)
    if keeps:
        entries["kept (right: at most)"] = Patch(color=_KEPT)
    return entries


def _left_out(shown: Sequence[Result], panels: int) -> str:
    """What is not drawn, in words."""
    more = max(result.plan.replicas for result in shown) - 1
    texts = [count(more, "more replica")] * (more > 0) + [count(panels, "more scenario")] * (panels > 0)
    return f"Not shown: {', '.join(texts)}." if texts else ""
