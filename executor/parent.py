"""Processes that never outlive the one that started them."""

import os
from multiprocessing import connection, parent_process
from threading import Thread

_LOOK_S = 0.5  # how often a process looks whether its parent is still there


def end_with_parent(parent: int | None = None) -> None:
    """See to it that this process ends soon after the one that started it has, however that ended.

    `parent`: the process that forked it, which it knows itself while that is still there.
    """
    Thread(target=_watch, args=(parent or os.getppid(),), daemon=True).start()


def _watch(forked_by: int) -> None:
    starter = parent_process()  # of a fork server's child not the one that forked it
    sentinel = starter.sentinel if starter else None
    sentinels = [] if sentinel is None else [sentinel]
    while os.getppid() == forked_by and not connection.wait(sentinels, timeout=_LOOK_S):
        pass
    os._exit(1)
