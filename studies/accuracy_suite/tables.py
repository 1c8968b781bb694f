"""The summary in words: tables for a terminal and for docs/accuracy.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.analysis.words import count, number, percent
from lockstep.terminal import show_table, titled

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]  # title, head, rows
END = "<!-- end of tables -->"
SIDES = ("predicted", "measured")
_NOTHING = "–"


def tables(summary: Mapping[str, Any]) -> list[Table]:
    """Title, head and rows of each."""
    errors, rows = summary["errors"], list[tuple[str, ...]]()
    found: list[Table] = [
        ("The bars", ("on held-out runs", "bar", "found", ""), [_bar(bar) for bar in summary["bars"]]),
        _errors("Errors", {**errors}),
    ]
    found += [_errors(f"Held-out runs by {name}", levels) for name, levels in summary["by"].items()]
    if summary["largest"]:
        rows = [
            (p["name"], *(number(p[f"{side}_throughput"]) for side in SIDES), _signed(p["throughput_error"]))
            for p in summary["largest"]
        ]
        found.append(("Largest errors of held-out runs, samples/s", ("point", *SIDES, "error"), rows))
    if summary["time_to_target"]:
        head = ("strategy", "seeds", *SIDES, "error")
        rows = [
            (
                name,
                f"{t['reached']} of {t['seeds']}",
                _s(t["predicted_s"]),
                _s(t["measured_s"]),
                _signed(t["error"]),
            )
            for name, t in summary["time_to_target"].items()
        ]
        found.append(("Time to the target loss, median over seeds", head, rows))
    return found


def lines(summary: Mapping[str, Any]) -> list[str]:
    """What is to be said besides the tables."""
    ranks = summary["ranking"]
    said = [f"{count(summary['points'], 'point')}, {len(summary['failed']) or 'none'} failed."]
    said += [f"failed: {name}: {error}" for name, error in summary["failed"].items()]
    if ranks["pairs"]:
        wrong = f"; in the wrong order: {'; '.join(ranks['wrong'])}" if ranks["wrong"] else ""
        said.append(
            f"{ranks['pairs']} pairs of strategies on the same cluster differ by more than 5%{wrong}."
        )
    if more := summary["runs"] - summary["points"] + len(summary["failed"]):
        said.append(f"{count(more, 'more run')}, where chance asked for more than one a point.")
    if again := summary["attempts"] - summary["runs"]:
        said.append(f"{count(again, 'disturbed run')} made again or left out.")
    if summary["disturbed"]:
        left = count(len(summary["disturbed"]), "point")
        said.append(f"{left} stayed disturbed, in no number here: {', '.join(summary['disturbed'])}.")
    if summary["warned"]:
        said.append(f"{count(len(summary['warned']), 'run')} warned: {', '.join(summary['warned'])}.")
    return said


def show(summary: dict[str, Any], out: Path) -> None:
    """How near the suite's predictions were: the bars, errors by group, times to the target."""
    for title, head, rows in tables(summary):
        table = titled(title)
        for column, name in enumerate(head):
            table.add_column(name, justify="right" if column else "left")
        for row in rows:
            table.add_row(*row, style="bold red" if row[-1] == "missed" else None)
        show_table(table)
    for line in lines(summary):
        print(line)
    print(f"Written to {out}: accuracy.md, summary.json, results.parquet and the pictures.")


def markdown(summary: Mapping[str, Any]) -> str:
    """All of it, as docs/accuracy.md has it between its markers."""
    parts = []
    for title, head, rows in tables(summary):
        table = [head, ("---", *("---:",) * (len(head) - 1)), *rows]
        parts.append(f"**{title}**\n\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in table))
    return "\n".join([*parts, "".join(f"- {line}\n" for line in lines(summary))])


def between_markers(page: str, tables: str, made_by: str = "make accuracy") -> str:
    """A page with the tables in the place of those that it has; `made_by` is in the first of the markers.

    Raises ValueError if it has no markers.
    """
    marker = f"<!-- tables: {made_by} -->"
    before, begin, rest = page.partition(marker)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {marker} … {END}")
    return f"{before}{marker}\n\n{tables}\n{END}{after}"


def _bar(bar: Mapping[str, Any]) -> tuple[str, ...]:
    form = (lambda value: f"{value:.3f}") if bar["bar"] in (0.08, 0.95) else percent
    value = _NOTHING if bar["value"] is None else form(bar["value"])
    sign = "≥" if bar["at_least"] else "≤"
    return (
        bar["what"],
        f"{sign} {form(bar['bar'])}",
        value,
        {True: "met", False: "missed", None: _NOTHING}[bar["met"]],
    )


_HEAD = (
    "points",
    "throughput: median",
    "p90",
    "maximum",
    "bias",
    "staleness: median",
    "p90",
    "KS: median",
    "p90",
)


def _errors(title: str, levels: Mapping[str, Mapping[str, Any]]) -> Table:
    return title, ("", *_HEAD), [(level, *_cells(found)) for level, found in levels.items()]


def _cells(found: Mapping[str, Any]) -> Sequence[str]:
    rate, stale, ks = (found[key] for key in ("throughput_error", "staleness_error", "staleness_ks"))
    rates = [percent(rate[key]) for key in ("median", "p90", "max")] if rate else [_NOTHING] * 3
    return [
        str(found["points"]),
        *rates,
        _signed(rate["mean"]) if rate else _NOTHING,
        *([percent(stale["median"]), percent(stale["p90"])] if stale else [_NOTHING] * 2),
        *([f"{ks['median']:.3f}", f"{ks['p90']:.3f}"] if ks else [_NOTHING] * 2),
    ]


def _signed(value: float | None) -> str:
    return percent(value, sign=True)


def _s(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.2f} s"
