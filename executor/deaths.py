"""What has befallen a real run that nobody planned: on disk, for when it goes on without its launcher."""

import json
from collections.abc import Sequence
from pathlib import Path

from lockstep.analysis.incomplete import DEATHS
from lockstep.analysis.whole import put_text
from lockstep.job.faults import Fault, Silent, Unforeseen
from lockstep.job.joining import ALWAYS
from lockstep.job.plan import Plan
from lockstep.job.recovery import Faults


class KeptFaults(Faults):
    """The faults of a run, and those so far that came by themselves, which its folder has."""

    def __init__(self, plan: Plan, kept: Path, resume: bool) -> None:
        """resume: whether the run goes on; else what lies there is another's."""
        super().__init__(plan)
        self._file = kept / DEATHS
        self.by_themselves: list[Unforeseen] = []
        """Those so far."""
        self._of_all: list[Unforeseen] = []
        said = json.loads(self._file.read_text("utf-8")) if resume and self._file.exists() else []
        for kind, at, until, ranks in said:
            fault = (Silent if kind == Silent.kind else Unforeseen)(at, until, -1, tuple(ranks))
            self.by_themselves.append(fault)
            super().befell(fault, fault.ranks)

    def befell(self, fault: Fault, ranks: Sequence[int]) -> None:
        """As of any faults."""
        super().befell(fault, ranks)
        if isinstance(fault, Unforeseen):
            self.by_themselves.append(fault)
            said = json.dumps([(each.kind, each.at, each.until, each.ranks) for each in self.by_themselves])
            put_text(self._file, said + "\n")

    def ended_all(self, plan: Plan, at: float) -> None:
        """All who were there have died at once, the launcher too: the folders of lives say when (s).

        The clock stood still until somebody let the run go on: so it was noticed at the same instant.
        """
        spans = {rank: plan.presence.get(rank, ALWAYS) for rank in range(len(plan.roles))}
        ranks = tuple(rank for rank, (since, until) in spans.items() if since <= at < until)
        if (fault := Unforeseen(at, at, -1, ranks)) not in self._of_all:
            self._of_all.append(fault)
            super().befell(fault, ranks)
