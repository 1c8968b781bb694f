"""`make site`: docs/ as pages for a browser."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT


def test_every_page_is_on_the_site_and_in_its_menu(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    menu = re.findall(r'class="dropdown-item[^"]*">', (tmp_path / "index.html").read_text("utf-8"))
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"]
    assert len(menu) >= len(pages)
    assert not (tmp_path / "make").exists()
    for page in pages:
        assert (tmp_path / page.relative_to(ROOT / "docs").with_suffix("") / "index.html").is_file(), page
