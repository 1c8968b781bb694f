"""What the README shows is what there is."""

import ast
import inspect
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

import lockstep
from lockstep.cli import app
from scenarios import shipped
from strategies import local_steps

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_scenario_is_the_shipped_one() -> None:
    (shown,) = blocks("yaml")
    text = shipped()["quickstart"].read_text(encoding="utf-8")
    assert text.partition("\n")[2] == shown  # without the comment on what it is


def test_the_python_runs() -> None:
    runs = [block for block in blocks("python") if "import lockstep" in block]
    assert runs
    for block in runs:
        exec(compile(block, "README.md", "exec"), {})


def test_the_strategy_shown_is_the_shipped_one() -> None:
    """But for types and the docstring."""
    (shown,) = [block for block in blocks("python") if "async def" in block]
    function = ast.parse(inspect.getsource(local_steps.agn)).body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    function.returns, function.body = None, function.body[1:]
    for argument in (*function.args.args, *function.args.kwonlyargs):
        argument.annotation = None
    assert ast.unparse(function) == ast.unparse(ast.parse(shown))


def test_every_command_shown_is_one() -> None:
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("lockstep ")]
    assert len(lines) > 5
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[1] in commands, line
        overrides = [after for flag, after in pairwise(words) if flag == "--set"]
        if len(words) > 2 and not words[2].startswith("--"):
            lockstep.load(words[2], overrides)


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert ((ROOT / page).parent / target).exists(), target
