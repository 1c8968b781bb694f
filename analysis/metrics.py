"""The metrics of a run, computed from its records alone: the same code for both engines."""

from collections import Counter
from typing import Any

import numpy as np

from lockstep.analysis import by_rank
from lockstep.analysis.bottleneck_words import sentence
from lockstep.analysis.breakdown import PARTS
from lockstep.analysis.cost import cost, usd_per_hour
from lockstep.analysis.curve import curve
from lockstep.analysis.given import given
from lockstep.analysis.median import median
from lockstep.analysis.memory import most
from lockstep.analysis.records import values
from lockstep.analysis.result import Result
from lockstep.analysis.utilisation import utilisation
from lockstep.strategies.idle import never_acted

_OTHERS = 4  # columns of a curve that are there of every task
Updates = dict[str, np.ndarray]  # columns of their records


def metrics(result: Result) -> dict[str, Any]:
    """What `--json` prints. Times in seconds, throughput in samples a second.

    duration: first mini-batch started → last update applied. throughput: samples whose gradients were
    applied ÷ duration. speedup: throughput ÷ that of one worker of speed 1 with no network.
    """
    scenario, evaluated = result.scenario, curve(result)
    workers, batch_size = scenario.cluster.workers, scenario.workload.batch_size
    updates = _updates(result)
    start, end = result.span
    duration = end - start
    applied_updates, applied_batches = _applied(result, updates)
    samples = applied_batches * batch_size
    dropped = _dropped(result)
    lost = _losses(result, applied_batches, dropped) if scenario.with_faults else {}
    undone = lost.pop("undone", 0) * batch_size
    rate = (samples + undone) / duration if duration > 0 else None
    single = batch_size / result.gradient_s if result.gradient_s > 0 else None
    speedup = rate / single if rate is not None and single is not None else None
    goal = scenario.stop.goal
    to_target = None
    if goal is not None and goal.metric in evaluated:
        scores = zip(evaluated["time"].tolist(), evaluated[goal.metric].tolist(), strict=True)
        to_target = next((time for time, score in scores if goal.reached(score)), None)
    last = {name: float(column[-1]) for name, column in evaluated.items() if len(column)}
    loss = last.get("loss")
    return {
        "schema": 1,
        "engine": result.engine,
        "scenario": scenario.name,
        "seed": scenario.seed,
        "workers": workers,
        "strategy": scenario.strategy.name,
        "duration_s": duration,
        "updates": applied_updates,
        "updates_per_s": applied_updates / duration if duration > 0 else None,
        "samples": samples,
        "throughput": rate,
        "dropped": dropped,
        **lost,
        "staleness": staleness(updates["staleness"][of_models(updates["batches"])]),
        "speedup": speedup,
        "efficiency": None if speedup is None else speedup / workers,
        "bytes_sent": _bytes_sent(result),
        "memory_bytes": most(result),
        "breakdown": _in_four(result.shares),
        "breakdown_by_worker": dict(zip(PARTS, result.shares.tolist(), strict=True)),
        "utilisation": utilisation(result),
        "bottleneck": sentence(result.bottleneck),
        "loss": _number(loss),
        "accuracy": _number(last.get("accuracy")),
        "metrics": {name: _number(last[name]) for name in [*evaluated][_OTHERS:]},
        "target": goal.value if goal else None,
        "target_metric": goal.metric if goal else None,
        "time_to_target_s": to_target,
        **cost(
            usd_per_hour(scenario.cluster, result.plan.has_servers),
            duration,
            lost.get("goodput", rate),
            to_target,
        ),
        "parameters_sha256": _sha256(result.parameters),
        "disturbed": result.disturbed,
        "attempts": result.attempts,
        "warnings": [
            *result.warnings,
            *result.disturbances,
            *result.overruns,
            *_diverged(evaluated),
            *_short(result, updates),
            *_idle(result),
            *_never_acted(result, duration, applied_updates),
        ],
    }


def throughput(result: Result) -> float | None:
    """That of `metrics` alone, which takes a fraction of the time; None if nothing was applied."""
    start, end = result.span
    _, batches = _applied(result, _updates(result))
    return batches * result.scenario.workload.batch_size / (end - start) if end > start else None


def _updates(result: Result) -> Updates:
    return values(given(result, "records"), "update", ["node", "peer", "version", "staleness", "batches"])


def _bytes_sent(result: Result) -> int:
    """Of messages and native collectives."""
    records = given(result, "records")
    return sum(_total(values(records, event, ["nbytes"])["nbytes"]) for event in ("message", "collective"))


def _total(nbytes: np.ndarray) -> int:
    """The sum of whole numbers, which may be more than fits in 64 bits."""
    return (int((nbytes >> 32).sum()) << 32) + int((nbytes & 0xFFFFFFFF).sum())


def _applied(result: Result, updates: Updates) -> tuple[int, int]:
    """Updates that every owner has made, and mini-batches whose gradients are in all parameters."""
    plan = result.plan
    node, peer, version, batches = (updates[name] for name in ("node", "peer", "version", "batches"))
    owners = np.array(plan.owners.ranks)
    size = max(owners.max(), node.max(initial=0)) + 1
    latest = by_rank.largest(node, version, np.full(size, -1))
    applied: list[dict[int, int]] = []
    for group in plan.groups:  # applied when the last slice has it
        ranks = np.array(group.owners.ranks)
        numbers, shards = np.unique([plan.roles[rank].shard for rank in ranks.tolist()], return_inverse=True)
        shard_of = np.full(size, -1)
        shard_of[ranks] = shards
        shard = shard_of[node]
        its = np.flatnonzero(shard >= 0)
        workers, row = by_rank.present(peer[its])
        # applied when the last shard has it, wherever there is a copy of that
        of_shards = np.bincount(row * len(numbers) + shard[its], batches[its], len(workers) * len(numbers))
        total = of_shards.reshape(-1, len(numbers)).min(axis=1)
        replicas = [plan.replica(worker) for worker in workers.tolist()]
        applied.append(dict(zip(replicas, map(int, total.tolist()), strict=True)))
    everyone = {replica for each in applied for replica in each}
    return int(latest[owners].min()) + 1, sum(min(each.get(one, 0) for each in applied) for one in everyone)


