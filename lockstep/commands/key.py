"""`lockstep key`."""

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="Where to write it; default: ~/.config/lockstep/key.")
]


def key(file: File = None) -> None:
    """Make a key for a run on several hosts.

    By it its processes know each other (docs/hosts.md).
    """
    from lockstep.executor import keys

    path = (file or keys.USUAL).expanduser()
    keys.make(path)
    print(f"Written to {path}. Copy it to all hosts, readable by you alone (mode 600).")
