"""The pictures of a report: those of `analysis.plots` that suit what there is."""

from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from lockstep.analysis.report.gather import Gathered
from lockstep.analysis.report.groups import works
from lockstep.analysis.runs import Runs
from lockstep.analysis.what_if import WhatIf

if TYPE_CHECKING:
    import pandas as pd

# By kind (`analysis.plots.KINDS`): the heading, and what one sees. In the order of the page.
_KINDS = {
    "time-to-target": ("Time to the target", "time to the target accuracy against the number that varies"),
    "predicted": (
        "Predicted against measured",
        "what was predicted against what was measured",
    ),
    "throughput": ("Throughput", "samples per second against the number that varies, with the ideal line"),
    "speedup": ("Speedup", "speedup over one worker without a network, with the ideal line"),
    "loss-time": ("Loss against time", "held-out loss against time, a line a strategy"),
    "loss-updates": ("Loss against updates", "held-out loss against updates: what staleness costs"),
    "breakdown": ("Where the workers' time goes", "bars of computing, network and waiting for others"),
    "staleness": ("Staleness", "histogram of the staleness of applied gradients"),
    "staleness-quantiles": ("Staleness against workers", "median and high quantiles of staleness"),
    "utilisation": ("Links over time", "how busy the busiest links were over time"),
    "critical-path": (
        "What ends an iteration",
        "who did what in the second iteration, and the chain that ends it",
    ),
    "pipeline": ("A mini-batch in the pipeline", "the passes of each stage, bubbles, and what stages keep"),
    "stragglers": ("Stragglers", "what slower workers cost"),
    "pareto": ("Time against machine-hours", "points that no other beats in both time and machine-hours"),
    "heat-map": ("Every point", "the metric that counts over the two keys that vary, as colours"),
    "decision": ("What is best", "the best of all that else varies, over two keys"),
}

_OTHERS = {
    "mean": ("Where the mean worker's time goes", "a bar of computing, network and waiting"),
    "what-if": ("From now to the ideal", "a bar for each change of the cluster, besides those before it"),
    "ranking": ("The ranking", "a bar for each of the best, with its interval over seeds"),
}
_BY_METRIC = {
    "time_to_target_s": ("time-to-target", "throughput"),
    "accuracy": ("loss-time", "throughput", "breakdown"),
}
_FIRST = {"run": ("mean", "breakdown"), "validation": ("predicted",), "recommendation": ("ranking",)}

_BARS = ("time-to-target", "throughput", "speedup", "heat-map", "decision", "pareto")
_LEFT_OUT = {"run": _BARS, "validation": _BARS}  # what the tables say better
_WIDE = 5  # inches: what is wider is not legible on a phone
# What is drawn in the colours on the left has those on the right on a dark screen. An image has a style sheet
# of its own; matplotlib writes colours as styles, and no colour where it fills in black.
_DARK = {
    "#000000": "#e6e9ed", "#444444": "#a2abb6", "#555555": "#a2abb6", "#cccccc": "#56606c",
    "#dddddd": "#39424c", "#e4e4e4": "#39424c", "#eeeeee": "#222930", "#d5d5d5": "#39424c",
    "#332288": "#8f84dd",
}  # fmt: skip
_BACK = "#14181d"


class Picture(NamedTuple):
    """A heading, the picture as a data URI, whether it is a page wide, and what is in it for the blind."""

    title: str
    source: str
    wide: bool
    alt: str
    narrow: str
    """The same for a phone, panels below one another; nothing where the picture suits a phone as it is."""
    scrolls: bool
    """Whether what a phone gets is wider than it."""
    kind: str
    """That of `lockstep plot`; "ranking" is of a recommendation."""


def pictures(gathered: Gathered, way: WhatIf | None = None) -> list[Picture]:
    """All that can be drawn of what was gathered; not of several workloads in one.

    `way`: from the best run to the ideal, where it was tried.
    """
    from lockstep.analysis.plots import Unfit, draw, what_if

    found = []
    if gathered.recommendation is not None:
        from lockstep.analysis.plots.ranked import ranked

        found.append(_shown("ranking", "", partial(ranked, gathered.recommendation)))
    if gathered.kind == "run":
        with suppress(Unfit):
            by: dict[str, str] = {"by": "strategy.name"}
            found.append(_shown("mean", "", lambda: draw("breakdown", gathered.drawable, by)))
    if way is not None:
        with suppress(Unfit):
            found.append(_shown("what-if", "", partial(what_if, way)))
    for work, runs in _by_work(gathered).items():
        for kind in _KINDS:
            if kind in _LEFT_OUT.get(gathered.kind, ()):
                continue
            with suppress(Unfit):  # these runs cannot carry it
                found.append(_picture(kind, runs, work))
    return found


def first(found: list[Picture], kind: str, metric: str) -> Picture | None:
    """The picture that says most about what was gathered (its kind), and the metric that counts there."""
    by_metric = _BY_METRIC.get(metric, ("throughput", "breakdown"))
    wanted = _FIRST.get(kind, by_metric)
    return next((each for name in wanted for each in found if each.kind == name), None)


def _by_work(gathered: Gathered) -> dict[str, Runs]:
    """The runs by what they work on; "" if that is the same for all."""
    names = works(gathered.runs).unique()
    if len(names) == 1:
        return {"": gathered.drawable}
    return {work: gathered.drawable.only(partial(_of, work=work)) for work in names}


def _of(runs: "pd.DataFrame", work: str) -> "pd.DataFrame":
    return runs[works(runs) == work]


def _picture(kind: str, runs: Runs, work: str) -> Picture:
    from lockstep.analysis.plots import draw

    return _shown(kind, work, lambda: draw(kind, runs, {}))


def _shown(kind: str, work: str, draw: Callable[[], Any]) -> Picture:
    from lockstep.analysis.plots import style

    title, sees = {**_KINDS, **_OTHERS}[kind]
    title = f"{title}: {work}" if work else title
    figure = draw()
    alt = f"{title}: {sees}; numbers below."
    wide = figure.get_figwidth() > _WIDE
    if not wide:
        return Picture(title, data_uri(figure), wide, alt, "", False, kind)
    with style.narrow():
        other = draw()
    return Picture(title, data_uri(figure), wide, alt, data_uri(other), other.get_figwidth() > _WIDE, kind)


def data_uri(figure: Any) -> str:
    """A figure as a data URI: an SVG image that is dark where the page is."""
    from lockstep.analysis.plots import save

    with TemporaryDirectory() as folder:
        (file,) = save(figure, Path(folder) / "picture", ["svg"])
        svg = file.read_text(encoding="utf-8")
    head, end, body = svg.partition("<defs>")
    svg = f"{head}<style>{_dark()}</style>{end}{body}"
    return "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()


def _dark() -> str:
    """The style sheet of a dark screen; backgrounds are paths, and white text, which stays so, is none."""
    rules = [f"svg {{ fill: {_DARK['#000000']} }}"]
    rules += [
        f'[style*="{what}: {colour}"] {{ {what}: {dark} !important }}'
        for colour, dark in _DARK.items()
        for what in ("fill", "stroke")
    ]
    rules += [
        f':is(path, use)[style*="{what}: #ffffff"] {{ {what}: {_BACK} !important }}'
        for what in ("fill", "stroke")
    ]
    return f"@media screen and (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"