def staleness(values: np.ndarray) -> dict[str, Any]:
    """Mean, quantiles and histogram of the staleness of applied gradients, or merged models (versions)."""
    if not len(values):
        return {"mean": None, "p50": None, "p99": None, "max": None, "histogram": {}}
    distinct, counts = _counted(values)
    until = np.cumsum(counts)
    p50, p99 = distinct[np.searchsorted(until, np.ceil(until[-1] * np.array([0.5, 0.99])))].tolist()
    return {
        "mean": float(values.mean()),
        "p50": p50,
        "p99": p99,
        "max": int(values.max()),
        "histogram": {str(v): count for v, count in zip(distinct.tolist(), counts.tolist(), strict=True)},
    }


def _counted(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ones of whole numbers, ascending, and how often each is there."""
    least, most = int(values.min()), int(values.max())
    if most - least > 4 * len(values):  # to count them takes memory for all that lie between
        return np.unique(values, return_counts=True)
    counts = np.bincount(values - least)
    there = np.flatnonzero(counts)
    return there + least, counts[there]


def of_models(batches: np.ndarray) -> np.ndarray:
    """Which updates are by models of others, which bring no gradient; where there are none, all of them."""
    models: np.ndarray = batches == 0
    return models if models.any() else ~models


def _in_four(shares: np.ndarray) -> dict[str, float]:
    """The mean worker's breakdown, sending and waiting for the network taken together."""
    compute, update, send, network, wait = shares.mean(axis=1).tolist()
    return {"compute": compute, "update": update, "network": send + network, "wait": wait}


def _losses(result: Result, useful: int, dropped: int) -> dict[str, Any]:
    from lockstep.analysis.losses import losses  # which takes pandas

    return losses(result, useful, dropped)


def _dropped(result: Result) -> int:
    """Mini-batches whose gradients were thrown away: of each replica the most that any owner dropped."""
    drops = values(given(result, "records"), "drop", ["node", "peer", "batches"])
    dropped = Counter[tuple[int, int]]()  # by replica and owner
    for owner, worker, batches in zip(*(column.tolist() for column in drops.values()), strict=True):
        dropped[result.plan.replica(worker), owner] += batches
    most_of = dict[int, int]()
    for (replica, _), batches in dropped.items():
        most_of[replica] = max(batches, most_of.get(replica, 0))
    return sum(most_of.values())


def _short(result: Result, updates: Updates) -> list[str]:
    """A warning about a run that was over before its staleness could become what it is in the long run.

    All of the first pushes of n workers were computed from version 0, so that their mean staleness is only
    (n − 1)/2; with k pushes a worker the mean of the run is (1 − 1/(2k)) times that of a long one.
    """
    pushes = len(updates["node"]) / len(result.plan.owners.ranks) / result.plan.replicas
    merged = (updates["batches"] == 0).any()
    if pushes >= 3 or merged or not (updates["staleness"] > 0).any():
        return []
    return [
        f"a short run: {pushes:.1f} pushes a worker were applied on average; with fewer than 3 the start, "
        "when staleness still grows, makes its mean a sixth too low or more: raise a bound in stop"
    ]


def _idle(result: Result) -> list[str]:
    """A warning if most workers had made their steps long before the slowest: the rest is its tail.

    Nobody waited for it, but throughput and duration say so: they are those of the slowest worker's steps.
    """
    steps = result.scenario.stop.steps
    gradients = values(given(result, "records"), "gradient", ["node", "end"])
    made = np.bincount(gradients["node"])
    ends = by_rank.largest(gradients["node"], gradients["end"], np.full(len(made), -np.inf))
    last = ends[made > 0] - result.span[0]
    if steps is None or len(last) < 2 or median(last) >= 0.75 * last.max():
        return []
    if made.max() > steps:  # all workers' steps are one budget
        return []
    return [
        f"half of the workers had made their stop.steps in {median(last) / last.max():.0%} of the time "
        "that the slowest took, and idled: throughput is that of the slowest; to compare with strategies "
        "that wait, bound by stop.time or stop.updates"
    ]


def _never_acted(result: Result, duration_s: float, updates: int) -> list[str]:
    """Warnings about parts of the strategy that the run was too short for."""
    steps = np.bincount(values(given(result, "records"), "gradient", ["node"])["node"])
    if not len(steps):
        return []
    made = {"mini-batches": float(steps.max()), "seconds": duration_s, "updates": float(updates)}
    return never_acted(result.plan.strategy, result.scenario.strategy.parameters, made)


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def _diverged(evaluated: Updates) -> list[str]:
    losses = evaluated["loss"]
    if not len(losses) or np.isfinite(losses[-1]):
        return []
    what = "the held-out loss is not finite"
    if evaluated["version"][0] == 0 and not np.isfinite(losses[0]):
        return [
            f"{what}, before any update: look for nan in the held-out data, the first parameters or the loss"
        ]
    return [f"{what}: training diverged; try a smaller strategy.learning_rate"]


def _sha256(parameters: np.ndarray | None) -> str | None:
    import hashlib

    return None if parameters is None else hashlib.sha256(parameters.tobytes()).hexdigest()
