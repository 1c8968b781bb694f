"""Functions and classes as Markdown: their signatures as they are written, and their docstrings.

Read from the source, so that nothing has to be imported for it.
"""

import ast
import inspect
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_NEVER_SHOWN = re.compile(r"\s*# (fmt|type|noqa).*$", re.M)


@cache
def _source(file: str) -> tuple[list[str], ast.Module]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return text.splitlines(), ast.parse(text)


def find(file: str, name: str) -> ast.AST:
    """The definition, or the assignment, of a dotted name in a file. Raises KeyError."""
    node: ast.AST = _source(file)[1]
    for part in name.split("."):
        node = next((child for child in ast.iter_child_nodes(node) if part in _names(child)), None)
        if node is None:
            raise KeyError(f"{file} has no {name}")
    return node


def _names(node: ast.AST) -> list[str]:
    """What a statement defines."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    return [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []


def function(file: str, name: str, public: str) -> str:
    """A heading, the signature and the docstring, with the name by which a user knows it."""
    return (
        f"### `{public}`\n\n```python\n{_signature(file, name, public)}\n```\n\n{_words(find(file, name))}\n"
    )


def brief(file: str, name: str, public: str) -> str:
    """An item of a list: the signature, and the docstring."""
    signature = " ".join(_signature(file, name, public).split()).replace("( ", "(")
    return item(re.sub(r",? \)", ")", signature), _words(find(file, name)))


def members(file: str, name: str, only: Sequence[str] = ()) -> str:
    """The public fields, properties and methods of a class, or `only` some, in that order, as a list."""
    found = find(file, name)
    assert isinstance(found, ast.ClassDef)
    items = {}
    for node, after in zip(found.body, [*found.body[1:], None], strict=True):
        for member in _names(node):
            if member.startswith("_") or (only and member not in only):
                continue
            if isinstance(node, ast.AnnAssign):
                documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                words = inspect.cleandoc(after.value.value) if documented else ""
                head = f"{member}: {ast.unparse(node.annotation)}".replace("'", "")
                items[member] = item(head, linked(words))
            elif any("property" in ast.unparse(each) for each in node.decorator_list):
                items[member] = item(f"{member}: {ast.unparse(node.returns)}".replace("'", ""), _words(node))
            else:
                items[member] = brief(file, f"{name}.{member}", f".{member}")
    return "".join(items[member] for member in only or items)


def item(head: str, words: str) -> str:
    """An item of a list."""
    indented = "\n".join(f"  {line}".rstrip() for line in words.splitlines())
    return f"- **`{head}`**\\\n{indented}\n" if words else f"- **`{head}`**\n"


def _signature(file: str, name: str, public: str) -> str:
    """What stands between `def` and the colon, without `self` and without the quotes of annotations."""
    node = find(file, name)
    lines = _source(file)[0][node.lineno - 1 : node.body[0].lineno - 1]
    text = _NEVER_SHOWN.sub("", inspect.cleandoc("\n".join(lines))).rstrip().removesuffix(":")
    text = text.replace(f"def {node.name}(", f"{public}(", 1).replace("(self, ", "(").replace("(self)", "()")
    return re.sub(r'(-> |: )"([^"]+)"', r"\1\2", text)


def words(file: str, name: str) -> str:
    """The docstring."""
    return _words(find(file, name))


def _words(node: ast.AST) -> str:
    return linked(ast.get_docstring(node) or "")


def linked(text: str) -> str:
    """Pages of this folder become links, a docstring's paragraphs stay what they are."""
    return re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", text)
