"""What a job does about failures: what is asked of it, checked beforehand, and when it can go on."""

from collections.abc import Iterator, Sequence
from math import inf, nan

from lockstep.analysis.records import Recorder
from lockstep.job.faults import Crash, Fault, schedule
from lockstep.job.incarnation import Incarnation, nbytes_of
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.faults import Resize
from lockstep.strategies import STRATEGIES, Strategy

DETECT_S = 2.0
"""After how long a failure is noticed, unless the scenario says."""
_IN_VAIN = 1000  # lives without a new checkpoint, after which there will be none


def check(scenario: Scenario, strategy: Strategy, in_passes: bool) -> None:
    """Raises ScenarioError for faults, checkpoints and recoveries that a job cannot have."""
    if not scenario.with_faults:
        return
    name = scenario.strategy.name
    for index, item in enumerate(scenario.cluster.faults):
        if isinstance(item, Resize):
            problem = "workers that join or leave by plan are not built yet; give a crash with back_after"
            raise ScenarioError(problem, key=f"cluster.faults[{index}].workers")
        if getattr(item, "server", None) is not None and not strategy.has_servers:
            raise ScenarioError(f"{name} has no servers", key=f"cluster.faults[{index}].server")
    where = "cluster.faults" if scenario.cluster.faults else "recovery.checkpoint"
    if in_passes:
        problem = "not built yet for gradients that are computed in passes (parallelism, units, fsdp, p3)"
        raise ScenarioError(problem, key=where)
    if scenario.recovery is not None and scenario.recovery.checkpoint is not None and not strategy.saves:
        able = ", ".join(other for other, known in STRATEGIES.items() if known.saves)
        problem = f"{name} writes no checkpoints; those that do: {able}"
        raise ScenarioError(problem, key="recovery.checkpoint")
    if scenario.on_failure in ("continue", "wait"):
        if not strategy.elastic:
            able = ", ".join(other for other, known in STRATEGIES.items() if known.elastic)
            problem = (
                f"{name} cannot go on without a worker; must be stop, restart or spare, or one of: {able}"
            )
            raise ScenarioError(problem, key="recovery.on_failure")
        if scenario.cluster.servers.hierarchy is not None:
            problem = "not built yet for relays: must be stop, restart or spare with servers.hierarchy"
            raise ScenarioError(problem, key="recovery.on_failure")


def detect_s(scenario: Scenario) -> float:
    """After how many seconds a failure is noticed."""
    return DETECT_S if scenario.cluster.detect is None else scenario.cluster.detect


def noticed(scenario: Scenario, fault: Fault) -> float:
    """When a fault counts as a failure, s; inf: never, as it is over before."""
    detect = detect_s(scenario)
    if isinstance(fault, Crash):
        return fault.at + max(0.0, detect - fault.notice)
    return fault.at + detect if fault.until > fault.at + detect else inf


class Faults:
    """The faults of a run that are still to come, and those that have been."""

    def __init__(self, plan: Plan) -> None:
        scenario, cluster = plan.scenario, plan.scenario.cluster
        self._stream: Iterator[Fault] = schedule(
            cluster.faults, scenario.seed, plan.roles, plan.hosts, cluster.group_of
        )
        self._scenario = scenario
        self.next: Fault | None = next(self._stream, None)
        self._been: list[tuple[int, float, float, float, str]] = []

    def pop(self) -> Fault:
        """The next one."""
        assert self.next is not None
        fault, self.next = self.next, next(self._stream, None)
        return fault

    def befell(self, fault: Fault, ranks: Sequence[int]) -> None:
        """It has happened to them."""
        at = noticed(self._scenario, fault)
        self._been += [(rank, fault.at, nan if at == inf else at, fault.until, fault.kind) for rank in ranks]

    def record(self, recorder: Recorder, end: float) -> None:
        """What has been, in a run that ended then: what lasted longer is over with it."""
        for rank, at, known, until, kind in self._been:
            if at < end:
                recorder.note("fault", rank, at, known, min(until, end), kind=kind)


def next_start(plan: Plan, faults: Faults, now: float, back: float, read_s: float) -> float:
    """When a job that knows at `now` that it has failed goes on: who failed is `back`, and all have read.

    Other failures until then hold it up, too.
    """
    spare = plan.scenario.on_failure == "spare"
    start = (now if spare else max(now, back)) + read_s
    while (fault := faults.next) is not None and fault.at < start < inf:
        faults.befell(faults.pop(), fault.ranks)
        lasting = min(fault.until, noticed(plan.scenario, fault)) if spare else fault.until
        start = max(start, lasting + (read_s if isinstance(fault, Crash) else 0.0))
    return start


def read_s(plan: Plan, life: Incarnation) -> float:
    """Seconds that reading a checkpoint takes: all read at once, each what it goes on from."""
    storage = plan.scenario.cluster.storage
    rate = storage.read if storage else None
    if not rate:
        return 0.0
    return max((nbytes_of(saved.state) / rate for saved in life.saved.values()), default=0.0)


def says(plan: Plan, fault: Fault, ranks: Sequence[int]) -> str:
    """Why a run ends."""
    who = ", ".join(f"{plan.roles[rank].name} (rank {rank})" for rank in ranks[:4])
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    what = {"crash": "crashed", "hang": "stood still", "cut": "was cut off"}[fault.kind]
    known = noticed(plan.scenario, fault)
    return (
        f"{who}{more} {what} at {fault.at:g} s (cluster.faults[{fault.item}]), which was noticed at "
        f"{known:g} s; recovery.on_failure is {plan.scenario.on_failure}"
    )


class Progress:
    """Ends a run that fails again and again before it has come to another checkpoint."""

    def __init__(self) -> None:
        self._version, self._lives = -1, 0

    def in_vain(self, life: Incarnation) -> bool:
        """Whether it has, with this life."""
        self._lives = 0 if life.version > self._version else self._lives + 1
        self._version = max(self._version, life.version)
        return self._lives > _IN_VAIN
