"""The pictures of a report: those of `analysis.plots` that suit what there is."""

from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from analysis.report.gather import Gathered

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
    "stragglers": ("Stragglers", "what slower workers cost"),
    "pareto": ("Time against machine-hours", "points that no other beats in both time and machine-hours"),
    "heat-map": ("Every point", "the figure that counts over the two keys that vary, as colours"),
}


_BARS = ("time-to-target", "throughput", "speedup", "heat-map", "pareto")
_LEFT_OUT = {"run": _BARS, "validation": _BARS}  # what the tables say better


class Picture(NamedTuple):
    """A heading, the picture as a data URI, whether it is a page wide, and what is in it for the blind."""

    title: str
    source: str
    wide: bool
    alt: str


def pictures(gathered: Gathered) -> list[Picture]:
    """All that can be drawn of what was gathered."""
    from analysis.plots import Unfit, draw

    found = []
    for kind in _KINDS:
        if kind in _LEFT_OUT.get(gathered.kind, ()):
            continue
        with suppress(Unfit):  # these runs cannot carry it
            found.append(_picture(kind, draw(kind, gathered.drawable, {})))
    return found


def _picture(kind: str, figure: Any) -> Picture:
    from analysis.plots import save

    title, sees = _KINDS[kind]
    with TemporaryDirectory() as folder:
        (svg,) = save(figure, Path(folder) / kind, ["svg"])
        source = "data:image/svg+xml;base64," + b64encode(svg.read_bytes()).decode()
    return Picture(title, source, figure.get_figwidth() > 5, f"{title}: {sees}; figures below.")
