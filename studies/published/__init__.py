"""Clusters that others measured: a few numbers fitted, all other rows predicted (docs/published.md)."""

import json
from collections.abc import Sequence
from pathlib import Path

from lockstep.studies.published.predicting import Progress, once, study
from lockstep.studies.published.summary import Found, summarise
from lockstep.studies.published.table import Table, chosen
from lockstep.studies.published.tables import markdown, show

__all__ = ["Table", "chosen", "published", "show"]


def published(
    tables: Sequence[Table],
    progress: Progress | None = None,
    out: Path | None = None,
    jobs: int | None = None,
) -> Found:
    """Fit and predict the tables; with `out`, write published.json, published.md and the picture there.

    `progress` is told the fraction done; `jobs` processes, or one a core. Returns what `--json` prints.
    """
    fits, rows = study(tables, progress, jobs)
    found = summarise((fits, rows), once(fits, rows, progress, jobs))
    if out is not None:
        from lockstep.analysis.plots import save
        from lockstep.analysis.plots.panels import panels
        from lockstep.studies.published.tables import finding

        out.mkdir(parents=True, exist_ok=True)
        (out / "published.json").write_text(json.dumps(found, allow_nan=False, indent=1) + "\n", "utf-8")
        (out / "published.md").write_text(markdown(found), "utf-8")
        save(panels(rows, finding(found)), out / "published", ("png",))
    return found
