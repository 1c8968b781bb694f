"""Cases of `lockstep verify` about failures: renewal processes, and the periods of checkpoints.

Lives are exponential with mean Θ. A period of s seconds, of work and the checkpoint after it, is done when it
has gone through without a failure; each failure costs the time until it, and R until the job goes on. So it
takes (e^{s/Θ} − 1)·(Θ + R) on average (Daly 2006, "A higher order estimate of the optimum checkpoint interval
for restart dumps", eq. 13, where nothing fails during a restart).
"""

from math import exp, expm1, sqrt
from typing import Any

import numpy as np

from lockstep import Result
from lockstep.analysis.losses import computed
from lockstep.studies.verification.case import (
    Array,
    Outcome,
    constant,
    estimate,
    exact,
    exponential,
    grid,
    simulate,
)

STEP = 1.0  # s, of a gradient
MTBF = 400.0  # s, of the job
COST = 2.0  # s, of a checkpoint
REPAIR = 10.0  # s
PERIODS = 300
BATCH = 32  # samples, as of any workload


def young(mtbf: float, cost: float) -> float:
    """The work between two checkpoints that loses least, s: √(2CΘ) (Young 1974)."""
    return sqrt(2 * cost * mtbf)


def daly(mtbf: float, cost: float) -> float:
    """As `young`, to a higher order (Daly 2006, eq. 37)."""
    root = sqrt(cost / (2 * mtbf))
    return young(mtbf, cost) * (1 + root / 3 + root**2 / 9) - cost if cost < 2 * mtbf else mtbf


def seconds_a_period(work: float, cost: float, mtbf: float, repair: float) -> float:
    """Expected seconds from one checkpoint to the next."""
    return expm1((work + cost) / mtbf) * (mtbf + repair)


def run(workers: int, every: int, fault: dict[str, Any], detect: str) -> Result:
    """Workers that compute together, whose messages take no time, until so many checkpoints are written."""
    return simulate(
        "synchronous",
        {"updates": every * PERIODS + 1},
        workers=workers,
        time=constant(STEP),
        faults=[fault],
        detect=detect,
        storage={"write": f"{4000 / COST} B/s"},
        recovery={"checkpoint": {"every": f"{every} updates"}, "on_failure": "restart"},
    )


def between_checkpoints(result: Result) -> Array:
    """Seconds from each checkpoint to the next one, shape (checkpoints,)."""
    rows = result.records[(result.records["event"] == "checkpoint") & (result.records["kind"] == "write")]
    return np.asarray(np.diff([0.0, *rows["end"]]))


def one_machine(every: int) -> Outcome:
    """A renewal process: work, checkpoint, failures that cost a repair each."""
    fault = {"mtbf": f"{MTBF} s", "back_after": f"{REPAIR} s"}
    theory = seconds_a_period(every * STEP, COST, MTBF, REPAIR)
    return estimate(theory, between_checkpoints(run(1, every, fault, "1 s")))


def many_machines(workers: int) -> Outcome:
    """Goodput of n machines that are replaced at once: together they fail every Θ/n."""
    every, detect = 20, 5.0
    result = run(workers, every, {"mtbf": f"{workers * MTBF} s", "back_after": "0 s"}, f"{detect} s")
    return estimate(seconds_a_period(every * STEP, COST, MTBF, detect), between_checkpoints(result))


def best_period(rule: str) -> Outcome:
    """At the rule's period a second of work takes no longer than at any other, by the closed form."""
    every = round(young(MTBF, COST) if rule == "Young" else daly(MTBF, COST))
    least = min(seconds_a_period(work, COST, MTBF, REPAIR) / work for work in range(1, 400))
    fault = {"mtbf": f"{MTBF} s", "back_after": f"{REPAIR} s"}
    return estimate(least, between_checkpoints(run(1, every, fault, "1 s")) / (every * STEP), at_most=True)


def asynchronous(workers: int) -> Outcome:
    """Who fails loses the gradient that it was at: 1/(e^{h/Θ} − 1) are done in a life; then a repair."""
    mtbf, window = 20.0, 50.0
    result = simulate(
        "asynchronous",
        {"time": f"{200 * window} s"},
        workers=workers,
        time=constant(STEP),
        faults=[{"mtbf": f"{mtbf} s", "back_after": f"{REPAIR} s"}],
        detect="1 s",
        recovery={"on_failure": "continue"},
    )
    times = result.records.loc[result.records["event"] == "update", "end"].to_numpy()
    counts, _ = np.histogram(times, bins=np.arange(1, 201) * window)
    return estimate(workers / (expm1(STEP / mtbf) * (mtbf + REPAIR)), counts / window)


