"""A comparison in a folder: `comparison.json`, and a waterfall of each pair's step."""

import json
from pathlib import Path

from lockstep.analysis.plots import save as save_picture
from lockstep.analysis.plots.waterfall import waterfall
from lockstep.comparison import Comparison

_MOST = 20  # pictures


def save(comparison: Comparison, folder: Path) -> None:
    """Write it; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(comparison.to_json(), allow_nan=False)
    (folder / "comparison.json").write_text(text + "\n", encoding="utf-8")
    drawn = [pair for pair in comparison.pairs if pair.step_s][:_MOST]
    for place, pair in enumerate(drawn):
        save_picture(waterfall(pair), folder / ("step" if len(drawn) == 1 else f"step-{place}"))
