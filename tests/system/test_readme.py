"""What the README shows of the source is what there is; its commands: test_docs_code.py."""

import ast
import inspect
import re

from lockstep.scenarios import shipped
from lockstep.strategies import local_steps
from tests.support import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_scenario_is_the_shipped_one() -> None:
    (shown,) = [block for block in blocks("yaml") if "sweep:" in block]
    text = shipped()["quickstart"].read_text(encoding="utf-8")
    assert text.partition("\n")[2] == shown  # without the comment on what it is


def test_the_strategy_shown_is_the_shipped_one() -> None:
    """But for types, the docstring and what it needs of the server."""
    (shown,) = [block for block in blocks("python") if "async def" in block]
    function = ast.parse(inspect.getsource(local_steps.agn)).body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    function.returns, function.body, function.decorator_list = None, function.body[1:], []
    for argument in (*function.args.args, *function.args.kwonlyargs):
        argument.annotation = None
    assert ast.unparse(function) == ast.unparse(ast.parse(shown))
