"""How often the recommended job is to write a checkpoint, so that its failures cost least.

With lives that are exponential with mean Θ, a checkpoint that takes C, and R until the job is at work again
after a failure, τ seconds of work take (e^{(τ+C)/Θ} − 1)·(Θ + R) on average (Daly 2006, "A higher order
estimate of the optimum checkpoint interval for restart dumps", eq. 13). A second of work takes least at
τ = Θ·(1 + W(−e^{−1−C/Θ})), W Lambert's function; Young's √(2CΘ) is its first term.
`lockstep verify --case failures` holds simulations against it.
"""

from dataclasses import dataclass
from math import exp, expm1
from typing import Any

import lockstep
from lockstep.analysis.words import number, percent
from lockstep.job.plan import Plan
from lockstep.job.recovery import detect_s
from lockstep.recommendation.runs import stopping
from lockstep.scenarios import Scenario
from lockstep.scenarios.faults import Crash, Preemption, Recovery
from lockstep.strategies.kept import Savers

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
    mtbf_s: float
    """Mean time from when the job is at work again to its next failure, s."""

    def __str__(self) -> str:
        every = f"Checkpoint every {self.updates:,} updates ({number(self.seconds, 's')} of work)"
        why = f"the job fails every {number(self.mtbf_s, 's')}, and so loses {percent(self.lost)} of its time"
        if self.given is None:
            return f"{every}: {why}, on average."
        return f"{every}: {why}; every {self.given:,}, as in the file, {percent(self.lost_as_given)}."


def advise(scenario: Scenario) -> Advice | None:
    """For a job that goes back to its last checkpoint whenever somebody fails, again and again; else None.

    Faults that come once, links and hangs are not looked at.
    """
    failures = _failures(scenario)
    if failures is None:
        return None
    mtbf, restart = failures
    work, write, read = _costs(scenario)
    restart += read
    best = mtbf * (1 + _lambert(-exp(-1 - write / mtbf))) if write else work
    updates = max(1, round(best / work))

    def lost(every: int) -> float:
        seconds = expm1((every * work + write) / mtbf) * (mtbf + restart)
        return 1 - every * work / seconds

    recovery = scenario.recovery
    given = recovery.checkpoint.every if recovery is not None and recovery.checkpoint is not None else None
    return Advice(updates, updates * work, lost(updates), given, lost(given or updates), mtbf)


def _lambert(x: float) -> float:
    from scipy.special import lambertw

    return float(lambertw(x).real)


def _failures(scenario: Scenario) -> tuple[float, float] | None:
    """The job's mean time between failures, and the mean time from one until all are back, s."""
    plan = Plan.of(scenario)
    if scenario.on_failure not in ("restart", "spare") or plan.strategy.savers is Savers.NOBODY:
        return None
    rates, down = [], []
    for item in scenario.cluster.faults:
        if not isinstance(item, Crash | Preemption) or item.mtbf is None:
            continue
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
    changes["recovery"] = Recovery.model_validate({"checkpoint": {"every": "1 updates"}})
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
