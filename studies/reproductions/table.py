"""What was found about claims, in words: for a terminal and for Markdown."""

from collections.abc import Mapping
from math import floor, log10
from pathlib import Path
from typing import Any

from lockstep.terminal import show_table, titled

HEAD = ("claim", "source", "published", "measured (mean ± 95% interval)", "verdict")
_ANSWERS = {True: "", False: ": no", None: ": undecided"}


def row(found: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """The cells of one claim; a line in the fourth for each of its checks, with what it has to be."""
    lines = [f"{c['what']}: {value(c['mean'], *c['interval'])}{_wanted(c)}" for c in found["checks"]]
    return (
        f"{found['claim']}: {found['statement']}",
        found["source"],
        found["published"],
        "\n".join(lines),
        found["verdict"],
    )


def show(found: dict[str, Any], out: Path | None) -> None:
    """Claims, what was published, what was measured, and the verdicts."""
    table = titled("Published behaviour", show_lines=True)
    for name, share in zip(HEAD, (4, 2, 3, 6, 1), strict=True):
        table.add_column(name, ratio=share)
    for claim in found["claims"]:
        style = None if claim["verdict"] == "holds" else "bold"
        table.add_row(*row(claim), style=style)
    show_table(table)
    print(", ".join(f"{count} {verdict}" for verdict, count in found["verdicts"].items()) + ".")
    if out is not None:
        print(f"Written to {out}: claims.md, claims.json, runs.csv.")


def markdown(found: Mapping[str, Any]) -> str:
    """The table of all claims."""
    rows = [HEAD, ("---",) * len(HEAD), *(row(each) for each in found["claims"])]
    return "".join("| " + " | ".join(cell.replace("\n", "<br>") for cell in cells) + " |\n" for cells in rows)


def value(mean: float | None, low: float | None, high: float | None) -> str:
    """A mean and its interval, to two digits of the latter's half width."""
    if mean is None or low is None or high is None:
        return "not finite"
    half = (high - low) / 2
    if half <= 1e-9 * abs(mean):
        return f"{mean:.4g} ± 0"
    digits = 1 - floor(log10(half))
    if abs((high + low) / 2 - mean) > 0.1 * half:
        return f"{_rounded(mean, digits)} ({_rounded(low, digits)} … {_rounded(high, digits)})"
    return f"{_rounded(mean, digits)} ± {_rounded(half, digits)}"


def _rounded(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if 0 <= digits <= 6 else f"{value:.2g}"


def _wanted(check: Mapping[str, Any]) -> str:
    above, below = check["above"], check["below"]
    if above is None and below is None:
        return ""
    if above is not None and below is not None:
        wanted = f"{above:.4g} to {below:.4g}"
    else:
        wanted = f"> {above:.4g}" if above is not None else f"< {below:.4g}"
    return f" ({wanted}{_ANSWERS[check['holds']]})"
