"""A run whose job fails and goes on, in virtual time: one life after the other (job/incarnation.py)."""

from contextlib import nullcontext
from dataclasses import replace
from math import inf

from lockstep.analysis.records import Recorder, join
from lockstep.analysis.result import Result
from lockstep.job.incarnation import FIRST, Checkpoints, cut, following, nbytes_of
from lockstep.job.plan import Plan
from lockstep.job.recovery import Faults, NotBack, next_start, read_s, recovered
from lockstep.job.recovery import Progress as Lives
from lockstep.job.rounds import completed
from lockstep.simulator.engine import Progress
from lockstep.simulator.errors import SimulationError
from lockstep.simulator.faults import FaultySimulation
from lockstep.workloads import learning


def simulate_with_faults(plan: Plan, progress: Progress | None = None) -> Result:
    """As `simulate`, where processes fail or checkpoints are written. Raises SimulationError."""
    faults, checkpoints, lives = Faults(plan), Checkpoints(plan), Lives()
    life, frames = FIRST, []
    extra, until = Recorder(), plan.scenario.stop.time or inf
    with learning() if plan.scenario.workload.learns else nullcontext():
        while True:
            simulation = FaultySimulation(plan, life, faults, checkpoints)
            simulation.run(progress)
            result = simulation.result()
            fault, now = simulation.failed, simulation.environment.now
            if fault is None:
                frames.append(completed(plan, cut(result.records, simulation.kills, simulation.back)))
                break
            version, saved = checkpoints.whole()
            simulation.follow(max(version, life.version))
            frames.append(cut(result.records, simulation.kills, simulation.back))
            life = following(plan, life, version, saved, frames[-1])
            reading = read_s(plan, life)
            try:
                start = next_start(plan, faults, now, simulation.under_way, reading)
            except NotBack as error:
                raise SimulationError(str(error)) from None
            start = min(start, until)  # with it a run ends that has no time left
            extra.note("recovery", -1, now, start, life.version)
            for rank, each in life.saved.items() if start < until else ():
                size = nbytes_of(each.state)
                extra.note("checkpoint", rank, start - reading, start, life.version, size, kind="read")
            if lives.in_vain(life):
                raise SimulationError(
                    f"it fails again and again before the next checkpoint, after version {life.version}: "
                    "give a smaller recovery.checkpoint.every, or a longer mtbf"
                )
            checkpoints.begin_with(life)
            life = replace(life, start=start)
        last = max(float(frame["end"].max()) for frame in frames if len(frame))
        faults.record(extra, min(simulation.environment.now, last))  # gradients may be known that end later
    return replace(
        result,
        records=recovered(plan, join([*frames, extra.frame()])),
        warnings=simulation.plan.warnings if len(frames) > 1 else result.warnings,
        utilisation=None,
    )
