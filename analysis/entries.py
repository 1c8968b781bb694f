"""What is logged of a real run besides its records: from it the run can be repeated (docs/replay.md)."""

from math import nan
from typing import NamedTuple

HAPPENS, TOLD = ("wait", "compute", "part"), ("time", "count", "all_reduce")
WORDS = {"begin", "go on", "retire", "message", *HAPPENS, *TOLD}  # of entries


class Entry(NamedTuple):
    """What happened next at a node of a real run, or what it was told: what depends on time.

    A node's entries are in their order; what the node does in between follows.

    =================== =====================================================================================
    word                what it says
    =================== =====================================================================================
    begin               an activity goes on for the first time; kind: the device, and what computes there
    go on               it goes on after what it awaited
    retire              the run ends for it while it waits
    message             one is taken in: kind, peer (the sender), number (from 1, by kind and peer), version
    wait, compute, part event `number` of the node happens: a pause is over, a gradient or a part is computed
    time                the program has asked for it; answer: in seconds
    count               the node counts with all others (job/ending.py); kind: what, number: the sum
    all_reduce          the sum is there
    =================== =====================================================================================

    The last three are told while an activity goes on, so that they belong to the `go on` before them.
    """

    node: int
    activity: int  # of the node: its program is 0, those that it has spawned are 1, 2, …; -1: of none
    word: str
    kind: str = ""
    peer: int = -1
    number: int = -1
    version: int = -1
    answer: float = nan
