"""A folder of results as one HTML page: `lockstep report` (docs/report.md)."""

from collections.abc import Mapping
from pathlib import Path

from analysis.report.gather import Gathered, gather
from analysis.report.page import page

__all__ = ["Gathered", "gather", "page", "write"]


def write(gathered: Gathered, out: Path, versions: Mapping[str, str]) -> None:
    """Write the page of what was gathered to a file; `versions`: what it was made with."""
    html = page(gathered, versions)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html, encoding="utf-8", newline="\n")
