"""The command line in a test: how it ended, and what it said."""

import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

COMMAND = [sys.executable, "-c", "from lockstep.cli import main; main()"]


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str


Lockstep = Callable[..., Ended]


def of_the_run(warnings: Iterable[str]) -> list[str]:
    """Those that do not come of a machine which others use too."""
    busy = "longer than their emulated time", "other guests of this machine's host", "and idled: throughput"
    return [warning for warning in warnings if not any(words in warning for words in busy)]


def fine(ended: Ended) -> str:
    assert ended.status == 0, ended.err
    return ended.out
