"""Users' tasks: the function that a scenario names, imported from its root and called."""

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import compress
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, TypeVar

from torch import nn

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.code import NAME, Code, content, file_of
from lockstep.scenarios.section import nearest
from lockstep.workloads.elsewhere import Elsewhere
from lockstep.workloads.importing import Ended, Unguarded, holds_task
from lockstep.workloads.samples import everything_seeded
from lockstep.workloads.task import Task, untrainable
from lockstep.workloads.torchvision_repair import repaired

T = TypeVar("T")
_KEY = "workload.task"
_NOT_HERE = (
    "is a function of a notebook or of the prompt, one inside another, or of a file whose name is none of a "
    "module, which other processes cannot import; write it to a file, such as my_task.py, and import it from "
    "there"
)
_OF_CURVES = ("", "time", "version")  # columns of a curve that are not metrics
_SESSION = os.urandom(16)
_local: dict[str, Callable[..., Any]] = {}  # functions that cannot be imported, by a number of each
_imported: dict[str, tuple[str, set[str]]] = {}  # by module: the content, and which modules came with it


class _Aside:
    """Where what is printed goes; several threads may be inside."""

    def __init__(self) -> None:
        self._lock, self._inside, self._stdout = Lock(), 0, sys.stdout

    def enter(self) -> None:
        with self._lock:
            if not self._inside:
                self._stdout, sys.stdout = sys.stdout, sys.stderr
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.stdout = self._stdout


_aside = _Aside()


@contextmanager
def aside() -> Iterator[None]:
    """What users' code prints inside goes where messages do: results are printed where it would go."""
    _aside.enter()
    try:
        yield
    finally:
        _aside.leave()


def code_of(function: Callable[..., Any], options: dict[str, Any]) -> Code:
    """Return what a scenario says of a function, so that it is found again.

    A function of a script that is being run is found in the script's file. Raises `ScenarioError` for what is
    no function, or options that no file could have.
    """
    if not inspect.isroutine(function) and not inspect.isclass(function):
        problem = f"must be a function that returns a lockstep.Task, not {type(function).__name__}"
        raise ScenarioError(f"{problem}; its arguments are `options`", key=_KEY)
    try:
        said = json.dumps(options)
    except (TypeError, ValueError) as error:
        problem = f"must be plain values, as in a file: numbers, texts, lists, mappings ({error})"
        raise ScenarioError(problem, key="workload.options") from None
    module, name = function.__module__, function.__qualname__
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None) if module == "__main__" else None
    if file is not None and Path(file).suffix == ".py":
        spec = getattr(main, "__spec__", None)  # of `python -m package.module`
        module = Path(file).stem.replace(".", "-") if spec is None or spec.name == "__main__" else spec.name
    own = sys.modules.get(module) if file is None else main
    where = getattr(own, "__file__", None)
    if module != "__main__" and where is not None and NAME.fullmatch(f"{module}:{name}"):
        levels = module.count(".") + (Path(where).name == "__init__.py")
        root = Path(where).absolute().parents[levels]
        return Code(f"{module}:{name}", said, str(root), None)
    # each time anew: what it closes over, and what it calls, may be something else by now, or the next time
    told = sha256(repr((name, len(_local), _SESSION)).encode()).hexdigest()[:16]
    _local[told] = function
    return Code(f"__main__:{name.rpartition('.')[2].strip('<>')}", said, None, told)


def require_importable(code: Code) -> None:
    """Raise `ScenarioError` if other processes cannot import what is called."""
    if code.root is None:
        raise ScenarioError(f"{code.task.partition(':')[2]} {_NOT_HERE}", key=_KEY)


def call(code: Code, seed: int) -> Task:
    """Return the task that a function makes, under generators that are seeded with `seed`.

    Raises `ScenarioError` if it cannot be had, or is none that can be learned.
    """
    function, options = _function(code), json.loads(code.options)
    _check_options(code.task, function, options)

    def make() -> Any:
        with _first(code.root), everything_seeded(seed), aside():
            return function(**options)

    try:
        made = repaired(make)
    except ScenarioError:
        raise
    except (Exception, SystemExit) as error:
        raise _raised(code.task, code.root, error) from error
    guarded(code, _check, code.task, made)
    return made  # type: ignore[no-any-return]


def guarded(code: Code, function: Callable[..., T], *given: Any, on: str = "") -> T:
    """Return what a function returns that calls users' code. Raises `ScenarioError` for what that raises.

    on: the task's data set that it is computed on.
    """
    try:
        with aside():
            return function(*given)
    except ScenarioError:
        raise
    except Exception as error:
        raise _raised(code.task, code.root, error, on) from error


