"""A folder of results as one HTML page: `lockstep report` (docs/report.md)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lockstep.analysis.gains import Gain
from lockstep.analysis.report.gather import Gathered, gather
from lockstep.analysis.report.page import best_run, page
from lockstep.analysis.what_if import WhatIf

__all__ = ["Gathered", "best_run", "gather", "page", "write"]


def write(
    gathered: Gathered,
    out: Path,
    versions: Mapping[str, str],
    gains: Sequence[Gain] | None = None,
    way: WhatIf | None = None,
) -> None:
    """Write the page of what was gathered to a file.

    `versions`: what it was made with; `gains`: what would make the `best_run` faster, and `way`: from it to
    the ideal, if that was tried.
    """
    html = page(gathered, versions, gains, way)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html, encoding="utf-8", newline="\n")
