"""What README.md and docs/ show is so: commands, scenarios, Python and links."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

import lockstep
from lockstep.analysis.plots import KINDS
from lockstep.cli import app
from lockstep.scenarios import Scenario, shipped
from lockstep.sweeping.points import plan
from tests.support import ROOMS, ROOT, pages
from tests.support.command_line import Lockstep
from tests.support.pages import blocks

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# test_add_a_strategy.py does what this page says, in a copy of the source; here its strategies are unknown
FOLLOWED = ROOT / "docs" / "add-a-strategy.md"
COMMANDS: dict[str, Any] = getattr(typer.main.get_command(app()), "commands")  # noqa: B009 (of a click group)
LISTS = {"scenarios", "clusters", "workloads", "profiles", "strategies", "systems", "schema", "model"}
CHEAP = 2_000  # steps × workers², about the messages of a simulation that learns nothing: a tenth of a second


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each `lockstep …`."""
    return (words for block in blocks(page, "sh") for words in pages.commands(block))


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters of a command, as the real command line reads them; raises click's usage errors."""
    command = COMMANDS[words[0]]
    with command.make_context(words[0], words[1:]) as context:
        return dict(context.params)


def provide(page: Path, folder: Path) -> None:
    """The files that the page's commands name: those that it shows, or else shipped ones in their stead."""
    provide_modules(page, folder)
    for word in (word for words in commands(page) for word in words):
        key, _, file = word.rpartition("=")
        if re.fullmatch(r"[\w-]+\.yaml", file):
            shown = [block for block in blocks(page, "yaml") if f"name: {Path(file).stem}\n" in block]
            stands_in = "profiles/testbed.yaml" if key == "cluster.profile" else "quickstart.yaml"
            text = shown[0] if shown else (ROOT / "scenarios" / stands_in).read_text(encoding="utf-8")
            (folder / file).write_text(text)


def provide_modules(page: Path, folder: Path) -> None:
    """The modules that the page shows: those whose first line is their name."""
    for block in blocks(page, "python"):
        if found := re.match(r"# (\w+\.py)\n", block):
            (folder / found[1]).write_text(block)


def is_cheap(scenario: Scenario) -> bool:
    steps = scenario.stop.steps
    return not scenario.workload.learns and steps is not None and steps * scenario.cluster.workers**2 <= CHEAP


@pytest.mark.parametrize("page", [p for p in PAGES if "```sh" in p.read_text(encoding="utf-8")], ids=name)
def test_the_commands_are_ones(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Lockstep
) -> None:
    """Command, options, scenario and overrides; what is cheap is run."""
    monkeypatch.chdir(tmp_path)
    provide(page, tmp_path)
    for words in commands(page):
        given = parsed(words)
        assert set(given.get("kind") or ()) <= KINDS.keys(), words
        file, overrides = given.get("file"), given.get("set_") or []
        run = words[0] in LISTS
        if file not in (None, "FILE") and page != FOLLOWED:
            if words[0] == "sweep":
                plan(file, overrides)
            else:
                run = is_cheap(lockstep.load(file, overrides)) and words[0] == "simulate"
        if run:
            ended = command(*words)
            assert ended.status == 0, (words, ended.err)


def scenarios_shown() -> Iterator[Any]:
    for page in PAGES:
        for number, block in enumerate(blocks(page, "yaml")):
            if page != FOLLOWED and {"cluster", "workload"} <= set(YAML(typ="safe").load(block)):
                yield pytest.param(page, block, id=f"{name(page)}-{number}")


@pytest.mark.parametrize(("page", "block"), list(scenarios_shown()))
def test_the_scenarios_load(page: Path, block: str, tmp_path: Path) -> None:
    provide_modules(page, tmp_path)
    file = tmp_path / "shown.yaml"
    file.write_text(block)
    lockstep.load(file)


def python_shown() -> Iterator[Any]:
    for page in PAGES:
        for number, block in enumerate(blocks(page, "python")):
            if re.search(r"^import lockstep|^from lockstep", block, re.MULTILINE) and page != FOLLOWED:
                code = re.sub(r"#.*", "", block)
                real = [pytest.mark.real] if re.search(r"lockstep\.(run|validate)\(", code) else []
                yield pytest.param(block, id=f"{name(page)}-{number}", marks=real)


@pytest.mark.slow
@pytest.mark.parametrize("block", list(python_shown()))
def test_the_python_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "shown", "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """Files, and headings of pages."""
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)(#[^)]*)?\)", page.read_text(encoding="utf-8")):
        there = page.parent / target if target else page
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor[1:] in slugs, f"{target}{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_scenarios_named_are_shipped(page: Path) -> None:
    for found in re.findall(r"`((?:strategies|claims)/[\w-]+)`", page.read_text(encoding="utf-8")):
        assert found in shipped() or (ROOT / found).is_dir() or page == FOLLOWED, found


def test_the_tests_that_are_named_are_there() -> None:
    """By their path, or by their name alone."""
    folders = [ROOT / name for name in (*ROOMS, "benchmarks", "docs", "tests")]
    texts = [*PAGES, *(path for folder in folders for path in folder.rglob("*.py"))]
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for path in texts:
        for found in re.findall(r"\b(?:tests/[\w/]+|test_\w+)\.py\b", path.read_text(encoding="utf-8")):
            assert (ROOT / found).is_file() if "/" in found else found in tests, f"{name(path)}: {found}"


def test_every_page_is_listed() -> None:
    """A page that the list does not lead to is one that nobody reads."""
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        if page.parent != ROOT and page.name != "README.md":
            assert f"]({os.path.relpath(page, ROOT / 'docs')})" in listed, name(page)
