"""Processes of a real run that die while the job goes on: what they leave, and who takes their place."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf, nextafter
from pathlib import Path

import pandas as pd

import lockstep.analysis.streams as streams
from lockstep.analysis.entries import GONE, LIFE
from lockstep.analysis.records import Recorder
from lockstep.analysis.whole import put_text
from lockstep.executor import checkpoint_file, journal, snapshot_file
from lockstep.executor.hub import Hub
from lockstep.executor.interleaving import DurableInterleaving
from lockstep.executor.stores import Store
from lockstep.executor.transport import lives_so_far
from lockstep.job.ending import ARRIVED, pool
from lockstep.job.faults import Cut, Fault, Unforeseen
from lockstep.job.incarnation import Incarnation, Saved, cut, nbytes_of, newest, saver
from lockstep.job.plan import Plan
from lockstep.job.recovery import noticed
from lockstep.job.snapshots import Snapshots

BACK = "back.json"
"""Servers that went back to earlier parameters in a life of the job."""


class Replacing:
    """Of one life of a job, whose processes leave their things in `folder` and their records in `kept`."""

    def __init__(
        self, plan: Plan, folder: Path, kept: Path, hub: Hub, store: Store, life: Incarnation
    ) -> None:
        """life: of the job."""
        self.frames: list[pd.DataFrame] = []
        """What the dead had no time to write."""
        self.absent: set[int] = set()
        """Whose place nobody takes."""
        self.back: list[tuple[int, int, float]] = []
        """Servers that went back to earlier parameters: which, to which version, and when."""
        self._plan, self._folder, self._kept, self._hub, self._store = plan, folder, kept, hub, store
        self._number, self._lives = life.number, Counter[int]()
        self._steps = dict(life.steps)
        self._deaths: list[tuple[int, Fault]] = []

    def bury(self, rank: int, fault: Fault, at: float) -> Incarnation | None:
        """What begins in the place of one that was killed at `at` (s); None if nothing does."""
        plan = self._plan
        steps, version, start, until = dict[int, int](), 0, fault.until, plan.scenario.stop.time or inf
        saved: Saved | None = None
        by = rank if plan.has_servers else saver(plan, rank)
        if by is not None and by in plan.savers:
            saved = checkpoint_file.last(self._kept.parent, by)
            start += self._read_s(saved)
            if saved is not None and plan.goes_back(rank):  # else who begins sees which is the last then
                version = saved.version
        if plan.goes_back(rank):
            self.back.append((rank, version, start))
            put_text(self._kept / BACK, json.dumps(self.back))
            if len(self._counted(rank, ARRIVED)):  # it is no longer among those
                self._store.add(ARRIVED, -1)
        if rank in plan.workers:
            steps = {rank: self._mourn(rank, at if isinstance(fault, Cut | Unforeseen) else fault.at)}
            if plan.goes_back(rank):
                steps = {rank: self._take_back(rank, steps[rank], saved.step if saved else 0)}
        else:
            start = min(start, until)
        for what in (streams.RECORDS, streams.LOG):
            for file in (streams.file_of(self._kept, rank, what), *streams.packed_log(self._kept, rank)):
                if file.exists():
                    name = file.name.replace(f"rank-{rank}.", f"rank-{rank}.life-{self._lives[rank]}.")
                    file.rename(file.with_name(name))
        self._lives[rank] += 1
        self._deaths.append((rank, fault))
        self._hub.forget(rank)
        number = max(self._number, lives_so_far(self._store, rank)) + 1
        if rank in plan.workers and start >= until:
            self.absent.add(rank)
            left_by = self._folder / f"snapshots-{rank}.npz"
            left_by.unlink(missing_ok=True)  # of one that was killed while it ended
            if plan.owners.shown_by_all and self.absent >= {*plan.workers}:  # that is left of what all held
                files = (checkpoint_file.last(self._kept.parent, each) for each in plan.savers)
                saved = newest(each for each in files if each is not None)
                version = saved.version if saved else 0
                self.back.append((plan.owners.ranks[0], version, inf))
            if plan.scenario.workload.learns and (version or plan.goes_back(rank)):
                left = Snapshots(0)
                snapshot_file.restore(left, self._folder, rank, version, saved.shown if saved else None)
                snapshot_file.write(left_by, left)
            self._store.add("barrier/end", 1)  # nobody is to wait for it
            log = DurableInterleaving(self._kept, rank)
            log.note(LIFE, GONE, peer=number, number=steps[rank], version=version, answer=start)
            log.close()
            return None
        return Incarnation(number, start, version, steps, rejoins=True)

    def _mourn(self, worker: int, at: float) -> int:
        """Keep what a worker had computed that its records do not have; the mini-batch that comes next."""
        found = streams.records([streams.file_of(self._kept, worker, streams.RECORDS)])
        file = journal.journal_of(self._kept, worker)
        noted = journal.read(file)
        if file.exists():  # who takes its place may be killed before it computes anything
            file.rename(file.with_name(f"{file.name}.life-{self._lives[worker]}"))
        for step, _, _ in noted.done:
            self._steps[worker] = step + 1
        self.frames.append(journal.unwritten(noted, worker, found))
        given_up = noted.given_up
        if noted.under_way is not None:
            step, start, _ = noted.under_way
            self._steps[worker] = step
            given_up = [*given_up, (step, start, max(at, nextafter(start, inf)))]
        if (together := self._plan.quota.together) is not None:
            name = pool(self._plan.places[worker][0])
            taken = self._counted(worker, name)
            self._store.add(name, len(noted.done) - int((taken <= together).sum()))  # it is in the pool again
        self.frames.append(_cut_off(worker, given_up))
        return self._steps.get(worker, 0)

    def _take_back(self, worker: int, made: int, step: int) -> int:
        """A worker goes on with an earlier mini-batch than the one after those that it has made."""
        self._steps[worker] = step
        if self._plan.quota.together is not None:
            self._store.add(pool(self._plan.places[worker][0]), step - made)
        return step

    def _counted(self, rank: int, name: str) -> "pd.Series[int]":
        """What a process was told each time that it had counted: its log has lost nothing."""
        log = streams.log(self._kept, rank, alone=True)
        return log["number"][(log["word"] == "count") & (log["kind"] == name)]

    def rest(self) -> Iterator[pd.DataFrame]:
        """At the end: what workers have given up that are there."""
        for worker in self._plan.workers:
            yield _cut_off(worker, journal.read(journal.journal_of(self._kept, worker)).given_up)

    def _read_s(self, saved: Saved | None) -> float:
        """Seconds that a checkpoint takes to be read."""
        storage = self._plan.scenario.cluster.storage
        return nbytes_of(saved.state) / storage.read if saved and storage and storage.read else 0.0

    def note_recoveries(self, recorder: Recorder) -> None:
        """Whose place was to be taken, and when; `recovered` finds out when they were at work."""
        for rank, fault in self._deaths:
            known = min(noticed(self._plan.scenario, fault), fault.until)
            recorder.note("recovery", rank, known, fault.until, -1)


def _cut_off(worker: int, given_up: Sequence[journal.Entry]) -> pd.DataFrame:
    """Records of gradients that did not come to their ends, but to these."""
    lost = Recorder()
    for step, start, end in given_up:
        lost.gradient(worker, start, end + 1, step)  # it would have ended later: see `cut`
    return cut(lost.frame(), [(worker, end) for _, _, end in given_up], [])
