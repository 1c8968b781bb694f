"""What was found about claims, in words: for a terminal and for Markdown."""

from collections.abc import Mapping
from math import floor, log10
from typing import Any

HEAD = ("claim", "source", "published", "measured (mean ± 95% interval)", "verdict")
_ANSWERS = {True: "", False: ": no", None: ": undecided"}


def row(found: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """The cells of one claim; a line in the fourth for each of its checks, with what it has to be."""
    lines = [f"{c['what']}: {figure(c['mean'], c['half_width'])} ({_wanted(c)})" for c in found["checks"]]
    return (
        f"{found['claim']}: {found['statement']}",
        found["source"],
        found["published"],
        "\n".join(lines),
        found["verdict"],
    )


def markdown(found: Mapping[str, Any]) -> str:
    """The table of all claims."""
    rows = [HEAD, ("---",) * len(HEAD), *(row(each) for each in found["claims"])]
    return "".join("| " + " | ".join(cell.replace("\n", "<br>") for cell in cells) + " |\n" for cells in rows)


def figure(mean: float | None, half: float | None) -> str:
    """A mean and half the width of its interval, to two digits of the latter."""
    if mean is None or half is None:
        return "not finite"
    if half < 1e-9 * abs(mean) or half == 0:
        return f"{mean:.4g} ± 0"
    digits = 1 - floor(log10(half))
    if digits > 6 or digits < 0:
        return f"{mean:.2g} ± {half:.2g}"
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def _wanted(check: Mapping[str, Any]) -> str:
    above, below = check["above"], check["below"]
    if above is not None and below is not None:
        wanted = f"{above:.4g} to {below:.4g}"
    else:
        wanted = f"> {above:.4g}" if above is not None else f"< {below:.4g}"
    return wanted + _ANSWERS[check["holds"]]
