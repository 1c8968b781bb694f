"""The lives of a job that fails and goes on: what each begins with, and what of the one before counts.

An *incarnation* is a run from the job's last checkpoint on: the newest version that every owner of parameters
has written. Everything after it is lost, and is done again: workers compute those mini-batches anew whose
gradients are not in it. So a run whose order is fixed ends with the same parameters, wherever it was killed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.analysis.records import of
from lockstep.job.ending import pool
from lockstep.job.plan import Plan

if TYPE_CHECKING:
    import pandas as pd

State = tuple[Any, ...]
"""Vectors and numbers, in tuples of tuples."""


@dataclass(frozen=True)
class Saved:
    """What a node has written to a checkpoint."""

    version: int
    step: int
    """Of a worker: the mini-batch that it goes on with."""
    state: State
    shown: Any = None
    """The parameters at that version, of an owner whose are evaluated: what a run leaves that ends there."""


def newest(saved: Iterable[Saved]) -> Saved | None:
    """That of the newest version."""
    return max(saved, key=lambda each: each.version, default=None)


@dataclass(frozen=True)
class Incarnation:
    """What a life of the job, or of one of its processes, begins with."""

    number: int = 0
    start: float = 0.0
    """s on the run's clock."""
    version: int = 0
    """Of the parameters: that of the checkpoint."""
    steps: Mapping[int, int] = field(default_factory=dict)
    """Of each worker, mini-batches that it has made already."""
    saved: Mapping[int, Saved] = field(default_factory=dict)
    """Of each rank, what it goes on from; none: from the beginning."""
    rejoins: bool = False
    """Whether it is one process's, which begins anew while the others go on."""

    def versions(self, plan: Plan) -> dict[int, int]:
        """Of the owners of parameters, if they are not those of a run's beginning."""
        return dict.fromkeys(plan.owners.ranks, self.version) if self.version else {}

    def counts(self, plan: Plan) -> dict[str, int]:
        """The mini-batches of each slice of the parameters that have been taken from the common pool."""
        groups = enumerate(plan.groups) if self.steps else ()
        return {pool(number): sum(self.steps.get(w, 0) for w in group.workers) for number, group in groups}

    def key(self) -> tuple[int, ...]:
        """What keys random streams: those of the first are as if there were no others."""
        return (self.number,) if self.number else ()


FIRST = Incarnation()
CUT_OFF = "cut off"
"""The kind of a computation that its node's failure, or that of the job, has ended."""
Keep = Callable[[Saved], Callable[[], None]]
"""Writes what a node saves; what it gives is called when the time for that is over, and it is kept."""


def keeps_nothing(saved: Saved) -> Callable[[], None]:
    """For a run that cannot fail: saving takes its time, and no more."""
    return lambda: None


def nbytes_of(state: Any) -> int:
    """Bytes of the vectors in a state; numbers take none."""
    if isinstance(state, tuple):
        return sum(map(nbytes_of, state))
    return 0 if isinstance(state, int | float) else int(state.nbytes)


class Checkpoints:
    """What has been saved: of each version, the states of those who have written it."""

    def __init__(self, plan: Plan) -> None:
        self._savers = frozenset(plan.savers)
        self._plan = plan
        self._kept: dict[int, dict[int, Saved]] = {}
        self.latest: dict[int, Saved] = {}
        """Of each rank, the last that it has written."""

    def add(self, rank: int, saved: Saved) -> None:
        """A node has written its part of a checkpoint; older ones are not needed once all have."""
        self.latest[rank] = saved
        self._kept.setdefault(saved.version, {})[rank] = saved
        if self._savers <= set(self._kept[saved.version]):
            self._kept = {v: kept for v, kept in self._kept.items() if v >= saved.version}

    @property
    def newest(self) -> Saved | None:
        """The newest of all."""
        return newest(self.latest.values())

    def forget(self, version: int) -> None:
        """The job goes on from a version: what was written beyond is of a past that is given up."""
        self._kept = {v: kept for v, kept in self._kept.items() if v <= version}
        self.latest = {rank: saved for v in sorted(self._kept) for rank, saved in self._kept[v].items()}

    def begin_with(self, incarnation: Incarnation) -> None:
        """The run goes on from there: what was written beyond is of a past that is lost."""
        self._kept, self.latest = {}, {r: s for r, s in incarnation.saved.items() if r in self._savers}
        if incarnation.saved:
            self._kept[incarnation.version] = dict(self.latest)

    def whole(self) -> tuple[int, Mapping[int, Saved]]:
        """The newest version that all have written, and what each rank goes on from; 0 and nothing: none."""
        complete = [v for v, kept in self._kept.items() if self._savers <= set(kept)]
        if not complete:
            return 0, {}
        return max(complete), for_everyone(self._plan, self._kept[max(complete)])


def for_everyone(plan: Plan, kept: Mapping[int, Saved]) -> dict[int, Saved]:
    """What each rank goes on from, of what the savers have written."""
    everyone = {rank: saver(plan, rank) for rank in range(len(plan.roles))}
    return {rank: kept[by] for rank, by in everyone.items() if by is not None}


