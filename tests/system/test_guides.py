"""docs/guides, as a new user follows them: in an empty folder, with the files that a page shows.

What a page says that a command prints it prints. A decision stands in the page as a comment,
`<!-- decides: CONDITION -->`, in Python, of what the commands have written (`READ`).
"""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support import ROOT
from tests.support.command_line import Lockstep, fine
from tests.support.nightly import drawn
from tests.support.pages import all_blocks, commands

FOLDER = ROOT / "docs" / "guides"
GUIDES = sorted(FOLDER.glob("*.md"))
PARALLEL = {"sweep", "recommend", "fit"}


def ran(folder: str) -> Any:
    """The metrics of a run."""
    return json.loads(Path(folder, "result.json").read_text())


def recommended(folder: str) -> Any:
    """What `recommend` found."""
    return json.loads(Path(folder, "recommendation.json").read_text())


def point(folder: str, number: int) -> Any:
    """A sweep's point, as it is numbered in its table: means over its seeds."""
    table = pd.read_parquet(Path(folder, "results.parquet"))
    return table[table["point"] == number].mean(numeric_only=True)


READ = {"ran": ran, "recommended": recommended, "point": point}


def lines(text: str) -> list[str]:
    """Without what only aligns and frames them."""
    return [" ".join(re.sub("[│─━┃]", " ", line).split()) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("page", drawn([page.stem for page in GUIDES], one_in=7))
def test_a_guide(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Lockstep) -> None:
    monkeypatch.chdir(tmp_path)
    printed: list[str] = []
    file = FOLDER / f"{page}.md"
    for language, text in all_blocks(file):
        if language == "yaml":
            (found,) = re.findall(r"^name: (\w+)$", text, re.MULTILINE)
            Path(f"{found}.yaml").write_text(text)
        elif language == "csv":
            (found,) = re.findall(r"^# (\w+\.csv)", text)
            Path(found).write_text(text)
        elif language == "sh":
            printed = []
            for words in commands(text):
                one = ["--jobs", "1"] if words[0] in PARALLEL else []
                printed += lines(fine(command(*words, *one)))
        else:
            missing = [line for line in lines(text) if line not in {*printed, "…", ""}]
            assert not missing, "\n".join([*missing, "is not printed any more:", *printed])
    decisions = re.findall(r"<!-- decides: (.*?) -->", file.read_text(encoding="utf-8"), re.DOTALL)
    assert decisions
    for decision in decisions:
        assert eval(decision, dict(READ)), decision


def test_there_are_some() -> None:
    assert len(GUIDES) >= 7
