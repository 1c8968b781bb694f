"""What must not be done while the module of a user's task is imported: to start processes.

Each of them would import the module too, and start the same processes again.
"""

import sys
from pathlib import Path
from traceback import walk_stack
from typing import NoReturn

from lockstep.scenarios import ScenarioError

_roots: dict[str, Path] = {}  # of the modules that hold tasks: the folder that their imports begin at


class Unguarded(ScenarioError):
    """A module starts processes as it is imported."""


class Ended(SystemExit):
    """The script that runs ends with it."""


def holds_task(module: str, root: Path) -> None:
    """From here on, no processes may be started while that module is imported."""
    _roots[module] = root


def require_guard() -> None:
    """Refuse to start processes while a user's module is imported, or one that it imports.

    Raises `Unguarded`. If it is a script beside the module that imports it, or that it is, nobody is there to
    catch that: it is said, and the script ends.
    """
    tasks = {name: vars(sys.modules[name]).values() for name in _roots if name in sys.modules}
    for frame, line in walk_stack(None):
        name = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name != "<module>" or name == "__main__":
            continue
        imported = sys.modules.get(name, frame)
        for task, has in tasks.items():
            if name == task or any(value is imported for value in has):
                _refuse(frame.f_code.co_filename, line, _roots[task])


def _refuse(file: str, line: int, root: Path) -> NoReturn:
    problem = (
        "this starts processes, each of which imports this file for its task and would start them again; "
        'put it, or what imports this file, below `if __name__ == "__main__":`'
    )
    error = Unguarded(problem, file=file, line=line)
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is None or not Path(script).absolute().is_relative_to(root):
        raise error
    print(f"error: {error}", file=sys.stderr)
    raise Ended(2)
