"""What `lockstep plot` says of folders without runs; the page on pictures names every kind."""

import re
from pathlib import Path

import pandas as pd
import pytest

from lockstep.analysis import plots
from tests.support import ROOT
from tests.support.command_line import Lockstep


def test_no_results_is_said(command: Lockstep, tmp_path: Path) -> None:
    assert "has no runs; give the --out of a sweep" in command("plot", tmp_path).err
    assert "there is no such file or folder" in command("plot", tmp_path / "nothing").err
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "points.jsonl").touch()
    for verb in ("plot", "report"):
        ended = command(verb, tmp_path / "killed")
        assert (ended.status, "start the same sweep again" in ended.err) == (2, True)
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "results.parquet")
    assert "has no column cluster.workers" in command("plot", tmp_path).err


PAGE = ROOT / "docs" / "plots.md"


@pytest.mark.slow
def test_the_page_has_every_kind_its_pictures_and_code_that_runs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    heads = {name for line in re.findall(r"^### (.*)$", text, re.MULTILINE) for name in line.split(", ")}
    assert heads | {"metric"} == {*plots.KINDS}
    for picture in re.findall(r"\]\((plots/.*?\.png)\)", text):
        assert (PAGE.parent / picture).is_file()
    for flag in re.findall(r"--kind (\S+?)[`\s]", text):
        assert flag in {*plots.KINDS, "NAME"}
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    exec(compile(code, str(PAGE), "exec"), {})
