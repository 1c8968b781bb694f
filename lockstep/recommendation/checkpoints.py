"""How often the recommended job is to write a checkpoint, so that its failures cost least.

With lives that are exponential with mean Θ, a checkpoint that takes C, and R until the job is at work again
after a failure, τ seconds of work take (e^{(τ+C)/Θ} − 1)·(Θ + R) on average (Daly 2006, "A higher order
estimate of the optimum checkpoint interval for restart dumps", eq. 13). A second of work takes least at
τ = Θ·(1 + W(−e^{−1−C/Θ})), W Lambert's function; Young's √(2CΘ) is its first term.
`lockstep verify --case failures` holds simulations against it. For other faults (a trace, a server's, those
of a job that goes on meanwhile) simulations of the scenario's own faults are compared.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from math import exp, expm1
from typing import Any

import lockstep
from lockstep.analysis.words import number, percent
from lockstep.job.plan import Plan
from lockstep.job.recovery import detect_s
from lockstep.recommendation.runs import stopping
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.faults import Crash, Preemption, Recovery, Resize
from lockstep.simulator.errors import SimulationError
from lockstep.strategies.kept import Savers

_WORTH_IT = 1e-3  # of the undisturbed throughput, more than by another period
_UPDATES = 20  # for each worker, in the run that tells what one takes


@dataclass(frozen=True)
class Advice:
    """After how many updates to write a checkpoint, and what failures and checkpoints then cost."""

    updates: int
    """Between checkpoints, where least is lost."""
    seconds: float
    """The work between them, s."""
    lost: float
    """The share of the time that checkpoints, work done again and restarts take."""
    given: int | None
    """Of the scenario's own `recovery.checkpoint`."""
    lost_as_given: float
    mtbf_s: float | None
    """Mean time from when the job is at work again to its next failure, s; None: found by simulation."""

    def __str__(self) -> str:
        every = f"Checkpoint every {self.updates:,} updates ({number(self.seconds, 's')} of work)"
        lost, on_average = f"loses {percent(self.lost)} of its time", ""
        if self.mtbf_s is None:
            why = f"with the file's faults the job then {lost}"
        else:
            why, on_average = f"the job fails every {number(self.mtbf_s, 's')}, and so {lost}", ", on average"
        if self.given is None:
            return f"{every}: {why}{on_average}."
        return f"{every}: {why}; every {self.given:,}, as in the file, {percent(self.lost_as_given)}."


def advise(scenario: Scenario) -> Advice | None:
    """For a job that loses less with checkpoints; else None."""
    recovery = scenario.recovery
    given = recovery.checkpoint.every if recovery is not None and recovery.checkpoint is not None else None
    if Plan.of(scenario).strategy.savers is Savers.NOBODY or scenario.on_failure == "stop":
        return None
    if (failures := _failures(scenario)) is None:
        return _simulated(scenario, given)
    mtbf, restart = failures
    work, write, read = _costs(scenario)
    restart += read
    best = mtbf * (1 + _lambert(-exp(-1 - write / mtbf))) if write else work
    updates = max(1, round(best / work))

    def lost(every: int) -> float:
        seconds = expm1((every * work + write) / mtbf) * (mtbf + restart)
        return 1 - every * work / seconds

    return Advice(updates, updates * work, lost(updates), given, lost(given or updates), mtbf)


def _simulated(scenario: Scenario, given: int | None) -> Advice | None:
    """By the goodput of simulations with the scenario's own faults, of 1, 2, 5, 10, … updates."""
    sized = scenario.sizes_only
    by_plan = [item for item in scenario.cluster.faults if isinstance(item, Resize)]
    nobody_fails = {"cluster": scenario.cluster.model_copy(update={"faults": by_plan})}
    undisturbed = lockstep.simulate(sized.model_copy(update=nobody_fails)).metrics
    whole, most = undisturbed["throughput"], undisturbed["updates"]

    @cache
    def goodput(every: int | None) -> float:
        try:
            run = lockstep.simulate(sized.model_copy(update={"recovery": _writing(scenario, every)}))
        except (SimulationError, ScenarioError):  # it never comes to its end, or may write none
            return 0.0
        return run.metrics["goodput"] or 0.0

    worth_it = whole * _WORTH_IT
    if not whole or goodput(None) >= whole - worth_it:
        return None
    ladder = [step * 10**power for power in range(7) for step in (1, 2, 5) if step * 10**power <= most]
    place = min(bisect_left(ladder, given or 10), len(ladder) - 1)
    for way in (1, -1):
        while (
            0 <= place + way < len(ladder)
            and goodput(ladder[place + way]) > goodput(ladder[place]) + worth_it
        ):
            place += way
    best = max(ladder[place], given or ladder[place], key=goodput)
    if goodput(best) <= goodput(None) + worth_it:
        return None
    work, *_ = _costs(scenario)
    lost, as_given = (1 - goodput(every) / whole for every in (best, given))
    return Advice(best, best * work, lost, given, as_given, None)


def _writing(scenario: Scenario, every: int | None) -> Recovery:
    """The scenario's recovery, with a checkpoint every so many updates; None: none."""
    checkpoint = None if every is None else {"every": f"{every} updates"}
    return Recovery.model_validate({"on_failure": scenario.on_failure, "checkpoint": checkpoint})


def _lambert(x: float) -> float:
    from scipy.special import lambertw

    return float(lambertw(x).real)


def _failures(scenario: Scenario) -> tuple[float, float] | None:
    """The job's mean time between failures, and the mean time from one until all are back, s.

    None: they are of other kinds, too, or do not end all work.
    """
    plan = Plan.of(scenario)
    if scenario.on_failure not in ("restart", "spare"):
        return None
    rates, down = [], []
    for item in scenario.cluster.faults:
        if not isinstance(item, Crash | Preemption) or item.mtbf is None:
            return None
        if scenario.on_failure == "restart" and item.back_after is None:
            return None
        back = (
            item.back_after.mean_s
            if item.back_after is not None and scenario.on_failure == "restart"
            else 0.0
        )
        notice = item.notice if isinstance(item, Preemption) else 0.0
        rates.append((len(plan.workers) if item.scope is None else 1) / item.mtbf.mean_s)
        down.append(max(back, detect_s(scenario) - notice))
    if not rates:
        return None
    return 1 / sum(rates), sum(rate * each for rate, each in zip(rates, down, strict=True)) / sum(rates)


def _costs(scenario: Scenario) -> tuple[float, float, float]:
    """What an update takes, a checkpoint, and to read one, s: of a short run in which nobody fails."""
    changes: dict[str, Any] = {"cluster": scenario.cluster.model_copy(update={"faults": ()})}
    changes["recovery"] = _writing(scenario, 1)
    updates = _UPDATES * scenario.cluster.workers
    found = lockstep.simulate(
        stopping(scenario.sizes_only.model_copy(update=changes), updates=updates)
    ).records
    written = found[(found["event"] == "checkpoint") & (found["kind"] == "write")]
    own = written[written["node"] == written["node"].iloc[0]]
    write = float((own["end"] - own["start"]).mean())
    work = float(own["end"].diff().mean()) - write
    storage = scenario.cluster.storage
    read = float(written["nbytes"].max()) / storage.read if storage is not None and storage.read else 0.0
    return work, write, read
