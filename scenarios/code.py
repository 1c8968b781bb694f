"""Code that a scenario names: where its module lies, whether it may run, and the hash of what it says.

Nothing is imported here. A module is a file below a *root*, the folder that imports begin at. Code that a
file names runs if its root is the folder of that file, or the current one; else only after `trust`, which
`--trust` stands for. What a scenario in Python names runs: its author could have called it.
"""

import ast
import re
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.scenarios.problem import ScenarioError

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_trusting: ContextVar[bool] = ContextVar("trusting", default=False)


class Code(NamedTuple):
    """A function that a scenario names, and what it is called with.

    `options`: JSON. `root`: None for a function that only this process has, such as a notebook's.
    """

    task: str
    options: str
    root: str | None
    content: str | None


def trust() -> None:
    """From here on, let code run that files name, wherever it lies."""
    _trusting.set(True)


@contextmanager
def trusting(given: bool = True) -> Iterator[None]:
    """Inside it, let such code run, if `given`."""
    token = _trusting.set(given or _trusting.get())
    try:
        yield
    finally:
        _trusting.reset(token)


def located(task: str, root: str | None, said: str | None, context: Mapping[str, Any]) -> dict[str, str]:
    """Return the root and the content of a task's module, `package.module:function`.

    `root` and `said`, the content, are what a document says of them, if it does. `context`: "folder", the one
    of the file; "beside": false where modules that lie there do not count; "changed": true where they may be
    others by now; "author": true for a scenario that is made in Python. Raises `ScenarioError` if there is no
    such module, it may not run, or has changed.
    """
    if not NAME.fullmatch(task) or task.startswith("__main__:"):
        raise ScenarioError(f"must be package.module:function, such as my_task:digits, not {task[:60]!r}")
    module, author = task.partition(":")[0], bool(context.get("author"))
    folders = [Path(), Path(context.get("folder", "."))][: 1 + bool(context.get("beside", True))]
    folders = [folder.absolute() for folder in reversed(folders)]
    place = _found(module, folders) if root is None else Path(root)
    if not (author or _trusting.get() or place.resolve() in [folder.resolve() for folder in folders]):
        beside = ", or from beside the file that names it" if len(folders) > 1 else ""
        problem = f"is code in {str(place)!r}, and code runs only from the current folder{beside}"
        raise ScenarioError(f"{problem}; read it, then go there, or say --trust")
    if file_of(place, module) is None:
        raise ScenarioError(f"there is no module {module} in {str(place)!r}")
    found = content(place, module)
    if said not in (None, found) and not context.get("changed"):
        problem = f"the code of {task} has changed since this was written (it was {said}, and is {found})"
        of_results = "put the code back: a run goes on, and is replayed, with what it was made with"
        anew = "remove workload.content to take it as it is now"
        raise ScenarioError(f"{problem}; {anew if context.get('beside', True) else of_results}")
    return {"root": str(place), "content": found}


def _found(module: str, folders: Sequence[Path]) -> Path:
    for folder in folders:
        if file_of(folder, module) is not None:
            return folder
    top = PathFinder.find_spec(module.partition(".")[0])
    for place in (top.submodule_search_locations or [top.origin or ""]) if top else ():
        if file_of(Path(place).parent, module) is not None:
            return Path(place).parent.absolute()
    looked = "beside the scenario's file, in the current folder" if folders[1:] else "in the current folder"
    problem = f"there is no module {module} {looked}, or where Python looks"
    without = f", without .py: {module[:-3]}:function" if module.endswith(".py") else ""
    raise ScenarioError(f"{problem}; give package.module:function{without}")


def file_of(root: Path, module: str) -> Path | None:
    """Return the file of a module below a root; None if there is none."""
    path = root.joinpath(*module.split("."))
    for file in (path.with_suffix(".py") if path.name else path, path / "__init__.py"):
        if file.is_file():
            return file
    return None


def content(root: Path, module: str) -> str:
    """Return 16 hexadecimal digits of the hash of a module, and of what it imports from the same root.

    Where the root is one of Python's own folders only modules of the same package count.
    Raises `ScenarioError` if a file is no Python.
    """
    top = module.partition(".")[0]
    own = str(root) not in sysconfig.get_paths().values()
    seen: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = file_of(root, name)
        if name in seen or file is None or not (own or name.partition(".")[0] == top):
            continue
        read = _read(file, file.stat().st_mtime_ns, name)
        seen[name] = read.digest
        above = [name.rpartition(".")[0]] if "." in name else []
        waiting += [*above, *read.imports]
    return sha256(repr(sorted(seen.items())).encode()).hexdigest()[:16]


class _Read(NamedTuple):
    digest: str
    imports: tuple[str, ...]  # names of modules, some of which may be something else


@lru_cache(256)
def _read(file: Path, changed: int, name: str) -> _Read:
    text = file.read_bytes()
    try:
        tree = ast.parse(text, str(file))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ScenarioError(f"{file}{line} is no Python: {getattr(error, 'msg', error)}") from None
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    return _Read(sha256(text).hexdigest(), tuple(_imports(tree, package)))


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