def availability(workers: int) -> Outcome:
    """MTBF ÷ (MTBF + repair), and what is left of the beginning, when all are there."""
    mtbf, until = 40.0, 1000.0
    _, there = _up_and_down(workers, mtbf, until)
    steady, settles = mtbf / (mtbf + REPAIR), mtbf * REPAIR / (mtbf + REPAIR)
    theory = steady + (1 - steady) * settles / until * (1 - exp(-until / settles))
    return estimate(theory, there)


def mean_availability(workers: int) -> Outcome:
    """The metric is the mean of all processes; the server does not fail."""
    result, there = _up_and_down(workers, 40.0, 1000.0)
    return exact((float(there.sum()) + 1) / (workers + 1), result.metrics["availability"])


def _up_and_down(workers: int, mtbf: float, until: float) -> tuple[Result, Array]:
    """A run of so many seconds in which workers fail, and the share of them that each is there."""
    result = simulate(
        "asynchronous",
        {"time": f"{until} s"},
        workers=workers,
        time=constant(10 * STEP),
        faults=[{"mtbf": f"{mtbf} s", "back_after": {"distribution": "exponential", "mean": f"{REPAIR} s"}}],
        recovery={"on_failure": "continue"},
    )
    rows = result.records[result.records["event"] == "fault"]
    down = (rows["end"] - rows["start"]).groupby(rows["node"]).sum().reindex(range(workers), fill_value=0.0)
    return result, 1 - down.to_numpy() / until


def crash(workers: int) -> Outcome:
    """One crash: rounds since the last checkpoint again, and the time until the worker is back."""
    return exact(65 + 50 * STEP, _one_crash(workers).metrics["duration_s"])


def metric_of_a_crash(metric: str) -> Outcome:
    """Of the same run with two workers, and a server."""
    theory = {
        "goodput": 100 * 2 * BATCH / 115,
        "availability": 1 - 7.5 / (3 * 115),
        "time_to_detect_s": 2.0,  # by default
        "time_to_recover_s": 7.5,
    }
    return exact(theory[metric], _one_crash(2).metrics[metric])


def _one_crash(workers: int) -> Result:
    return simulate(
        "synchronous",
        {"updates": 100},
        workers=workers,
        time=constant(STEP),
        faults=[{"worker": 0, "at": "57.5 s", "crash": True, "back_after": "7.5 s"}],
        recovery={"checkpoint": {"every": "10 updates"}, "on_failure": "restart"},
    )


def lost_by_a_crash(workers: int) -> Outcome:
    """Seven rounds since the last checkpoint; of the eighth what the others compute until it is noticed."""
    lost = _one_crash(workers).metrics["lost_samples"] / BATCH
    return exact(7 * workers + workers - 1, lost)


def samples(strategy: str) -> Outcome:
    """Each gradient that is computed to its end is applied, dropped or lost, and never two of these."""
    on = "restart" if strategy == "synchronous" else "continue"
    result = simulate(
        strategy,
        {"time": "500 s"},
        workers=4,
        time=exponential(STEP),
        faults=[{"mtbf": "60 s", "back_after": f"{REPAIR} s"}],
        detect="1 s",
        recovery={"checkpoint": {"every": "10 updates"}, "on_failure": on},
    )
    m = result.metrics
    return exact(computed(result), (m["samples"] + m["lost_samples"]) / BATCH + m["dropped"])


CASES = [
    *grid("failures: a period of {every} steps", one_machine, every=[10, 40, 100]),
    *grid("failures: a period of {workers} machines", many_machines, workers=[1, 16]),
    *grid("failures: {rule}'s period", best_period, rule=["Young", "Daly"]),
    *grid("failures: asynchronous, {workers} machines", asynchronous, workers=[4]),
    *grid("failures: availability of {workers} machines", availability, workers=[100]),
    *grid("failures: the availability of a run with {workers} machines", mean_availability, workers=[100]),
    *grid("failures: one crash, {workers} workers", crash, workers=[1, 8]),
    *grid(
        "failures: {metric} of one crash",
        metric_of_a_crash,
        metric=["goodput", "availability", "time_to_detect_s", "time_to_recover_s"],
    ),
    *grid("failures: mini-batches that a crash loses, {workers} workers", lost_by_a_crash, workers=[1, 8]),
    *grid(
        "failures: applied, dropped or lost, {strategy}",
        samples,
        strategy=["synchronous", "backup-workers", "asynchronous", "all-reduce", "gossip"],
    ),
]
