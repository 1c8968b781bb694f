"""What happened in a run as slices on named tracks: the same for both engines, from records alone.

Every process has a track ("worker 0", "server 0"), and every host one for each direction of its network card,
called as in `Result.utilisation` ("worker 0's up-link"). What overlaps on a track is put side by side, in
lanes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import pandas as pd

from lockstep.analysis.computations import computing
from lockstep.analysis.result import Result
from lockstep.job.plan import Plan
from lockstep.strategies.placement import Role, link_owners, residents
from lockstep.strategies.resource import ResourceId

EVALUATIONS = "evaluations"


@dataclass(frozen=True)
class Tracks:
    """The tracks of a run, and those of each rank. Without servers there are none of theirs."""

    whose: Sequence[Role | ResourceId]  # of all tracks but the last, which has the evaluations
    roles: Sequence[Role]  # of each rank
    own: np.ndarray  # (ranks,): the number of each rank's own track
    up: np.ndarray  # (ranks,): of the link on which it sends
    down: np.ndarray  # (ranks,): of the link on which it receives
    inner: np.ndarray  # (ranks,): of the one between the processes of its host
    host: np.ndarray  # (ranks,): its host

    @property
    def names(self) -> list[str]:
        """What the tracks are called."""
        return [*(each.name for each in self.whose), EVALUATIONS]

    @property
    def evaluations(self) -> int:
        """The number of the last track, of the evaluations."""
        return len(self.whose)


def tracks(plan: Plan) -> Tracks:
    """The tracks of a job's cluster, host after host: the processes there, then its links."""
    cluster, everyone, placed = plan.scenario.cluster, plan.roles, plan.hosts
    on_host: list[list[int]] = [[] for _ in range(max(placed) + 1)]
    for rank, host in enumerate(placed):
        on_host[host].append(rank)
    whose: list[Role | ResourceId] = []
    own, up, down, inner = (np.zeros(len(everyone), int) for _ in range(4))
    half = cluster.network.duplex == "half"
    for host, (ranks, owner) in enumerate(zip(on_host, link_owners(residents(cluster)), strict=False)):
        for rank in ranks:
            own[rank] = len(whose)
            whose.append(everyone[rank])
        up[ranks], down[ranks] = len(whose), len(whose) + (not half)
        card = ResourceId("card", *owner)
        whose += [card] if half else [card.towards("up"), card.towards("down")]
        if len(ranks) > 1:
            inner[ranks] = len(whose)
            whose.append(ResourceId("inner", "host", host))
    return Tracks(whose, everyone, own, up, down, inner, np.array(placed))


def tracks_of(result: Result) -> Tracks:
    """The tracks of a run."""
    return tracks(result.plan)


def slices(result: Result, found: Tracks) -> pd.DataFrame:
    """What is drawn, ordered by start: track, start, end (whole ns), row (of the records), out.

    A message is there twice, unless it stays on its host: on its sender's link until its last byte has left
    (`out`), and on its receiver's from when its first byte can have arrived, if all take as long as the last.
    In a real run, which does not know when bytes leave, both are from its start to its end. Updates, drops
    and evaluations are instants; they come before what takes time from then on. A gradient in passes is there
    as its passes.
    """
    records = result.records
    event = records["event"].cat
    codes = event.codes.to_numpy()
    node, peer = records["node"].to_numpy(), records["peer"].to_numpy()
    start, end, left = (nanoseconds(records[name]) for name in ("start", "end", "left"))
    end = np.maximum(start, end)

    def rows(*events: str) -> np.ndarray:
        return np.flatnonzero(np.isin(codes, event.categories.get_indexer(pd.Index(events))))

    here, tested, sent = (
        rows(
            *(computing(records), "collective", "update", "drop", "memory", "work"),
            *("fault", "checkpoint"),
        ),
        rows("evaluation"),
        rows("message"),
    )
    far = found.host[node[sent]] != found.host[peer[sent]]
    known = records["left"].notna().to_numpy()[sent] & far
    way = np.where(known, np.clip(end[sent] - left[sent], 0, end[sent] - start[sent]), 0)  # of the last byte
    parts = [
        (found.own[node[here]], here, start[here], end[here]),
        (np.full(len(tested), found.evaluations), tested, start[tested], end[tested]),
        (np.where(far, found.up[node[sent]], found.inner[node[sent]]), sent, start[sent], end[sent] - way),
        (found.down[peer[sent[far]]], sent[far], (start[sent] + way)[far], end[sent[far]]),
    ]
    track, row, since, until = (np.concatenate(column) for column in zip(*parts, strict=True))
    out = np.zeros(len(row), bool)
    out[len(here) + len(tested) :][: len(sent)] = True
    order = np.lexsort((~out, row, until > since, since))
    columns = {"track": track, "start": since, "end": until, "row": row, "out": out}
    return pd.DataFrame({name: column[order] for name, column in columns.items()})


def nanoseconds(seconds: pd.Series) -> np.ndarray:
    """To the nearest; whatever, where it is NaN, and beyond 285 years what can still be told."""
    known = np.clip(np.nan_to_num(seconds.to_numpy()), -9e9, 9e9)
    return np.asarray(np.rint(known * 1e9)).astype("i8")


def lanes(track: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """For slices ordered by start the lane of each within its track: no two that overlap share one.

    The first that is free. Shapes (n,); instants, which overlap nothing, are in the first lane.
    """
    found = np.zeros(len(track), int)
    lasting = np.flatnonzero(end > start)
    order = lasting[np.argsort(track[lasting], kind="stable")]
    bounds = np.flatnonzero(np.diff(track[order])) + 1
    for mine in np.split(order, bounds) if len(order) else []:
        if (start[mine[1:]] >= np.maximum.accumulate(end[mine])[:-1]).all():
            continue
        found[mine] = _packed(start[mine].tolist(), end[mine].tolist())
    return found


def _packed(starts: list[float], ends: list[float]) -> list[int]:
    busy: list[tuple[float, int]] = []  # until when, which lane
    free: list[int] = []
    found = []
    for start, end in zip(starts, ends, strict=True):
        while busy and busy[0][0] <= start:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy)
        heappush(busy, (end, lane))
        found.append(lane)
    return found
