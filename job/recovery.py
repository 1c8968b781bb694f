"""What a job does about failures: what is asked of it, checked beforehand, and when it can go on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf, nan
from typing import TYPE_CHECKING, Self

import numpy as np

from lockstep.analysis.records import Recorder, in_order, of, values
from lockstep.job.faults import Crash, Cut, Fault, Hang, Unforeseen, schedule
from lockstep.job.incarnation import Incarnation, nbytes_of
from lockstep.job.joining import ALWAYS
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.faults import Preemption, Resize
from lockstep.strategies import STRATEGIES, Strategy
from lockstep.strategies.kept import Savers

if TYPE_CHECKING:
    import pandas as pd

DETECT_S = 2.0
"""After how long a failure is noticed, unless the scenario says."""
_IN_VAIN = 1000  # lives without a new checkpoint, or failures before the next life: there will be none


def check(scenario: Scenario, strategy: Strategy) -> None:
    """Raises ScenarioError for faults, checkpoints and recoveries that a job cannot have."""
    if not scenario.with_faults:
        return
    name, hierarchy = scenario.strategy.name, scenario.cluster.servers.hierarchy
    checkpoints = scenario.recovery is not None and scenario.recovery.checkpoint is not None
    for index, item in enumerate(scenario.cluster.faults):
        apart = hierarchy is not None or scenario.cluster.servers.copies > 1
        resizes = strategy.resizes and not _together(scenario) and not apart
        if isinstance(item, Resize) and not resizes:
            able = ", ".join(name for name, known in STRATEGIES.items() if known.resizes)
            problem = (
                f"{name} cannot have workers that join or leave by plan; those that can, without relays "
                f"and copies, and with a device for each replica of the model: {able}"
            )
            raise ScenarioError(problem, key=f"cluster.faults[{index}].workers")
        if isinstance(item, Resize) and not (strategy.has_servers or scenario.goes_on):
            problem = f"must be continue or wait where workers of {name} join or leave by plan"
            raise ScenarioError(problem, key="recovery.on_failure")
        if getattr(item, "server", None) is not None and not strategy.has_servers:
            raise ScenarioError(f"{name} has no servers", key=f"cluster.faults[{index}].server")
        if isinstance(item, Resize) and checkpoints and not strategy.has_servers:
            who = (*(item.workers.join or ()), *(item.workers.remove or ()))
            if strategy.savers is Savers.WORKERS or 0 in who:
                writes = "every worker writes" if strategy.savers is Savers.WORKERS else "worker 0 writes"
                problem = f"{writes} the checkpoints of {name}, and cannot join or leave by plan with them"
                raise ScenarioError(problem, key=f"cluster.faults[{index}].workers")
    saves = strategy.savers is not Savers.NOBODY
    if checkpoints and not saves:
        able = ", ".join(other for other, known in STRATEGIES.items() if known.savers is not Savers.NOBODY)
        problem = f"{name} writes no checkpoints; those that do: {able}"
        raise ScenarioError(problem, key="recovery.checkpoint")
    if scenario.on_failure in ("continue", "wait") and (refused := refuses_to_go_on(scenario, strategy)):
        raise refused


def refuses_to_go_on(scenario: Scenario, strategy: Strategy) -> ScenarioError | None:
    """Why a job cannot go on while some of its processes are gone; None: it can."""
    given, servers = scenario.strategy.parameters, scenario.cluster.servers
    others, key = "must be stop, restart or spare", "recovery.on_failure"
    held = given.get("answer_codec", "none") != "none" or given.get("codec") == "rows"
    if _together(scenario):
        problem = (
            "not built yet where workers compute a gradient together (parallelism over several devices, "
            f"workload.batch_norm: synchronised): {others}"
        )
    elif not strategy.elastic:
        able = ", ".join(other for other, known in STRATEGIES.items() if known.elastic)
        problem = f"{scenario.strategy.name} cannot go on without a worker; {others}, or one of: {able}"
    elif strategy.pieces(given) is not None and not strategy.has_servers:
        problem = f"not built yet for units of {scenario.strategy.name}: {others} with them"
    elif given.get("algorithm") == "native" and not strategy.has_servers:
        problem = (
            "the engine's own collective cannot go on without a worker: with on_failure "
            f"{scenario.on_failure} must be another, such as ring"
        )
        key = "strategy.algorithm"
    elif strategy.has_servers and held:
        problem = (
            "not built yet for an answer_codec or the codec rows, where servers know what workers hold: "
            f"{others} with them"
        )
    elif servers.copies > 1:
        problem = f"not built yet for servers.copies: {others} with them"
    elif servers.hierarchy is not None:
        problem = f"not built yet for relays: {others} with servers.hierarchy"
    else:
        return None
    return ScenarioError(problem, key=key)


def _together(scenario: Scenario) -> bool:
    """Whether a worker that is gone stops others in the midst of a gradient."""
    return scenario.split.devices > 1 or scenario.workload.synchronised


def detect_s(scenario: Scenario) -> float:
    """After how many seconds a failure is noticed."""
    return DETECT_S if scenario.cluster.detect is None else scenario.cluster.detect


def noticed(scenario: Scenario, fault: Fault) -> float:
    """When a fault counts as a failure, s; inf: never, as it is over before."""
    detect = detect_s(scenario)
    if isinstance(fault, Unforeseen):
        return fault.until
    if isinstance(fault, Crash):
        return fault.at + max(0.0, detect - fault.notice)
    return fault.at + detect if fault.until > fault.at + detect else inf


def killed(scenario: Scenario, crash: Crash) -> float:
    """When who crashes is gone, s: at once, or when it has exited, or once its failure is noticed."""
    return min(crash.at + crash.lingers, max(crash.at, noticed(scenario, crash)))


def over(scenario: Scenario, fault: Fault) -> float:
    """When those whom a fault befalls are there again, s, or spares in their places."""
    spare = scenario.on_failure == "spare"
    return min(fault.until, noticed(scenario, fault)) if spare else fault.until


class Faults:
    """The faults of a run that are still to come, and those that have been."""

    def __init__(self, plan: Plan) -> None:
        scenario, cluster = plan.scenario, plan.scenario.cluster
        self._scenario = scenario
        comes = schedule(
            *(cluster.faults, scenario.seed, plan.roles, plan.hosts, cluster.group_of),
            partial(over, scenario),
        )
        self._stream = self._there(comes, plan.presence)
        self.next: Fault | None = next(self._stream, None)
        self._been: list[tuple[int, float, float, float, str]] = []

    def _there(self, faults: Iterator[Fault], presence: Mapping[int, tuple[float, float]]) -> Iterator[Fault]:
        """Nothing befalls a worker that has not joined yet, or has left, nor who has failed already.

        Those that befall nobody are there, too: of some that come again and again no other may come.
        """
        down, still = dict[int, float](), dict[int, float]()  # until when
        for fault in faults:
            known = noticed(self._scenario, fault)
            ranks = tuple(
                rank
                for rank in fault.ranks
                if (span := presence.get(rank, ALWAYS))[0] <= fault.at < span[1]
                and down.get(rank, -inf) <= fault.at
                and (not isinstance(fault, Hang) or still.get(rank, -inf) <= fault.at)
            )
            if known < inf:
                down.update(dict.fromkeys(ranks, over(self._scenario, fault)))
            elif isinstance(fault, Hang):
                still.update(dict.fromkeys(ranks, fault.until))
            yield fault if len(ranks) == len(fault.ranks) else replace(fault, ranks=ranks)

    def pop(self) -> Fault:
        """The next one."""
        assert self.next is not None
        fault, self.next = self.next, next(self._stream, None)
        return fault

    def befell(self, fault: Fault, ranks: Sequence[int]) -> None:
        """It has happened to them."""
        known, until = noticed(self._scenario, fault), over(self._scenario, fault)
        self._been += [(rank, fault.at, known, until, fault.kind) for rank in ranks]

    def record(self, recorder: Recorder, end: float) -> None:
        """What has been, in a run whose last record is of then: what lasted longer is over with it.

        Where the clock alone ends a run it may be down until then, and record nothing.
        """
        stop = self._scenario.stop
        end = stop.time if stop.time is not None and stop.by_time_alone else min(end, stop.time or inf)
        for rank, at, known, until, kind in self._been:
            if at < end:
                recorder.note("fault", rank, at, known if known <= end else nan, min(until, end), kind=kind)


class NotBack(Exception):
    """A job waits for ever for all of its processes to be there: why, in words."""


def next_start(plan: Plan, faults: Faults, now: float, lasting: Iterable[Fault], read_s: float) -> float:
    """When a job that knows at `now` that it has failed goes on: what lasts is over, and all have read.

    Other failures until then hold it up, too, but not beyond the run's time. Raises NotBack.
    """
    until, until_over = plan.scenario.stop.time or inf, partial(over, plan.scenario)
    last = max(lasting, key=until_over)
    start = max(now, until_over(last)) + read_s
    if start == inf:
        raise NotBack(does_not_come_back(plan, last, last.ranks))
    held_up = 0
    while (fault := faults.next) is not None and fault.at < start < until:
        faults.befell(faults.pop(), fault.ranks)
        if not fault.ranks and not isinstance(fault, Cut):
            continue
        if until_over(fault) == inf:
            raise NotBack(does_not_come_back(plan, fault, fault.ranks))
        start = max(start, until_over(fault) + (read_s if isinstance(fault, Crash) else 0.0))
        held_up += 1
        if held_up > _IN_VAIN and until == inf:
            said = says(plan, fault, fault.ranks)
            raise NotBack(f"{said}; its processes are never all there at once: give a longer mtbf")
    return start


def does_not_come_back(plan: Plan, fault: Fault, ranks: Sequence[int]) -> str:
    """Why a run ends that waits for them."""
    return f"{says(plan, fault, ranks)}, and it does not come back (back_after)"


def read_s(plan: Plan, life: Incarnation) -> float:
    """Seconds that reading a checkpoint takes: all read at once, each what it goes on from."""
    storage = plan.scenario.cluster.storage
    rate = storage.read if storage else None
    if not rate:
        return 0.0
    return max((nbytes_of(saved.state) / rate for saved in life.saved.values()), default=0.0)


def recovered(plan: Plan, records: "pd.DataFrame") -> "pd.DataFrame":
    """The records, in which who is back recovers with its first work, or not at all if none comes.

    Work is a gradient of the worker; a message that reaches the server; anybody's gradient, if it is the job.
    """
    gradients = values(records, "gradient", ["node", "start"])
    messages = values(records, "message", ["peer", "end"])
    ends = records["end"].to_numpy(copy=True)
    back = of(records, "recovery", ["node", "end"])
    for node in back["node"].unique():
        rows = back["end"][back["node"] == node]
        works = gradients["start"] if node == -1 else gradients["start"][gradients["node"] == node]
        if node >= len(plan.workers):
            works = messages["end"][messages["peer"] == node]
        works = np.append(np.sort(works), np.nan)
        ends[rows.index] = works[np.searchsorted(works[:-1], rows)]
    return in_order(records.assign(end=ends)[~np.isnan(ends)])


def says(plan: Plan, fault: Fault, ranks: Sequence[int]) -> str:
    """Why a run ends."""
    who = ", ".join(f"{plan.roles[rank].name} (rank {rank})" for rank in ranks[:4])
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    what = {"crash": "crashed", "hang": "stood still", "cut": "was cut off"}[fault.kind]
    cause = "by itself" if isinstance(fault, Unforeseen) else f"cluster.faults[{fault.item}]"
    known = noticed(plan.scenario, fault)
    return (
        f"{who}{more} {what} at {fault.at:g} s ({cause}), which was noticed at {known:g} s; "
        f"recovery.on_failure is {plan.scenario.on_failure}"
    )


class Notices:
    """Of a node that writes checkpoints: those that are due because a machine is about to be taken away.

    Two updates after a notice are saved: where all make the same updates nobody is more than one ahead, so
    that all have one of the two.
    """

    @classmethod
    def of(cls, plan: Plan, since: float) -> Self | None:
        """Those of a node whose life begins at `since`, s; None: there are none."""
        items = plan.scenario.cluster.faults
        longest = max((item.notice for item in items if isinstance(item, Preemption)), default=0.0)
        return cls(plan, since, longest) if longest else None

    def __init__(self, plan: Plan, since: float, longest: float) -> None:
        """longest: for how long (s) failures are known before. What was said before `since` is saved."""
        self._longest, self._faults = longest, Faults(plan)
        self._coming: list[float] = []
        self._left = 0
        self.due(since)
        self._left = 0

    def due(self, now: float) -> bool:
        """Whether the update that is made now is saved."""
        while (fault := self._faults.next) is not None and fault.at <= now + self._longest:
            self._faults.pop()
            if isinstance(fault, Crash) and fault.notice and fault.ranks:
                self._coming.append(fault.at - fault.notice)
        if any(at <= now for at in self._coming):
            self._coming, self._left = [at for at in self._coming if at > now], 2
        due, self._left = self._left > 0, max(0, self._left - 1)
        return due


class Progress:
    """Ends a run that fails again and again before it has come to another checkpoint."""

    def __init__(self) -> None:
        self._version, self._lives = -1, 0

    def in_vain(self, life: Incarnation, most: int | None = None) -> bool:
        """Whether it has, with this life, more often than `most`, or a thousand times."""
        self._lives = 0 if life.version > self._version else self._lives + 1
        self._version = max(self._version, life.version)
        return self._lives > (_IN_VAIN if most is None else most)
