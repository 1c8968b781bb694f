"""Numbers, bars and pictures on the page."""

from collections.abc import Mapping
from html import escape

from nicegui import ui

from lockstep.analysis.differences import Pair
from lockstep.analysis.plots import activities
from lockstep.analysis.plots.breakdown import NAMES
from lockstep.analysis.words import number, percent
from lockstep.comparison.show import keys_of, metrics_of
from lockstep.serving.prediction import Picture, Prediction

CSS = """
.lockstep-cards { display: grid; gap: .5rem; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)) }
.lockstep-side { display: grid; width: 100%; gap: .5rem 1.5rem; align-items: start;
  grid-template: "controls head" auto "controls details" auto "controls pictures" 1fr
    / minmax(13rem, 20rem) minmax(0, 1fr) }
.lockstep-two { grid-template: "controls head" auto "controls details" 1fr "pictures pictures" auto
    / minmax(11rem, 15rem) minmax(0, 1fr) }
.lockstep-head { grid-area: head } .lockstep-controls { grid-area: controls }
.lockstep-details { grid-area: details } .lockstep-pictures { grid-area: pictures }
.lockstep-wide { overflow-x: auto; width: 100% } .lockstep-wide img { width: 100%; max-width: 60rem }
@media (max-width: 700px) {
  .lockstep-side { grid-template: "head" auto "controls" auto "details" auto "pictures" auto
    / minmax(0, 1fr) }
  .lockstep-head { position: sticky; top: 0; z-index: 10; padding: .25rem 0; background: white }
  .body--dark .lockstep-head { background: #1d1d1d }
  .lockstep-cards { grid-template-columns: 1fr 1fr }
  .lockstep-wide img { min-width: 560px }
}
"""
_COLOURS = {
    "compute": activities.COMPUTING,
    "update": activities.UPDATE,
    "send": activities.SENDING,
    "network": activities.RECEIVING,
    "wait": activities.WAITING,
}


def problem(text: str) -> None:
    """What is wrong, in a line."""
    ui.label(text).classes("w-full p-2 rounded bg-red-100 text-red-900 text-sm break-words").props(
        'role="alert"'
    )


def headline(its: Prediction) -> None:
    """What people look for first."""
    what = "the whole run" if its.until is None else f"the first {number(its.until, 's')} of the run"
    ui.label(f"Predicted: {what}, simulated by sizes").classes("text-sm font-medium")
    cards(its.headline)


def cards(figures: Mapping[str, str]) -> None:
    """Figures, each with its name."""
    with ui.element("div").classes("lockstep-cards w-full"):
        for name, value in figures.items():
            figure, _, rest = value.partition(" (")
            with ui.card().props("flat bordered").classes("p-2 gap-0"):
                ui.label(name).classes("text-xs opacity-70")
                ui.label(figure).classes("text-lg leading-tight")
                if rest:
                    ui.label(rest.removesuffix(")")).classes("text-xs opacity-70")


def details(its: Prediction) -> None:
    """What the time goes into, what limits it, and all other metrics."""
    breakdown(its.breakdown)
    if its.bottleneck:
        with ui.row().classes("gap-x-1 gap-y-0 text-sm"):
            ui.label("Bottleneck:").classes("font-medium")
            ui.label(its.bottleneck)
    for warning in its.warnings:
        ui.label(f"warning: {warning}").classes("text-xs opacity-70 break-words")
    with ui.expansion("all metrics").props("dense").classes("w-full"):
        table(its.metrics)


def breakdown(shares: Mapping[str, float]) -> None:
    """A bar of what the mean worker does, and what its colours mean."""
    ui.label("Where the mean worker's time goes").classes("text-sm font-medium")
    with ui.element("div").classes("w-full flex rounded overflow-hidden").style("height: 1.4rem"):
        for part, share in shares.items():
            ui.element("div").style(f"width: {100 * share:.3f}%; background: {_COLOURS[part]}")
    with ui.row().classes("gap-x-3 gap-y-0 text-xs"):
        for part, share in shares.items():
            if share >= 0.0005:
                with ui.row().classes("items-center gap-1 no-wrap"):
                    ui.element("div").style(f"width: .7rem; height: .7rem; background: {_COLOURS[part]}")
                    ui.label(f"{NAMES[part]} {percent(share)}")


def table(rows: Mapping[str, str]) -> None:
    """Names and values."""
    with ui.element("div").classes("grid gap-x-3 text-sm w-full").style("grid-template-columns: auto 1fr"):
        for name, value in rows.items():
            ui.label(name).classes("opacity-70")
            ui.label(value).classes("break-words")


def picture(its: Picture, alt: str) -> None:
    """A picture as wide as there is room; on a phone a wide one scrolls."""
    style = "" if its.wide else "max-width: 440px"
    with ui.element("div").classes("lockstep-wide" if its.wide else "w-full"):
        ui.html(f'<img src="{its.source}" alt="{escape(alt)}" style="{style}">', sanitize=False)


def difference(pair: Pair) -> None:
    """What differs between A and B, and what that does to the metrics that a beginning tells."""
    if pair.same:
        ui.label("The same: no key and no metric differs.")
        return
    _columns(("what differs", "A", "B"), keys_of(pair))
    _columns(("predicted", "A", "B", "change", ""), metrics_of(pair, _TOLD))


_TOLD = (
    *("throughput", "speedup", "efficiency", "staleness.mean", "staleness.max", "updates_per_s"),
    *("cost_of_million", "million_s"),
)


def _columns(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    if not rows:
        return
    with (
        ui.element("div").classes("w-full overflow-x-auto"),
        ui.element("div")
        .classes("grid gap-x-4 text-sm")
        .style(f"grid-template-columns: repeat({len(heads)}, auto); width: max-content; max-width: 100%"),
    ):
        for place, head in enumerate(heads):
            ui.label(head).classes("font-medium" + " text-right" * (place > 0))
        for row in rows:
            for place, cell in enumerate((*row, *[""] * (len(heads) - len(row)))):
                ui.label(cell).classes("text-right" * (place > 0))
