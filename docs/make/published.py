"""Publish what `lockstep validate --published --out DIR` wrote: `published.py DIR` puts it into docs/."""

import shutil
import sys
from pathlib import Path

from lockstep.studies.accuracy_suite.tables import between_markers

DOCS = Path(__file__).parent.parent
NAME = "make published"


def publish(source: Path) -> None:
    """Put the tables into the page, and the picture beside it."""
    page = DOCS / "published.md"
    made = (source / "published.md").read_text("utf-8")
    page.write_text(between_markers(page.read_text("utf-8"), made, NAME), encoding="utf-8")
    shutil.copyfile(source / "published.png", DOCS / "published.png")


if __name__ == "__main__":
    publish(Path(sys.argv[1]))