def _function(code: Code) -> Callable[..., Any]:
    module, _, name = code.task.partition(":")
    if code.root is None:
        if code.content not in _local:
            require_importable(code)
        return _local[code.content or ""]
    found = _module(module, Path(code.root), code.content)
    function: Callable[..., Any] | None = getattr(found, name, None)
    home = getattr(function, "__module__", None) or ""
    if function is None or not callable(function) or file_of(Path(code.root), home) is None:
        names = [each for each, value in vars(found).items() if getattr(value, "__module__", "") == module]
        raise ScenarioError(
            f"there is no function {name} in {found.__file__}{nearest(name, names)}", key=_KEY
        )
    return function


def _module(module: str, root: Path, known: str | None) -> ModuleType:
    """Import a module of that content from its root, also where another one has its name."""
    now = content(root, module)
    if known not in (None, now):
        problem = (
            f"the code of {module} in {str(root)!r} is not what the scenario was read with: read it again"
        )
        raise ScenarioError(problem, key=_KEY)
    holds_task(module, root)
    there, own = sys.modules.get(module), _imported.get(module)
    file = str(file_of(root, module))
    if there is not None and there.__file__ == file and (own is None or own[0] == now):
        return there
    if there is not None and own is None:
        problem = f"another module {module} is in use already, {there.__file__}; give yours another name"
        raise ScenarioError(problem, key=_KEY)
    for name in own[1] if own else ():
        sys.modules.pop(name, None)
    before = {*sys.modules}
    importlib.invalidate_caches()
    _imported[module] = now, set()  # what it does as it is imported may ask for it
    try:
        with _first(str(root)), aside():
            found = repaired(importlib.import_module, module)
    except (Unguarded, Ended):
        raise
    except (Exception, SystemExit) as error:  # of a parser of arguments
        raise _raised(module, str(root), error) from error
    finally:
        came = {name for name in {*sys.modules} - before if file_of(root, name) is not None}
        _imported[module] = (now, came)
    if str(root) not in sys.path:
        sys.path.append(str(root))  # for what functions import when they are called
    return found


@contextmanager
def _first(root: str | None) -> Iterator[None]:
    """Import from a root before anywhere else."""
    if root is None:
        yield
        return
    sys.path.insert(0, root)
    try:
        yield
    finally:
        sys.path.remove(root)


def _check_options(name: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "nothing"
        raise ScenarioError(f"{error}; {name} takes {takes}", key="workload.options") from None


def _raised(name: str, root: str | None, error: BaseException, on: str = "") -> ScenarioError:
    """What went wrong in others' code, and where: in their own files, if only where their function begins."""
    told = error if isinstance(error, Elsewhere) else Elsewhere.of(error)
    frames = [(file, line) for file, line in told.frames if "importlib" not in file]
    if root is not None:
        files = [Path(file) for file, _ in frames]
        own = [file.is_relative_to(root) and "site-packages" not in file.parts for file in files]
        frames = [*compress(frames, own)] or _beginning(name) or frames
    where = f" ({frames[-1][0]}, line {frames[-1][1]})" if frames else ""
    said = " ".join(told.said.split()) or "without a word"
    while_ = f", computing on `{on}`" if on else ""
    return ScenarioError(f"{name} raised {told.kind}: {said}{where}{while_}", key=_KEY)


def _beginning(task: str) -> list[tuple[str, int]]:
    """The file and the first line of a task's function, if it is known."""
    module, _, name = task.partition(":")
    code = getattr(getattr(sys.modules.get(module), name, None), "__code__", None) if name else None
    return [(code.co_filename, code.co_firstlineno)] if code is not None else []


def _check(name: str, made: Any) -> None:
    """Raise `ScenarioError` unless it is a task that can be learned."""
    problem = None
    if not isinstance(made, Task):
        problem = f"must return a lockstep.Task, not {type(made).__name__}"
    elif not callable(made.loss):
        problem = f"must have a function loss(model, batch), not {type(made.loss).__name__}"
    elif not callable(made.model):
        said = type(made.model).__name__
        problem = f"must have a torch module as its model, or a function that makes one, not {said}"
    elif not isinstance(made.metrics, Mapping):
        problem = f"must have metrics by name, a mapping, not {type(made.metrics).__name__}"
    elif bad := [name for name in made.metrics if not isinstance(name, str) or name in _OF_CURVES]:
        problem = f"has a metric {bad[0]!r}; give it another name"
    elif isinstance(made.model, nn.Module) and (why := untrainable(made.model)) is not None:
        problem = f"has a model {why}"
    else:
        for part in ("test", "train"):
            dataset = getattr(made, part)
            if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
                problem = f"needs a {part} with a length and samples by index, not {type(dataset).__name__}"
            elif len(dataset) == 0:
                problem = f"has no samples in {part}"
    if problem is not None:
        raise ScenarioError(f"{name} {problem}", key=_KEY)
