"""Cases of `lockstep verify` about staleness: conservation laws and a distribution."""

from math import log
from typing import Any

import numpy as np

from lockstep.analysis.result import Result
from lockstep.studies.verification import theory_rounds as theory
from lockstep.studies.verification.case import (
    Case,
    Outcome,
    constant,
    exact,
    exponential,
    grid,
    pareto,
    simulate,
    within,
)

N = 8
UPDATES = 8_000
NETWORK = {"bandwidth": "1 MB/s", "latency": "1 ms"}  # 4 ms for a message of 4,000 bytes
TIMES = {
    "constant": constant(0.02),
    "exponential": exponential(0.02),
    "pareto": pareto(0.02, 1.5),  # no variance
}  # s, of a gradient
SPEEDS = {
    "equal": [],
    "5:1": [{"worker": w, "slowdown": 5} for w in range(N // 2)],
    "all-different": [{"worker": w, "slowdown": 1 + w / 3} for w in range(N)],
}


def conserved(run: Result, expected: float) -> Outcome:
    """Mean staleness of a run in which every update makes as many gradients under way older by one.

    All gradients begin at version 0, so the staleness of those applied is all that the updates have made,
    less what those under way at the end have gathered. A worker's gradient under way was begun at or after
    the update that its last one is in, and so has gathered no more than there were updates since: the mean
    misses the law by at most the sum of these ÷ the gradients applied, whatever the compute times. `expected`
    is the mean by the law. Of several shards, the one that comes nearest to its bound.
    """
    updates, workers = run.records[run.records["event"] == "update"], run.scenario.cluster.workers
    found = []
    for _, shard in updates.groupby("node"):
        versions = int(shard["version"].max()) + 1
        last = shard.groupby("peer")["version"].max().reindex(range(workers), fill_value=0)
        gathered = float((versions - last).sum())
        found.append(within(gathered / len(shard), expected, float(shard["staleness"].mean())))
    return max(found, key=lambda outcome: outcome.error - outcome.tolerance)


def nobody_waits(
    strategy: dict[str, Any], gradients: int, time: str, speeds: str, servers: int = 1
) -> Outcome:
    """(n−1)/c with c gradients an update."""
    run = simulate(
        strategy, {"updates": UPDATES // gradients // servers}, workers=N, time=TIMES[time], servers=servers,
        network=NETWORK, stragglers=SPEEDS[speeds],
    )  # fmt: skip
    return conserved(run, theory.mean_staleness(N, gradients))


def k_async(k: int, time: str, speeds: str) -> Outcome:
    """n/k − 1 when finishers wait."""
    run = simulate(
        {"name": "k-async", "k": k}, {"updates": UPDATES // k}, workers=N, time=TIMES[time],
        network=NETWORK, stragglers=SPEEDS[speeds],
    )  # fmt: skip
    return conserved(run, theory.mean_staleness_k_async(N, k))


def none_at_all(strategy: dict[str, Any]) -> Outcome:
    """Barriers let no stale gradient through."""
    run = simulate(
        strategy, {"updates": 500}, workers=N, time=TIMES["pareto"], network=NETWORK,
        stragglers=SPEEDS["5:1"],
    )  # fmt: skip
    return exact(0.0, run.metrics["staleness"]["max"])


def geometric(workers: int) -> Outcome:
    """The largest difference of the two distribution functions, which is 0 in the long run.

    Dvoretzky–Kiefer–Wolfowitz: exceeded once in a million for independent draws; the draws of one loop depend
    on each other over about n updates, so they count for 1/n of their number.
    """
    updates = 40_000
    run = simulate("asynchronous", {"updates": updates}, workers=workers, time=exponential(1))
    found = run.records.loc[run.records["event"] == "update", "staleness"].to_numpy()
    counts = np.bincount(found)
    expected = theory.geometric(workers, np.arange(len(counts)))
    distance = float(np.abs((counts / updates - expected).cumsum()).max())
    return within(float(np.sqrt(log(2 / 1e-6) / (2 * updates / workers))), 0.0, distance)


def clock_gap(strategy: str, bound: int, time: str) -> Outcome:
    """The largest lead of a worker that begins a mini-batch over the slowest: s, and heavy tails reach it.

    A worker's clock is the number of its mini-batches whose gradients the server has applied.
    """
    run = simulate(
        {"name": strategy, "bound": bound}, {"steps": 400}, workers=N, time=TIMES[time], network=NETWORK,
        stragglers=SPEEDS["5:1"],
    )  # fmt: skip
    records = run.records
    begun = records[records["event"] == "gradient"].sort_values("start")
    applied = records[records["event"] == "update"].sort_values("end")
    clocks, largest, rows = [0] * N, 0, list(zip(applied["end"], applied["peer"], strict=True))[::-1]
    for start, clock in zip(begun["start"], begun["version"], strict=True):
        while rows and rows[-1][0] <= start:
            clocks[rows.pop()[1]] += 1
        largest = max(largest, int(clock) - min(clocks))
    return exact(bound, largest)


ASYNCHRONOUS = {"name": "asynchronous"}
CASES: list[Case] = [
    *grid(
        "staleness asynchronous {time}, speeds {speeds}, S={servers}",
        lambda **values: nobody_waits(ASYNCHRONOUS, 1, **values),
        time=list(TIMES), speeds=list(SPEEDS), servers=[1],
    ),
    *grid(
        "staleness asynchronous {time}, speeds {speeds}, S={servers}",
        lambda **values: nobody_waits(ASYNCHRONOUS, 1, **values),
        time=["pareto"], speeds=["5:1"], servers=[3],
    ),
    *grid(
        "staleness downpour-blocking {time}, speeds {speeds}",
        lambda **values: nobody_waits({"name": "downpour-blocking", "communication_window": 3}, 1, **values),
        time=["pareto"], speeds=["5:1"],
    ),
    *grid(
        "staleness k-batch-async k={k} {time}, speeds {speeds}",
        lambda k, **values: nobody_waits({"name": "k-batch-async", "k": k}, k, **values),
        k=[2, 3], time=["exponential", "pareto"], speeds=["5:1"],
    ),
    *grid(
        "staleness soft-sync n={n} {time}, speeds {speeds}",
        lambda n, **values: nobody_waits({"name": "soft-sync", "n": n}, N // n, **values),
        n=[1, 2, 3, N], time=["pareto"], speeds=["5:1"],
    ),
    *grid(
        "staleness k-async k={k} {time}, speeds {speeds}", k_async,
        k=[2, 4], time=["exponential", "pareto"], speeds=["5:1"],
    ),
    *grid("staleness none: synchronous", lambda: none_at_all({"name": "synchronous"})),
    *grid("staleness none: k-sync", lambda: none_at_all({"name": "k-sync", "k": 4})),
    *grid("staleness none: backup-workers", lambda: none_at_all({"name": "backup-workers", "backups": 2})),
    *grid("staleness geometric n={workers}", geometric, workers=[2, 5, 20]),
    *grid(
        "staleness {strategy} clock gap s={bound} {time}", clock_gap,
        strategy=["ssp", "ssp-blocking"], bound=[0, 2, 5], time=["pareto"],
    ),
]  # fmt: skip
