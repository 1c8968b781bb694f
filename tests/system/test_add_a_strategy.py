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
SHELL = re.compile(r"^ *```sh\n(.*?)^ *```$", re.M | re.S)
COMMANDS = [line for block in SHELL.findall(PAGE) for line in block.splitlines()]
CHECKS = SHELL.findall(
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Add a strategy")[2]
)
NAMES = "fedbuff or overlap-local-sgd"  # what the page takes for CONTRIBUTING.md's NAME
COPIED = [*ROOMS, "benchmarks", "docs", "tests", "pyproject.toml", "CONTRIBUTING.md", "Makefile", "README.md"]
CACHE = ".mypy_cache"  # if there is one: a minute less
# One process for all commands, because it takes seconds to import torch. Each is run as if by itself. Of a
# whole suite it takes the tests that go through the list of strategies, and the new ones' cases, of those
# files that know of such a list.
DRIVER = """
import contextlib, inspect, io, json, pathlib, sys

LISTS = "STRATEGIES", "ROWS", "shipped"

class Narrow:
    def pytest_collection_modifyitems(self, config, items):
        chosen = [item for item in items if self.chosen(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    def chosen(self, item):
        if hasattr(item, "callspec"):
            return "fedbuff" in item.callspec.id or "overlap-local-sgd" in item.callspec.id
        return "STRATEGIES" in inspect.getsource(item.function)

def run(words):
    if words[:3] == ["python", "-m", "pytest"]:
        import pytest
        whole = not any(word.startswith("tests/") for word in words)
        files = [str(file) for file in pathlib.Path("tests").rglob("test_*.py")] if whole else []
        files = [file for file in files if any(word in pathlib.Path(file).read_text() for word in LISTS)]
        quick = "-q", "-p", "no:cacheprovider"
        return int(pytest.main([*words[3:], *quick, *files], [Narrow()] if whole else []))
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


def checks() -> list[list[str]]:
    """CONTRIBUTING.md's commands for a new strategy, with what `make` makes of its own."""
    found = []
    for line in CHECKS[0].splitlines():
        if line.split()[0] == "make":
            dry = ["make", "--dry-run", "--old-file", "install", *line.split()[1:]]
            own = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
            done = subprocess.run(dry, cwd=ROOT, env=own, capture_output=True, text=True, check=True)
            lines = done.stdout
        else:
            lines = line.replace("NAME", shlex.quote(NAMES))
        found += [shlex.split(each.replace(".venv/bin/", "")) for each in lines.splitlines()]
    return [[word for word in words if "=" not in word] for words in found]


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


def in_copy(tree: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "RUFF_NO_CACHE": "true"}
    return subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True
    )


@pytest.mark.real
@pytest.mark.slow
def test_the_page_works_as_it_is_written(tree: Path) -> None:
    (tree / "driver.py").write_text(DRIVER)
    suites = [words for words in checks() if "pytest" in words]
    parallel = {"--numprocesses", "auto", "--dist", "loadfile", "--no-loadscope-reorder"}
    suites = [[word for word in words if word not in parallel] for words in suites]
    outcome = in_copy(tree, "driver.py", json.dumps([*map(shlex.split, COMMANDS), *suites]))
    assert outcome.returncode == 0, outcome.stderr
    done = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert len(done) == len(COMMANDS) + len(suites)
    for command in done:
        assert command["status"] == 0, f"{command['command']}: {command['shown']}{outcome.stderr}"
    *shown, listed, contract = (command["shown"] for command in done)
    assert "7 passed" in contract  # two in both engines; their sizes; what is true of each
    assert int(re.findall(r"(\d+) passed", listed)[0]) > 20
    combined, fedbuff, overlapped, waiting, real = map(json.loads, shown)
    assert all(run["warnings"] == [] for run in (combined, fedbuff, overlapped))
    assert of_the_run(real["warnings"]) == []
    assert overlapped["loss"] == pytest.approx(waiting["loss"], rel=0.2)
    took = [f"{run['duration_s']:.1f} s" for run in (overlapped, waiting)]
    assert f"The first takes {took[0]} of virtual time, the second {took[1]}" in " ".join(PAGE.split())


@pytest.mark.nightly
def test_the_code_is_as_tidy_as_the_rest(tree: Path) -> None:
    linters = [words for words in checks() if "pytest" not in words]
    assert [words[0] for words in linters] == ["ruff", "ruff", "mypy"]
    for words in linters:
        outcome = in_copy(tree, "-m", *words)
        assert outcome.returncode == 0, outcome.stdout


@pytest.mark.nightly
def test_a_contributors_whole_check_list_passes(tree: Path) -> None:
    """The quick tests of the whole suite, in the copy: minutes."""
    (suite,) = [
        words for words in checks() if "pytest" in words and not any("tests/" in word for word in words)
    ]
    outcome = in_copy(tree, *suite[1:])
    assert outcome.returncode == 0, outcome.stdout[-5000:]
