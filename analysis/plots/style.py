"""How all pictures look: colours, sizes, legends, files.

Colours are Okabe and Ito's, which the colour-blind can tell apart (yellow is too pale for lines on white). A
strategy has the same colour, marker and line in every picture, which follow from its name, and markers and
lines tell strategies apart where there is no colour.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from hashlib import sha256
from math import ceil, hypot
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, ParamSpec, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from lockstep.strategies.registry import STRATEGIES

PREDICTED, MEASURED = "#0072B2", "#D55E00"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*X<>ph"
LINES = ("-", "--", "-.", ":")
_LOOKS = len(COLOURS) * len(MARKERS) * len(LINES)
_SALT = 171020  # gives all shipped strategies another colour or marker, and the usual ones other colours

SINGLE, DOUBLE = 85 / 25.4, 178 / 25.4  # inches: a column of a paper (85 mm), and the width of its page
FORMATS = ("png", "svg", "pdf")
_DPI = 200
_LOOK: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.title_fontsize": 8,
    "figure.labelsize": 6.5,
    "figure.titlesize": 8,
    "lines.linewidth": 1.1,
    "lines.markersize": 4,
    "lines.markeredgewidth": 0.5,
    "errorbar.capsize": 2,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.color": "#DDDDDD",
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.handlelength": 2.5,
    "legend.columnspacing": 1.0,
    "pdf.fonttype": 42,  # fonts that editors can edit
    "svg.hashsalt": "lockstep",
}
_NO_DATES: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}

_narrow = ContextVar("_narrow", default=False)

P = ParamSpec("P")
T = TypeVar("T")


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """What is drawn by the function looks as this module says."""

    @wraps(draw)
    def with_look(*args: P.args, **kwargs: P.kwargs) -> T:
        with matplotlib.rc_context(_LOOK):
            return draw(*args, **kwargs)

    return with_look


def style(strategy: str) -> dict[str, Any]:
    """Colour, marker and line of a strategy, as keywords of `plot`: always the same, and nobody else's."""
    number = _numbers().get(strategy, _number(strategy))
    return _look(number, number // len(COLOURS), number // len(COLOURS) // len(MARKERS))


def _number(strategy: str) -> int:
    """One of all looks, which follows from the name."""
    return int.from_bytes(sha256(f"{_SALT}{strategy}".encode()).digest()[:4], "big") % _LOOKS


@cache
def _numbers() -> dict[str, int]:
    """The look of every strategy that there is: if its own is taken, the next that is free."""
    found: dict[int, str] = {}
    for strategy in sorted(STRATEGIES, key=lambda name: (_number(name), name)):
        number = _number(strategy)
        while number in found:
            number = (number + 1) % _LOOKS
        found[number] = strategy
    return {strategy: number for number, strategy in found.items()}


def nth_style(number: int) -> dict[str, Any]:
    """Colour, marker and line of the nth of things that are not strategies; the first 84 differ."""
    return _look(number, number, number)


def _look(colour: int, marker: int, line: int) -> dict[str, Any]:
    return {
        "color": COLOURS[colour % len(COLOURS)],
        "marker": MARKERS[marker % len(MARKERS)],
        "linestyle": LINES[line % len(LINES)],
        "markeredgecolor": "white",
    }


def figure(width: float, height: float) -> Figure:
    """An empty figure (inches) that keeps its parts from overlapping."""
    return Figure(figsize=(width, height), layout="constrained")


def fitting(width: float) -> float:
    """How wide a picture is that needs so much (inches): as a column if it fits there, else as a page."""
    return SINGLE if width <= SINGLE else DOUBLE


@contextmanager
def narrow() -> Iterator[None]:
    """What is drawn inside has its panels one below another, as wide as a column: for a phone."""
    before = _narrow.set(True)
    try:
        yield
    finally:
        _narrow.reset(before)


def beside(most: int) -> int:
    """How many panels stand beside one another: at most so many, or one where it is narrow."""
    return 1 if _narrow.get() else most


def grid(panels: int, height: float = 2.1) -> tuple[Figure, list[Axes]]:
    """A figure of one column for one panel, and of a page's width for more, at most three beside another.

    `height`: of one panel, in inches.
    """
    columns = beside(1 if panels == 1 else 2 if panels in (2, 4) else 3)
    rows = ceil(panels / columns)
    whole = figure(SINGLE if columns == 1 else DOUBLE, height * rows)
    axes = whole.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for ax in axes[panels:]:
        ax.remove()
    for number, ax in enumerate(axes[:panels]):
        if number + columns >= panels or columns == 1:
            ax.xaxis.set_tick_params(labelbottom=True)
    return whole, list(axes[:panels])


def title(whole: Figure, axes: Sequence[Axes], texts: Sequence[str]) -> None:
    """A title above each panel, in as many lines as it takes; the figure grows by the height of them.

    What is in brackets stays in one line, if it fits there.
    """
    place = axes[0].get_subplotspec()
    rows, columns = place.get_gridspec().get_geometry() if place else (1, 1)
    at_most = int(15 * (0.9 * whole.get_figwidth() / columns - 0.1))  # characters of 8 pt
    whole_lists = [re.sub(r"\[[^]]*\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
                   for text in texts]  # fmt: skip
    broken = [wrap(text, at_most, break_on_hyphens=False) or [""] for text in whole_lists]
    for ax, lines in zip(axes, broken, strict=True):
        ax.set_title("\n".join(lines))
    more = max(map(len, broken)) - 1
    whole.set_figheight(whole.get_figheight() + 0.13 * more * rows)


def make_room(whole: Figure, axes: Sequence[Axes], height: float, width: float = 0.0) -> None:
    """Let the figure grow until its panels are so high (inches), and to a page's width if they are narrower.

    The last but for what depends on where things are: words beside the panels take what they need.
    """
    place = axes[0].get_subplotspec()
    rows = place.get_gridspec().nrows if place else 1
    for _ in range(2):  # what is wider may need less height
        whole.draw_without_rendering()
        box = axes[0].get_window_extent()
        lacks = height - box.height / whole.dpi, width - box.width / whole.dpi
        whole.set_figheight(whole.get_figheight() + rows * max(0.0, lacks[0]))
        if lacks[1] > 0:
            whole.set_figwidth(DOUBLE)


def from_zero(ax: Axes, highest: float) -> None:
    """A y axis from 0 on, that leaves room above the `highest` marker, also where all are as high."""
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.06 * highest))


