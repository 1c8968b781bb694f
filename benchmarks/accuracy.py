"""Publish what `lockstep validate --suite --measured …` wrote into a folder and below: `accuracy.py DIR`.

Predictions go to benchmarks/truth, tables and pictures to docs/. Split models are in folders of their own
below both.
"""

import shutil
import sys
from pathlib import Path

from lockstep.studies.accuracy_suite.tables import between_markers

ROOT = Path(__file__).parent.parent
TRUTH = ROOT / "benchmarks" / "truth"
# A folder of measurements: what the page says its tables are made by, and which pictures the page has.
FOLDERS = {
    ".": ("make accuracy", ("scatter", "errors", "staleness", "curves")),
    "pipelines": ("make accuracy, split models", ("scatter",)),
    "pipelines-loopback": ("make accuracy, split models on the loopback", ()),
    "tensor": ("make accuracy, shared layers", ("scatter",)),
    "crowded": ("make accuracy, crowded cores", ()),
}


def publish(source: Path) -> None:
    page = ROOT / "docs" / "accuracy.md"
    for folder, (made_by, pictures) in FOLDERS.items():
        found, prefix = source / folder, "" if folder == "." else f"{folder}-"
        shutil.copyfile(found / "predicted.parquet", TRUTH / folder / "predicted.parquet")
        for picture in pictures:
            shutil.copyfile(found / f"{picture}.png", ROOT / "docs" / f"accuracy-{prefix}{picture}.png")
        tables = (found / "accuracy.md").read_text("utf-8")
        page.write_text(between_markers(page.read_text("utf-8"), tables, made_by), encoding="utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1]))
