"""Publish what `lockstep validate --suite --measured benchmarks/truth --out DIR` computed: `accuracy.py DIR`.

Its predictions go to benchmarks/truth, its tables and pictures to docs/.
"""

import shutil
import sys
from pathlib import Path

from lockstep.studies.accuracy_suite.tables import between_markers

ROOT = Path(__file__).parent.parent


def publish(source: Path) -> None:
    shutil.copyfile(source / "predicted.parquet", ROOT / "benchmarks" / "truth" / "predicted.parquet")
    for picture in sorted(source.glob("*.png")):
        shutil.copyfile(picture, ROOT / "docs" / f"accuracy-{picture.name}")
    page = ROOT / "docs" / "accuracy.md"
    tables = (source / "accuracy.md").read_text("utf-8")
    page.write_text(between_markers(page.read_text("utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1]))
