"""What devices computed: passes, where gradients are computed in passes, else gradients.

A gradient in passes is recorded too, from its first pass to its last: it waits for other stages in between.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lockstep.analysis.records import of


def computing(records: pd.DataFrame) -> str:
    """The event in which devices compute: "pass", or "gradient" in a run without passes."""
    return "pass" if np.any(records["event"].array == "pass") else "gradient"


def computations(records: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Some columns of the records of what devices computed."""
    return of(records, computing(records), columns)


def gradient_seconds(records: pd.DataFrame) -> pd.Series:
    """What each device computed for a mini-batch, s, in the mean of its mini-batches: by rank."""
    found = computations(records, ["node", "start", "end", "version"])
    seconds, node = found["end"] - found["start"], found["node"]
    if computing(records) == "pass":
        seconds = seconds.groupby([node, found["version"]]).sum()
        return seconds.groupby(level="node").mean()
    return seconds.groupby(node).mean()
