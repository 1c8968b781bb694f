"""What is logged of a real run besides its records: from it the run can be repeated (docs/replay.md)."""

from math import nan
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

HAPPENS, TOLD = ("wait", "compute", "part"), ("time", "count", "all_reduce")
LIFE, AGAIN, ANEW, GONE = "life", "again", "anew", "gone"
WORDS = {
    LIFE,
    "heard",
    "leave",
    "connection",
    "begin",
    "go on",
    "retire",
    "message",
    *HAPPENS,
    *TOLD,
}  # of entries


class Entry(NamedTuple):
    """What happened next at a node of a real run, or what it was told: what depends on time.

    A node's entries are in their order; what the node does in between follows.

    =================== =====================================================================================
    word                what it says
    =================== =====================================================================================
    life                the first of each life of a job that may fail: peer (the life's number), number (the
                        mini-batch that comes next), version (of the checkpoint), answer (when it starts, s);
                        kind: `again` if the node alone begins anew, and the others have gone on; `anew`
                        if it is the same process, whose server has begun anew; `gone` if nobody takes
                        its place: version is then that which is left of it
    begin               an activity goes on for the first time; kind: the device, and what computes there
    go on               it goes on after what it awaited
    retire              the run ends for it while it waits
    message             one is taken in: kind, peer (the sender), number (from 1, by kind, peer and
                        connection), version, answer (the connection, if either has begun anew)
    heard               the failure detector's word: kind, peer (of whom)
    connection          what it sends to peer from now on goes by connection `number`; −1: nowhere, it is gone
    leave               it has ended, and says so again to a server that has begun anew (peer)
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


def check(log: "pd.DataFrame") -> None:
    """Raise ValueError for a table that is no log of a run; KeyError for a column."""
    for name in Entry._fields:
        kind = log[name].dtype.kind
        if name in ("word", "kind"):
            if not all(isinstance(value, str) for value in log[name].unique()):
                raise ValueError(f"the log's {name} is no word somewhere")
        elif kind not in ("iuf" if name == "answer" else "iu"):
            raise ValueError(f"the log's {name} is no number everywhere")
    if log.empty or log["node"].min() < 0:
        raise ValueError("the log is of nobody somewhere")
    if (log["number"][log["word"].isin((*HAPPENS, "message"))] < 0).any():
        raise ValueError("the log's number is negative somewhere")
    if not all(kind.split() for kind in log["kind"][log["word"] == "begin"]):
        raise ValueError("the log does not say what began somewhere")
