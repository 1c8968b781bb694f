"""A comparison on the terminal: what differs, what that did to each metric, where the time went."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD

from lockstep import terminal
from lockstep.analysis.differences import Change, Pair
from lockstep.analysis.plots.breakdown import NAMES
from lockstep.analysis.plots.words import METRICS, Scale, scale, words
from lockstep.analysis.words import NOTHING, count, number, percent
from lockstep.comparison import Comparison

_HEADLINE = ("throughput", "time_to_target_s", "staleness.mean")
_NO_UNITS = ("number", "fraction", "versions", "× one worker", "speedup ÷ workers")  # what axes say
_MOST = 100  # rows of a table that is still read


def show(comparison: Comparison) -> None:
    """Print one pair in full, or a line for each of several."""
    pairs = comparison.pairs
    if len(pairs) == 1:
        _whole(pairs[0])
    else:
        _lines(pairs)
        if comparison.same:
            print("The same: no key and no metric differs, in none of them.")


def _whole(pair: Pair) -> None:
    first, second = pair.sides
    if pair.same:
        print(f"The same: {first} and {second} differ in no key and in no metric.")
        return
    if pair.keys:
        _print(f"What differs: {first} → {second}", keys_of(pair), ("key", "first", "second"))
    else:
        print("No key of the scenarios differs.")
    told = [name for name, change in pair.metrics.items() if name in METRICS and change.certain]
    untold = [name for name, change in pair.metrics.items() if name in METRICS and not change.certain]
    rows = metrics_of(pair, [name for name in METRICS if name in told and "breakdown" not in name])
    if rows:
        heads = ("metric", "first", "second", "change", "", "95% interval")
        _print("What that did", rows, heads if max(pair.runs) > 1 else heads[:5])
    if untold and max(pair.runs) > 1:
        names = ", ".join(words(name) for name in METRICS if name in untold and "breakdown" not in name)
        print(f"No difference that {count(min(pair.runs), 'run')} of each can tell: {names}.\n")
    if pair.step_s:
        _steps(pair)
    for name, limit in zip(("first", "second"), pair.bottlenecks, strict=True):
        if limit:
            print(f"Bottleneck, {name}: {limit}")


def keys_of(pair: Pair) -> list[tuple[str, ...]]:
    """The keys that differ, and their values on both sides."""
    return [
        (key, *(_cell(scale(key, _numbers(values)), value) for value in values))
        for key, values in pair.keys.items()
    ]


def metrics_of(pair: Pair, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Of these metrics those that both sides have: in words, first, second, the change, and relative."""
    return [_row(name, pair.metrics[name]) for name in names if name in pair.metrics]


def _steps(pair: Pair) -> None:
    whole = [sum(values) for values in zip(*pair.step_s.values(), strict=True)]
    its = scale("duration_s", whole)
    parts = {NAMES[part]: values for part, values in pair.step_s.items() if any(values)}
    rows = [
        (part, _cell(its, first), _cell(its, second), _cell(its, second - first, True))
        for part, (first, second) in {**parts, "a step": (whole[0], whole[1])}.items()
    ]
    _print("Where the time of a step went", rows, ("mean worker", "first", "second", "change"))


def _row(name: str, each: Change) -> tuple[str, ...]:
    its = scale(name, [each.first, each.second])
    change = _cell(its, each.change, True), NOTHING if each.relative is None else percent(each.relative, True)
    cells = (words(name), _cell(its, each.first), _cell(its, each.second), *change)
    if each.low is None or each.high is None:
        return cells
    ends = [_cell(Scale(its.factor, ""), end, True) for end in (each.low, each.high)]
    return (*cells, " to ".join(ends))


def _lines(pairs: Sequence[Pair]) -> None:
    """A line a pair: where, and the change of the main metrics."""
    places = list(dict.fromkeys(key for pair in pairs for key in pair.where))
    several = len({pair.sides for pair in pairs}) > 1
    metrics = [name for name in _HEADLINE if all(name in pair.metrics for pair in pairs)]
    scales = {
        name: scale(name, [v for p in pairs for v in (p.metrics[name].first, p.metrics[name].second)])
        for name in metrics
    }
    rows = []
    for pair in pairs[:_MOST]:
        cells = [pair.sides[1]] * several
        cells += [_cell(scale(key, _numbers([pair.where.get(key)])), pair.where.get(key)) for key in places]
        for name in metrics:
            each, bare = pair.metrics[name], Scale(scales[name].factor, "")
            told = percent(each.relative, True) if each.certain and each.relative is not None else "="
            cells += [f"{_cell(bare, each.first)} → {_cell(bare, each.second)}", told]
        rows.append(tuple(cells))
    heads = ["against the first"] * several + [words(key) for key in places]
    for name in metrics:
        unit = "" if scales[name].unit in _NO_UNITS else f" ({scales[name].unit})"
        heads += [f"{words(name)}{unit}".replace(" ", "\n", 1), "change"]
    _print(f"{pairs[0].sides[0]} → {'the others' if several else pairs[0].sides[1]}", rows, heads)
    if len(pairs) > _MOST:
        print(f"and {count(len(pairs) - _MOST, 'more pair')}.")
    if any("=" in row for row in rows):
        print("=: no difference that these runs can tell.")


def _print(title: str, rows: Sequence[Sequence[str]], heads: Sequence[str]) -> None:
    table = terminal.titled(title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.pad_edge = table.show_edge = False
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place == 0 else "right")
    for row in rows:
        table.add_row(*row)
    terminal.show_table(table)
    print()


def _numbers(values: Sequence[Any]) -> list[float]:
    return [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


def _cell(its: Scale, value: Any, sign: bool = False) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    unit = "" if its.unit in _NO_UNITS else its.unit
    return f"{'+' if sign and value > 0 else ''}{number(value * its.factor, unit)}"
