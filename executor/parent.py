"""Processes that never outlive the one that started them."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection, parent_process
from pathlib import Path
from threading import Thread

_LOOK_S = 0.5  # how often a process looks whether its parent is still there


def end_with_parent(parent: int | None = None, last_words: Callable[[], object] = int) -> None:
    """See to it that this process ends soon after the one that started it has, however that ended.

    `parent`: the process that forked it, which it knows itself while that is still there. `last_words` are
    called before the end.
    """
    Thread(target=_watch, args=(parent or os.getppid(), last_words), daemon=True).start()


def _watch(forked_by: int, last_words: Callable[[], object]) -> None:
    starter = parent_process()  # of a fork server's child not the one that forked it
    sentinel = starter.sentinel if starter else None
    sentinels = [] if sentinel is None else [sentinel]
    while os.getppid() == forked_by and not connection.wait(sentinels, timeout=_LOOK_S):
        pass
    last_words()
    _wake(forked_by)
    os._exit(1)


def _wake(parent: int) -> None:
    """Let those who stand still see that, too: they keep alive what they are forked from."""
    with suppress(OSError):
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            with suppress(OSError):
                os.kill(int(child), signal.SIGCONT)


def print_aside() -> None:
    """Let what this process prints go where messages do: its parent prints results."""
    with suppress(OSError):  # there is nowhere to print
        os.dup2(2, 1)