def legend(whole: Figure, entries: Mapping[str, Any], title: str = "") -> None:
    """A legend (name: artist) above everything, headed by a title; the figure grows by the height of it."""
    handles, labels = list(entries.values()), list(entries)
    if not handles:
        whole.suptitle(title)
        return
    width = whole.get_figwidth()
    columns = next(n for n in range(len(labels), 0, -1) if n == 1 or _legend_width(labels, n) <= width)
    rows = ceil(len(labels) / columns)
    columns = ceil(len(labels) / rows)
    whole.set_figheight(whole.get_figheight() + 0.14 * (rows + bool(title)) + 0.08)
    whole.legend(
        _by_rows(handles, columns), _by_rows(labels, columns), loc="outside upper center",
        ncols=columns, title=title or None,
    )  # fmt: skip


def _legend_width(labels: Sequence[str], columns: int) -> float:
    """About how wide (inches) a legend of so many columns is, in 7 pt."""
    columns = ceil(len(labels) / ceil(len(labels) / columns))
    return sum(0.46 + 0.056 * max(map(len, labels[column::columns])) for column in range(columns))


def _by_rows(items: Sequence[Any], columns: int) -> list[Any]:
    """Matplotlib fills a legend column by column; this order makes it read row by row."""
    rows = ceil(len(items) / columns)
    full = len(items) - columns * (rows - 1)  # columns that have an item in the last row
    order = [row * columns + column for column in range(columns) for row in range(rows - (column >= full))]
    return [items[place] for place in order]


def note(whole: Figure, text: str) -> None:
    """Lines in small print below everything; nothing without text."""
    if text:
        at_most = int(20 * whole.get_figwidth())  # characters of 6.5 pt
        lines = [part for line in text.split("\n") for part in wrap(line, at_most)]
        whole.set_figheight(whole.get_figheight() + 0.13 * len(lines))
        whole.supxlabel("\n".join(lines), x=0.01, ha="left", color="#444444")


