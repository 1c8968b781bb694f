"""What was found, in words: for a terminal, and for docs/published.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.analysis.words import NOTHING, count, number, percent
from lockstep.studies.published.table import read
from lockstep.terminal import show_table, titled

Cells = Sequence[str]


def show(found: Mapping[str, Any], out: Path | None) -> None:
    """The bars, and a row a table; rows of single tables are in the page and in `--json`."""
    table = titled("Published clusters: rows predicted", *_TABLES_HEAD[:1])
    for name in _TABLES_HEAD[1:]:
        table.add_column(name, justify="right")
    for row in _tables(found):
        table.add_row(*row)
    show_table(table)
    for line in headline(found):
        print(line)
    if out is not None:
        print(f"Written to {out}: published.json, published.md and the picture.")


def headline(found: Mapping[str, Any]) -> list[str]:
    """The errors over all predicted rows, then over those whose mechanism is modelled; then the bars."""
    said = [f"{name}: {_errors(found['errors'][group])}." for group, name in _GROUPS.items()]
    for group in ("all", "modelled"):
        ranks = found["ranking"][group]
        if ranks["pairs"]:
            each = f"; by what a device brings {_tau(ranks['tau_each'])} of {ranks['pairs_each']}"
            said.append(
                f"Ranking, {_GROUPS[group].lower()}: τ {_tau(ranks['tau'])} of {ranks['pairs']} pairs"
                f"{each if ranks['pairs_each'] else ''}."
            )
    for bar in found["bars"]:
        sign = "≥" if bar["at_least"] else "≤"
        form = _tau if bar["at_least"] else percent
        verdict = {True: "met", False: "missed", None: "not tried"}[bar["met"]]
        said.append(
            f"Bar, rows modelled: {bar['what']} {sign} {form(bar['bar'])}: {form(bar['value'])}, {verdict}."
        )
    once = found["once"]
    before, now = once["numbers"]
    if before != now:
        said.append(
            f"With what belongs to a machine fitted once, {now} numbers instead of {before}, the rows whose "
            f"mechanism is modelled: {_errors(once['once'])}. What was fitted before: "
            f"{_errors(once['besides'])}."
        )
    return said


def markdown(found: Mapping[str, Any]) -> str:
    """What docs/published.md has between its markers."""
    parts = [
        "".join(f"- {line}\n" for line in headline(found)),
        _grid(_TABLES_HEAD, _tables(found)),
        _once(found),
    ]
    for each in found["tables"]:
        parts.append(_section(each))
    return "\n".join(parts)


def _section(found: Mapping[str, Any]) -> str:
    table = read(found["name"])
    lines = [f"### {found['name']}", "", f"{found['title']}.", ""]
    lines += [f"{line}" for line in table.comments] + [""]
    lines += [f"**Fitted** to {table.rows}: {', '.join(f'`{key}`' for key in table.free)}. {table.why}", ""]
    lines += [f"**Not modelled**, `{word}`: {text}\n" for word, text in table.causes.items()]
    unit = "samples/s" if found["measure"] == "throughput" else "s"
    head = (
        *(("",) if any(each["name"] for each in found["series"]) else ()),
        "row",
        unit,
        "predicted",
        "error",
        "",
    )
    rows = []
    for series in found["series"]:
        said = f"{series['name']}<br>{_values(series)}".removeprefix("<br>")
        for row in series["rows"]:
            cells = (row["label"], number(row["measured"]), number(row["predicted"]), _error(row), _note(row))
            rows.append((said, *cells) if len(head) > 5 else cells)
            said = ""
    if len(head) == 5:
        lines += [f"Found: {_values(found['series'][0])}.", ""]
    return "\n".join(lines) + _grid(head, rows)


def _values(series: Mapping[str, Any]) -> str:
    said = []
    for key, value in series["free"].items():
        end = " (the end of its range)" if key in series["at_end"] else ""
        said.append(f"{_short(key)} {number(value['value'], value['unit'])}{end}")
    return ", ".join(said)


def _short(key: str) -> str:
    words = key.split(".")
    return words[-2] if words[-1] == "value" else " ".join(words[2:] or words[1:])


def _error(row: Mapping[str, Any]) -> str:
    """Nothing has no sign that could change with the last bit."""
    return percent(row["error"], sign=True).replace("-0.0%", "+0.0%")


def _note(row: Mapping[str, Any]) -> str:
    return "fitted" if row["use"] == "fit" else f"`{row['cause']}`" if row["cause"] else ""


_GROUPS = {
    "all": "All predicted rows",
    "modelled": "Rows whose mechanism is modelled",
    "modelled, measured": "Of these, measured (not another simulation's)",
    "modelled, not mended": "Of these, in tables that were not mended after their first prediction",
    "not modelled": "Rows whose mechanism is not modelled",
}
_TABLES_HEAD = ("table", "rows", "median", "90%", "largest", "modelled", "median", "90%", "largest")


def _tables(found: Mapping[str, Any]) -> list[Cells]:
    rows: list[Cells] = []
    for each in found["tables"]:
        cells = [each["name"]]
        for errors in (each["errors"], each["modelled"]):
            cells += [str(errors["rows"]), *(percent(errors[key]) for key in ("median", "p90", "max"))]
        rows.append(cells)
    return rows


def _once(found: Mapping[str, Any]) -> str:
    """What is fitted once for a machine, of the tables where several series share one."""
    rows, by = [], []
    for each in found["once"]["tables"]:
        if each["numbers"][0] == each["numbers"][1]:
            continue
        cells = [each["name"], str(each["series"]), f"{each['numbers'][0]}, {each['numbers'][1]}"]
        for of in ("apart", "once", "besides"):
            cells += [str(each[of]["rows"]), *(percent(each[of][key]) for key in ("median", "p90", "max"))]
        rows.append((*cells[:7], *cells[8:11], *cells[11:]))
        by += [f"- `{each['name']}`, {series['series']}: {_values(series)}\n" for series in each["by"]]
    if not rows:
        return ""
    errors = "median", "90%", "largest"
    head = ("table", "series", "numbers, once", "rows", *errors, *(f"once: {each}" for each in errors))
    return (
        "### What belongs to a machine, fitted once\n\n"
        "Rows whose mechanism is modelled: as above, with fewer numbers, and what was fitted before.\n\n"
        f"{_grid((*head, 'besides', *errors), rows)}\nBy these series:\n\n{''.join(by)}"
    )


def _errors(errors: Mapping[str, Any]) -> str:
    if not errors["rows"]:
        return "none"
    return (
        f"{count(errors['rows'], 'row')}, median error {percent(errors['median'])}, 90% within "
        f"{percent(errors['p90'])}, largest {percent(errors['max'])}; {percent(errors['within'])} within 12%"
    )


def _tau(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _grid(head: Cells, rows: Sequence[Cells]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def finding(found: Mapping[str, Any]) -> str:
    """The picture's title."""
    every, modelled = found["errors"]["all"], found["errors"]["modelled"]
    said = f"Median error {percent(every['median'])} over {count(every['rows'], 'predicted row')} of "
    said += f"{count(len(found['tables']), 'published table')}"
    return said + (
        f"; {percent(modelled['median'])} where the mechanism is modelled" if modelled["rows"] else ""
    )
