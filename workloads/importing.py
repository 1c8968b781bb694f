"""What must not be done while the module of a user's task is imported: to start processes.

Each of them would import the module too, and start the same processes again.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import extract_stack

from lockstep.scenarios import ScenarioError

_files: list[str] = []  # of the modules that are being imported, the outermost first


class Unguarded(ScenarioError):
    """A module starts processes as it is imported."""


@contextmanager
def importing(file: str) -> Iterator[None]:
    """Import a user's module inside; if it is the script that runs, what it did wrong is said and ends it."""
    _files.append(file)
    try:
        yield
    except Unguarded as error:
        if getattr(sys.modules["__main__"], "__file__", None) != file:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    finally:
        _files.pop()


def require_guard() -> None:
    """Raise `Unguarded` if a user's module is being imported: before any process is started."""
    if not _files:
        return
    file = _files[-1]
    line = max((frame.lineno or 0 for frame in extract_stack() if frame.filename == file), default=0)
    problem = (
        "this starts processes, each of which imports this file for its task and would start them again; "
        'put it below `if __name__ == "__main__":`'
    )
    raise Unguarded(problem, file=file, line=line or None)
