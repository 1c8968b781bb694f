"""The figures of a run, computed from its records alone: the same code for both engines."""

from typing import Any

import numpy as np
import pandas as pd

from analysis.records import Result


def metrics(result: Result) -> dict[str, Any]:
    """What `--json` prints. Times in seconds, throughput in samples a second.

    duration: first mini-batch started → last update applied. throughput: samples whose gradients were
    applied ÷ duration. speedup: throughput ÷ that of one worker of speed 1 with no network.
    """
    scenario, records = result.scenario, result.records
    events = dict(iter(records.groupby("event", observed=False)))
    gradients, updates, curve = events["gradient"], events["update"], result.curve
    workers, batch_size = scenario.cluster.workers, scenario.workload.batch_size

    start = float(gradients["start"].min()) if len(gradients) else 0.0
    end = float(updates["end"].max()) if len(updates) else start
    duration = end - start
    applied_updates, applied_batches = _applied(result, updates)
    samples = applied_batches * batch_size
    throughput = samples / duration if duration > 0 else None
    single = batch_size / result.gradient_s if result.gradient_s > 0 else None
    speedup = throughput / single if throughput is not None and single is not None else None
    target = scenario.stop.target_accuracy
    reached = curve.loc[curve["accuracy"] >= target, "time"] if target is not None else curve["time"][:0]
    loss = curve["loss"].iloc[-1] if len(curve) else None
    accuracy = curve["accuracy"].iloc[-1] if len(curve) else None
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
        "throughput": throughput,
        "dropped": 0,
        "staleness": staleness(updates["staleness"].to_numpy()),
        "speedup": speedup,
        "efficiency": None if speedup is None else speedup / workers,
        "bytes_sent": int(records["nbytes"].sum()),
        "breakdown": breakdown(events, workers, start, end),
        "loss": _number(loss),
        "accuracy": _number(accuracy),
        "target": target,
        "time_to_target_s": float(reached.iloc[0]) if len(reached) else None,
        "parameters_sha256": _sha256(result.parameters),
        "warnings": [*result.warnings, *_diverged(loss)],
    }


def _applied(result: Result, updates: pd.DataFrame) -> tuple[int, int]:
    """Updates that every holder has made, and mini-batches whose gradients are in all parameters."""
    versions = updates.groupby("node")["version"].max().reindex(list(result.holders), fill_value=-1) + 1
    batches = updates.groupby(["peer", "node"])["batches"].sum()
    if result.holders[0] >= result.scenario.cluster.workers:  # shards: applied when the last shard has it
        batches = (
            batches.unstack(fill_value=0).reindex(columns=list(result.holders), fill_value=0).min(axis=1)
        )
    return int(versions.min()), int(batches.sum())


def staleness(values: np.ndarray) -> dict[str, Any]:
    """Mean, quantiles and histogram of the staleness of applied gradients (versions)."""
    if not len(values):
        return {"mean": None, "p50": None, "p99": None, "max": None, "histogram": {}}
    distinct, counts = np.unique(values, return_counts=True)
    return {
        "mean": float(values.mean()),
        "p50": int(np.quantile(values, 0.5, method="inverted_cdf")),
        "p99": int(np.quantile(values, 0.99, method="inverted_cdf")),
        "max": int(values.max()),
        "histogram": {str(v): int(count) for v, count in zip(distinct, counts, strict=True)},
    }


def breakdown(events: dict[Any, pd.DataFrame], workers: int, start: float, end: float) -> dict[str, float]:
    """Where the workers' time went, as fractions of workers × duration.

    compute: computing a gradient. network: not computing while a message to or from the worker is under
    way, or in a collective that everybody has entered. wait: the rest, which is waiting for others.
    """
    messages, collectives = events["message"], events["collective"]
    begun = collectives.groupby("version")["start"].transform("max")
    network = [
        (messages["node"], messages["start"], messages["end"]),
        (messages["peer"], messages["start"], messages["end"]),
        (collectives["node"], begun, collectives["end"]),
    ]
    gradients = events["gradient"]
    busy = [(gradients["node"], gradients["start"], gradients["end"], True)]
    busy += [(*interval, False) for interval in network]
    node = np.concatenate([np.repeat(nodes.to_numpy(), 2) for nodes, *_ in busy])
    time = np.concatenate([np.column_stack([a, b]).ravel() for _, a, b, _ in busy])
    change = np.concatenate([np.tile([1, -1], len(nodes)) for nodes, *_ in busy])
    computing = np.concatenate([np.full(2 * len(nodes), flag) for nodes, _, _, flag in busy])

    keep = node < workers
    node, change, computing = node[keep], change[keep], computing[keep]
    time = np.clip(time[keep], start, end)
    order = np.lexsort((time, node))
    node, time = node[order], time[order]
    change, computing = change[order], computing[order]
    # How many activities are open after each change; back to 0 at the end of every node.
    computes = np.cumsum(np.where(computing, change, 0))
    transfers = np.cumsum(np.where(computing, 0, change))
    lasts = np.where(np.diff(node, append=-1) == 0, np.diff(time, append=0.0), 0.0)
    whole = workers * (end - start)
    if whole <= 0:
        return {"compute": 0.0, "network": 0.0, "wait": 0.0}
    compute = min(1.0, float(lasts[computes > 0].sum()) / whole)
    network_s = float(lasts[(computes <= 0) & (transfers > 0)].sum())
    waits_for_network = min(1 - compute, network_s / whole)
    return {"compute": compute, "network": waits_for_network, "wait": 1 - compute - waits_for_network}


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def _diverged(loss: float | None) -> list[str]:
    if loss is None or np.isfinite(loss):
        return []
    return ["the held-out loss is not finite: training diverged; try a smaller strategy.learning_rate"]


def _sha256(parameters: np.ndarray | None) -> str | None:
    import hashlib

    return None if parameters is None else hashlib.sha256(parameters.tobytes()).hexdigest()
