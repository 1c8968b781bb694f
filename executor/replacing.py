"""Processes of a real run that die while the job goes on: what they leave, and who takes their place."""

from collections import Counter
from math import inf
from pathlib import Path

import pandas as pd

import lockstep.analysis.streams as streams
from lockstep.analysis.records import Recorder, of
from lockstep.executor import journal
from lockstep.executor.hub import Hub
from lockstep.executor.stores import Store
from lockstep.job.ending import pool
from lockstep.job.faults import Fault
from lockstep.job.incarnation import Incarnation, cut
from lockstep.job.plan import Plan
from lockstep.job.recovery import noticed


class Replacing:
    """Of one life of a job, whose processes leave their things in `folder` and their records in `kept`."""

    def __init__(self, plan: Plan, folder: Path, kept: Path, hub: Hub, store: Store, number: int) -> None:
        """number: of the life of the job."""
        self.frames: list[pd.DataFrame] = []
        """What the dead had no time to write."""
        self.absent: set[int] = set()
        """Whose place nobody takes."""
        self._plan, self._folder, self._kept, self._hub, self._store = plan, folder, kept, hub, store
        self._number, self._lives = number, Counter[int]()
        self._steps: dict[int, int] = {}
        self._deaths: list[tuple[int, Fault]] = []

    def bury(self, rank: int, fault: Fault, at: float) -> Incarnation | None:
        """What begins in the place of one that was killed at `at` (s); None if nothing does."""
        plan = self._plan
        before = streams.file_of(self._kept, rank, streams.RECORDS)
        found = streams.records([before])
        done, under_way = journal.read(journal.journal_of(self._folder, rank))
        known = set() if found is None else set(of(found, "gradient", ["start"])["start"])
        lost = Recorder()
        for step, start, end in done:
            self._steps[rank] = step + 1
            if start not in known:
                lost.gradient(rank, start, end, step)
        if under_way is not None:
            step, start, _ = under_way
            self._steps[rank] = step
            lost.gradient(rank, start, at + 1, step)  # it would have ended later: see `cut`
            if plan.quota.together is not None:  # it is in the pool again
                self._store.add(pool(plan.places[rank][0]), -1)
        self.frames.append(cut(lost.frame(), [(rank, at)], []))
        for what in (streams.RECORDS, streams.LOG):
            file = streams.file_of(self._kept, rank, what)
            if file.exists():
                file.rename(file.with_name(f"rank-{rank}.life-{self._lives[rank]}.{what}.arrow"))
        self._lives[rank] += 1
        self._deaths.append((rank, fault))
        self._hub.forget(rank)
        if fault.until >= (plan.scenario.stop.time or inf):
            self.absent.add(rank)
            self._store.add("barrier/end", 1)  # nobody is to wait for it
            return None
        return Incarnation(
            self._number + self._lives[rank], fault.until, steps={rank: self._steps.get(rank, 0)}
        )

    def note_recoveries(self, recorder: Recorder, records: pd.DataFrame) -> None:
        """Who took a dead one's place was at work with its first gradient."""
        gradients = of(records, "gradient", ["node", "start"])
        for rank, fault in self._deaths:
            starts = gradients["start"][(gradients["node"] == rank) & (gradients["start"] >= fault.until)]
            if len(starts):
                back = float(starts.min())
                recorder.note("recovery", rank, min(noticed(self._plan.scenario, fault), back), back, -1)
