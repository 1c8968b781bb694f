"""Whose gradients are in which update, where workers fail and those who are there go on in rounds.

What a worker has added to a round is in the update even if it fails before it has recorded that; and what it
has recorded is not, if the others have done the round again without it. The groups that they were in say so.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lockstep.analysis.records import Recorder, join, of
from lockstep.job.plan import Plan
from lockstep.strategies.owners import Replicated

if TYPE_CHECKING:
    import pandas as pd


class _Span(NamedTuple):
    """Updates of a group: from a version on, and until the next begins."""

    since: float
    version: int
    adding: frozenset[int]


def completed(plan: Plan, records: "pd.DataFrame") -> "pd.DataFrame":
    """The records of a life of the job, whose updates are those that the groups have made."""
    if not (plan.goes_on and plan.owners.shown_by_all):
        return records
    spans = _spans(records)
    updates = of(records, "update", ["end", "peer", "version", "batches", "staleness"])
    undone = _undone(updates, spans)
    records = records.copy()
    records.loc[updates.index[undone], "event"] = "undone"
    updates = updates[~undone]
    known = set(zip(updates["version"], updates["peer"], strict=True))
    newest = int(updates["version"].max()) + 1 if len(updates) else 0
    at = dict(zip(updates["version"].tolist(), updates["end"].tolist(), strict=True))
    lengths: dict[Any, Any] = updates.groupby("version")["batches"].max().to_dict()
    stale: dict[Any, Any] = updates.groupby("version")["staleness"].max().to_dict()
    most, each = 1, plan.quota.each
    # mini-batches that each may still have made; a round is as many as any has, or what is left
    left = dict.fromkeys(plan.workers, inf if each is None else each)
    for worker, count in zip(updates["peer"].tolist(), updates["batches"].tolist(), strict=True):
        left[worker] -= count
    missing = Recorder()
    for span, after in pairwise([*spans, _Span(inf, newest, frozenset())]):
        for made in range(span.version, after.version):
            most = lengths.get(made, most)
            for worker in sorted(span.adding):
                if (made, worker) not in known and left[worker] > 0:
                    count = int(min(most, left[worker]))
                    left[worker] -= count
                    missing.update(
                        plan.owners.ranks[0],
                        worker,
                        at.get(made, after.since),
                        made,
                        stale.get(made, 0),
                        count,
                    )
    return join([records, missing.frame()])


def as_saved(plan: Plan, records: "pd.DataFrame", version: int) -> "pd.DataFrame":
    """The records of a life that is over, with all updates that are in the checkpoint of that version.

    Where replicas make the same updates only the first writes it, and with it what it has recorded: what
    others had not written when they were killed is as the first one's.
    """
    missing, names = Recorder(), ("end", "version", "staleness", "batches")
    updates = of(records, "update", ["node", *names])
    for group in plan.groups:
        if not isinstance(group.owners, Replicated):
            continue
        first, *others = group.owners.ranks
        own = updates[(updates["node"] == first) & (updates["version"] < version)]
        for other in others:
            known = updates["version"][updates["node"] == other]
            lost = own[~own["version"].isin(known)]
            for end, made, stale, count in zip(*(lost[name].tolist() for name in names), strict=True):
                missing.update(other, other, end, made, stale, count)
    return join([records, missing.frame()])


def _undone(updates: "pd.DataFrame", spans: Sequence[_Span]) -> np.ndarray:
    """Which of them the others have made again, or without this worker."""
    end, peer, version = (updates[name].to_numpy() for name in ("end", "peer", "version"))
    found = np.zeros(len(updates), bool)
    for span, after in pairwise([*spans, _Span(inf, np.iinfo(np.int64).max, frozenset())]):
        found |= (version >= span.version) & (end < span.since)
        its = (version >= span.version) & (version < after.version)
        found |= its & ~np.isin(peer, [*span.adding])
    least = dict[int, int]()  # version that each has made later
    for row in range(len(found) - 1, -1, -1):
        who, made = int(peer[row]), int(version[row])
        found[row] |= least.get(who, made + 1) <= made
        if not found[row]:
            least[who] = made
    return found


def _spans(records: "pd.DataFrame") -> list[_Span]:
    """What still counts of each group, in order."""
    rows = of(records, "group", ["end", "version", "nbytes", "kind"]).astype({"kind": str})
    found: list[_Span] = []
    rows = rows.sort_values(["nbytes", "version", "end"], kind="stable")
    told = rows.drop_duplicates(["nbytes", "version"])
    for since, version, kind in zip(told["end"], told["version"], told["kind"], strict=True):
        while found and found[-1].version >= version:
            found.pop()
        found.append(_Span(float(since), int(version), frozenset(map(int, kind.split()))))
    return found
