"""What devices computed: passes, where gradients are computed in passes, else gradients.

A gradient in passes is recorded too, from its first pass to its last: it waits for other stages in between.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lockstep.analysis.by_rank import present
from lockstep.analysis.columns import Columns
from lockstep.analysis.records import has, of, values
from lockstep.job.plan import Plan

if TYPE_CHECKING:
    import pandas as pd


def computing(records: "Columns | pd.DataFrame") -> str:
    """The event in which devices compute: "pass", or "gradient" in a run without passes."""
    return "pass" if has(records, "pass") else "gradient"


def computations(records: "pd.DataFrame", columns: Sequence[str]) -> "pd.DataFrame":
    """Some columns of the records of what devices computed."""
    return of(records, computing(records), columns)


def gradient_seconds(records: "Columns | pd.DataFrame") -> tuple[np.ndarray, np.ndarray]:
    """The ranks that computed, and what each did for a mini-batch, s, in the mean of its mini-batches."""
    event = computing(records)
    found = values(records, event, ["node", "start", "end", "version"])
    node, seconds = found["node"], found["end"] - found["start"]
    if event == "pass":
        batches, of_batch = np.unique(node.astype("i8") << 32 | found["version"], return_inverse=True)
        node, seconds = batches >> 32, np.bincount(of_batch, seconds)
    ranks, of_rank = present(node)
    return ranks, np.bincount(of_rank, seconds) / np.bincount(of_rank)


def whole_gradient_seconds(plan: Plan, records: "pd.DataFrame") -> "pd.Series":
    """What each mini-batch would have taken one device that holds the whole model, s: `compute.time`.

    Of a gradient in passes that is what all passes of its replica took, without what each takes besides.
    """
    if computing(records) == "gradient":
        gradients = of(records, "gradient", ["start", "end"])
        return gradients["end"] - gradients["start"]
    passes = of(records, "pass", ["node", "peer", "start", "end", "version", "batches", "kind"])
    seconds = passes["end"] - passes["start"] - plan.scenario.cluster.pass_overhead
    of_one = [passes["node"].map(plan.replica), passes["version"]]
    ends = passes["kind"].isin(("backward", "backward-weights"))  # what it does of a micro-batch, in segments
    ends &= ~passes.duplicated(["node", "peer", "version", "batches", "kind"])
    pieces, recompute = (
        [piece for group in plan.groups for piece in group.pieces],
        plan.scenario.split.recompute,
    )
    whole = ends.groupby(of_one).sum() == plan.micro_batches * len(pieces)
    shares = sum(piece.passes(recompute) for piece in pieces)
    return seconds.clip(lower=0.0).groupby(of_one).sum()[whole] / shares
