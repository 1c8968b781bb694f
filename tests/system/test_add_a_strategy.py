"""docs/add-a-strategy.md, followed to the letter in a copy of the source tree."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOMS, ROOT
from tests.support.command_line import of_the_run

PAGE = (ROOT / "docs" / "add-a-strategy.md").read_text(encoding="utf-8")
# "New file `path`:", "At the end of `path`:" or "In `path`, below `line`:", and the block that goes there
BLOCK = re.compile(
    r"^(New file|At the end of|In) `(.+?)`(?:, below `(.+?)`)?:\n\n```\w+\n(.*?)^```$", re.M | re.S
)
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()
]
LINTERS = [command for command in COMMANDS if command.split()[0] in ("ruff", "mypy")]
COPIED = [*ROOMS, "docs", "tests", "pyproject.toml"]
CACHE = ".mypy_cache"  # if there is one: a minute less
# One process for all commands, because it takes seconds to import torch. Each is run as if by itself.
DRIVER = """
import contextlib, io, json, sys

def run(words):
    if words[:3] == ["python", "-m", "pytest"]:
        import pytest
        return int(pytest.main([*words[3:], "-q", "-p", "no:cacheprovider"]))
    from lockstep.cli import main
    sys.argv = [*words, "--json", "--quiet"]
    try:
        main()
    except SystemExit as leave:
        return leave.code

if __name__ == "__main__":
    for words in json.loads(sys.argv[1]):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            status = run(words)
        print(json.dumps({"command": words, "status": status, "shown": shown.getvalue()}))
"""


def lines_of(page: str) -> int:
    return sum(bool(line.strip()) for *_, block in BLOCK.findall(page) for line in block.splitlines())


def test_a_strategy_is_less_than_60_lines_and_the_page_says_how_many() -> None:
    last = lines_of(PAGE.partition("## The program is new")[2])
    assert last < 60
    assert f"in {lines_of(PAGE)} lines, the last in {last}" in " ".join(PAGE.split())
    assert len(BLOCK.findall(PAGE)) == len(re.findall(r"^```(?!sh$)\w", PAGE, re.M))  # no block goes nowhere


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the source tree with the page's blocks where the page says."""
    for name in [*COPIED, *([CACHE] if (ROOT / CACHE).is_dir() else [])]:
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(source, target, symlinks=True) if source.is_dir() else shutil.copy(source, target)
    for where, path, line, block in BLOCK.findall(PAGE):
        file = tmp_path / path
        if where == "New file":
            assert not file.exists()
            file.write_text(block, encoding="utf-8")
        elif where == "At the end of":
            file.write_text(f"{file.read_text(encoding='utf-8')}\n\n{block}", encoding="utf-8")
        else:
            before, found, after = file.read_text(encoding="utf-8").partition(f"{line}\n")
            assert found, f"no line {line!r} in {path}"
            file.write_text(before + found + block + after, encoding="utf-8")
    return tmp_path


@pytest.mark.real
def test_the_page_works_as_it_is_written(tree: Path) -> None:
    (tree / "driver.py").write_text(DRIVER)
    words = json.dumps([shlex.split(command) for command in COMMANDS if command not in LINTERS])
    outcome = subprocess.run(
        [sys.executable, "driver.py", words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 0, outcome.stderr
    done = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert len(done) == len(COMMANDS) - len(LINTERS)
    for command in done:
        assert command["status"] == 0, f"{command['command']}: {command['shown']}{outcome.stderr}"
    results = {" ".join(command["command"][1:]): command["shown"] for command in done}
    *runs, contract, listed = (json.loads(shown) if shown[0] == "{" else shown for shown in results.values())
    assert (
        "7 passed" in contract
    )  # every strategy has a row; two in both engines, and their sizes; what is true of each
    assert "failed" not in listed
    combined, fedbuff, pipelined, summed, real = runs
    assert all(run["warnings"] == [] for run in (combined, fedbuff, pipelined))
    assert of_the_run(real["warnings"]) == []
    assert pipelined["loss"] == pytest.approx(summed["loss"], rel=0.2)
    shown = [f"{run['duration_s']:.1f} s" for run in (pipelined, summed)]
    assert f"The first takes {shown[0]} of virtual time, the second {shown[1]}" in " ".join(PAGE.split())


@pytest.mark.slow
def test_the_code_is_as_tidy_as_the_rest(tree: Path) -> None:
    assert len(LINTERS) == 3
    for command in LINTERS:
        outcome = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=tree,
            env={**os.environ, "RUFF_NO_CACHE": "true"},
            capture_output=True,
            text=True,
        )
        assert outcome.returncode == 0, outcome.stdout
