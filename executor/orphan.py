"""Imported by one process only: multiprocessing's fork server, which those of a run are forked from.

The fork server ends when all who could use it have, however they ended. A parent that was killed has left
behind its folder for temporary files, with the socket by which it reached the fork server, and the folders of
runs: remove it.
"""

import atexit
import gc
import os
import shutil
from multiprocessing import forkserver
from pathlib import Path

from lockstep.workloads.heap import use_large_pages

gc.disable()  # until all is imported (preloaded.py): there is nothing to collect
use_large_pages()


def _tidy_up() -> None:
    address = Path(forkserver._forkserver._forkserver_address)  # type: ignore[attr-defined]
    shutil.rmtree(address.parent, ignore_errors=True)  # with nothing there the parent ended well
    os._exit(0)  # at once: to dismantle all that it imported takes seconds


atexit.register(_tidy_up)