def label(ax: Axes, across: Iterable[float], up: Iterable[float], texts: Iterable[str]) -> None:
    """A text beside each point, where it hides no point and no other text; where there is no room, none.

    The last that is drawn: what is where has to be settled. Points that coincide have equal texts once.
    """
    whole = ax.get_figure(root=True)
    assert whole is not None
    whole.draw_without_rendering()
    points = ax.transData.transform(list(zip(across, up, strict=True))) * 72 / whole.dpi  # points of 1/72 in
    size = 6.0
    taken = [(x - 2, y - 2, x + 2, y + 2) for x, y in points]
    said: list[tuple[float, float, str]] = []
    for (x, y), text in zip(points.tolist(), texts, strict=True):
        if any(text == other and hypot(x - a, y - b) < size for a, b, other in said):
            continue
        said.append((x, y, text))
        width, height = 0.64 * size * len(text), 0.75 * size
        for along, above in _BESIDE:
            left, low = x + 3.5 * along - width * (1 - along) / 2, y + 3.5 * above - height * (1 - above) / 2
            box = (left, low, left + width, low + height)
            if not any(_overlap(box, other) for other in taken):
                place: Any = {"textcoords": "offset points", "ha": "left", "va": "bottom", "fontsize": size}
                at: Any = ax.transData.inverted().transform((x * whole.dpi / 72, y * whole.dpi / 72))
                ax.annotate(text, at, (left - x, low - y), **place)
                taken.append(box)
                break


_BESIDE = ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1.4), (0, -1.4))  # where a text may stand
_Box = tuple[float, float, float, float]


def _overlap(a: _Box, b: _Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def numbers(axis: Axis) -> None:
    """Plain numbers at the ticks of an axis."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def is_left(ax: Axes) -> bool:
    """Whether nothing stands to the left of it."""
    place = ax.get_subplotspec()
    return place is None or place.is_first_col()


def ticks_at(ax: Axes, values: Sequence[float]) -> None:
    """An x axis with ticks at the values, or at some of them; logarithmic if they span more than 8 times."""
    distinct = sorted({float(value) for value in values})
    if is_wide(distinct, 8):
        ax.set_xscale("log")
        place = ax.get_subplotspec()
        share = 0.14 if place is not None and place.get_gridspec().ncols > 2 else 0.1
        ax.xaxis.set_major_locator(FixedLocator(_thinned(distinct, share)))
        ax.xaxis.set_minor_locator(NullLocator())
    elif len(distinct) <= 6:
        ax.xaxis.set_major_locator(FixedLocator(distinct))
    else:
        whole = all(value == int(value) for value in distinct)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=whole))
    numbers(ax.xaxis)


def _thinned(values: list[float], share: float) -> list[float]:
    """Of rising values those that are a share of a logarithmic axis apart, so that their labels fit."""
    kept = values[:1]
    for value in values[1:]:
        if value >= 0.999 * kept[-1] * (values[-1] / values[0]) ** share:
            kept.append(value)
    return kept


def is_wide(values: Sequence[float], span: float = 30) -> bool:
    """Whether values, all above 0, span more than `span` times."""
    return len(values) > 0 and min(values) > 0 and max(values) > span * min(values)


def logarithmic(ax: Axes, axis: Literal["x", "y"], values: Iterable[float]) -> None:
    """A logarithmic axis with plain numbers, and more of them where the values span little."""
    values = list(values)
    (ax.set_xscale if axis == "x" else ax.set_yscale)("log")
    scale = ax.xaxis if axis == "x" else ax.yaxis
    near = not is_wide(values, 200)
    scale.set_major_locator(LogLocator(subs=(1, 2, 5) if near else (1,)))
    scale.set_minor_locator(NullLocator())
    numbers(scale)


def plain(value: float) -> str:
    """Three significant digits, or all before the point with commas."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def save(whole: Figure, path: str | Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write `path` with the ending of each format, .png, .svg and .pdf, and return the files.

    The same figure gives the same bytes. The folder is made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [path.with_name(f"{path.name}.{ending}") for ending in formats]
    with matplotlib.rc_context(_LOOK):
        for file, ending in zip(written, formats, strict=True):
            whole.savefig(file, dpi=_DPI, metadata=_NO_DATES[ending])
    return written