def saver(plan: Plan, rank: int) -> int | None:
    """Who writes what a rank goes on from: itself, or who holds the same; None: nobody does."""
    if rank in plan.savers:
        return rank
    alike = () if plan.has_servers else plan.group(rank).workers
    return next((other for other in alike if other in plan.savers), None)


def following(
    plan: Plan, before: Incarnation, version: int, saved: Mapping[int, Saved], records: "pd.DataFrame"
) -> Incarnation:
    """The next life of a job whose records are those of the one before, as `cut` left them.

    version, saved: the last checkpoint. When it starts is not said yet.
    """
    if version <= before.version:
        version, steps = before.version, before.steps
        saved = before.saved
    else:
        steps = _next_steps(plan, before, saved, records)
    return Incarnation(before.number + 1, before.start, version, steps, saved)


def cut(
    records: "pd.DataFrame", kills: Sequence[tuple[int, float]], back: Sequence[tuple[int, int, float]]
) -> "pd.DataFrame":
    """The records of a life in which nodes were killed, and owners went back to earlier parameters.

    kills: (rank, when): what the node was computing ends then, and is marked as cut off. back: (owner, to
    which version, when it had failed): updates from that version on until then, and what was dropped among
    them, count as undone.
    """
    found = records.copy()
    found["kind"] = found["kind"].cat.set_categories(sorted({*found["kind"].cat.categories, CUT_OFF}))
    node, start, end = (found[name].to_numpy(copy=True) for name in ("node", "start", "end"))
    event, version = found["event"].to_numpy(), found["version"].to_numpy()
    work = np.isin(event, ("gradient", "work"))
    over = np.zeros(len(found), bool)
    for rank, at in kills:
        ended = work & (node == rank) & (start < at) & (end > at)
        end[ended], over = at, over | ended
    undone = np.zeros(len(found), bool)
    for owner, to, at in back:
        until = (node == owner) & (end <= at) & ~undone
        updates = until & (event == "update")
        kept = end[updates & (version < to)]
        since = kept.max() if len(kept) else -np.inf
        undone |= (updates & (version >= to)) | (until & (event == "drop") & (end > since))
    found["end"] = end
    found.loc[over, "kind"] = CUT_OFF
    found.loc[undone, "event"] = "undone"
    return found


def _next_steps(
    plan: Plan, before: Incarnation, saved: Mapping[int, Saved], records: "pd.DataFrame"
) -> dict[int, int]:
    """Of each worker, the mini-batch that it goes on with: after those that are in what was saved."""
    if plan.has_servers:
        first = {worker: before.steps.get(worker, 0) for worker in plan.workers}
        if plan.strategy.gives_up:
            return {worker: _after_pushes(plan, worker, first[worker], records) for worker in plan.workers}
        taken = _taken(plan, records)
        return {worker: first[worker] + taken.get(worker, 0) for worker in plan.workers}
    savers = {worker: saver(plan, worker) for worker in plan.workers}
    return {worker: saved[by].step for worker, by in savers.items() if by is not None}


def _after_pushes(plan: Plan, worker: int, first: int, records: "pd.DataFrame") -> int:
    """The mini-batch after that of a worker's last push that counts: others are in none, being given up.

    A server takes its pushes in the order in which they were sent, and answers for each with an update or a
    drop. first: the mini-batch of its life.
    """
    done = of(records, "gradient", ["node", "end", "version", "kind"])
    done = done[(done["node"] == worker) & (done["kind"] != CUT_OFF)]
    sent = of(records, "message", ["node", "peer", "start", "kind"])
    found = []
    for server in plan.roles[worker].parents:
        its = records[(records["node"] == server) & (records["peer"] == worker)]
        kept = its["end"][its["event"].isin(("update", "drop"))].max()  # nan: there is none
        answered = int((its["event"].isin(("update", "drop", "undone")) & (its["end"] <= kept)).sum())
        pushes = (sent["node"] == worker) & (sent["peer"] == server) & (sent["kind"] == "push")
        posted = np.sort(sent["start"][pushes])[:answered]
        before = done["version"][done["end"] <= posted[-1]] if len(posted) else []
        found.append(int(max(before)) + 1 if len(before) else first)
    return min(found, default=first)


def _taken(plan: Plan, records: "pd.DataFrame") -> dict[int, int]:
    """Of each worker, the mini-batches that are in the parameters of all servers, or were dropped."""
    counts: dict[int, int] = {}
    found = {e: of(records, e, ["node", "peer", "batches"]) for e in ("update", "drop")}
    for group in plan.groups:
        owners = [rank for rank in plan.owners.evaluated if rank in set(group.owners.ranks)]
        for worker in group.workers:
            by = dict.fromkeys((plan.roles[owner].shard for owner in owners), 0)  # it may have copies
            for rows in found.values():
                own = rows[(rows["peer"] == worker) & rows["node"].isin(group.owners.ranks)]
                for owner in {*own["node"].tolist()}:
                    shard = plan.roles[owner].shard
                    by[shard] = by.get(shard, 0) + int(own.loc[own["node"] == owner, "batches"].sum())
            counts[worker] = min(by.values(), default=0)
    return counts
