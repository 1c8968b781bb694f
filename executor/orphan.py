"""Imported by one process only: multiprocessing's fork server, which those of a run are forked from.

The fork server ends when all who could use it have, however they ended. A parent that was killed has left
behind the socket by which it reached the fork server, in a folder for temporary files: remove them.
"""

import atexit
import os
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path


def _tidy_up() -> None:
    address = Path(forkserver._forkserver._forkserver_address)  # type: ignore[attr-defined]
    with suppress(OSError):  # nothing there: the parent ended well
        address.unlink()
        address.parent.rmdir()
    os._exit(0)  # at once: to dismantle all that it imported takes seconds


atexit.register(_tidy_up)
