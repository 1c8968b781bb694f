"""Claims about how stale gradients are. Nothing need be learned for it."""

import lockstep
from lockstep.scenarios import Scenario
from lockstep.studies.reproductions.claim import Check, Claim, Runs

WORKERS = (2, 8, 32)
TIMES = {
    "lognormal": {"distribution": "lognormal", "mean": "100 ms", "cv": 0.2},
    "exponential": {"distribution": "exponential", "mean": "100 ms"},
    "Pareto": {"distribution": "pareto", "mean": "100 ms", "shape": 2},
}  # of a gradient


def of_gradients(scenario: Scenario) -> dict[str, float]:
    """Mean staleness ÷ (workers − 1), and the percentage of gradients staler than twice the workers."""
    staleness = lockstep.simulate(scenario).metrics["staleness"]
    others, counts = scenario.cluster.workers - 1, staleness["histogram"]
    beyond = sum(count for stale, count in counts.items() if int(stale) > 2 * (others + 1))
    return {"relative": staleness["mean"] / others, "beyond": 100 * beyond / sum(counts.values())}


def _mean(runs: Runs) -> list[Check]:
    return [
        Check(f"mean ÷ (n − 1), n = {n}, {time}", runs.mean(f"{n} workers, {time}", "relative"), 0.99, 1.01)
        for n in WORKERS
        for time in TIMES
    ]


def _bound(runs: Runs) -> list[Check]:
    return [
        Check(f"gradients staler than 2n, {time}, %", runs.mean(time, "beyond"), below=0.01) for time in TIMES
    ]


CLAIMS = [
    Claim(
        name="asynchronous-staleness",
        statement="Asynchronous SGD has a mean staleness of the number of (other) workers.",
        source="Gupta, Zhang and Wang 2016 (Rudra)",
        published="about n for n workers; n − 1 by conservation",
        variants={
            f"{n} workers, {time}": {"cluster.workers": n, "cluster.compute.time": TIMES[time]}
            for n in WORKERS
            for time in TIMES
        },
        measure=of_gradients,
        checks=_mean,
    ),
    Claim(
        name="staleness-bound",
        statement="No gradient of asynchronous SGD is more than 2n updates old.",
        source="Gupta, Zhang and Wang 2016 (Rudra)",
        published="'never above 2n', 30 workers",
        variants={time: {"cluster.compute.time": TIMES[time]} for time in TIMES},
        measure=of_gradients,
        checks=_bound,
    ),
]
