"""A run in words and units, for people: on a terminal, in a notebook."""

from typing import TYPE_CHECKING, Any

from lockstep.analysis.words import NOTHING, aim, count, number, percent, size

if TYPE_CHECKING:
    from lockstep.analysis.result import Result

DONE = {"simulator": "predicted", "executor": "measured"}


def headline(result: "Result") -> str:
    """A run in one line."""
    m = result.metrics
    workers = count(m["workers"], "worker")
    return (
        f"<Result of {m['scenario']}, {DONE[result.engine]}: {m['strategy']}, {workers}, "
        f"{number(m['duration_s'], 's')}, {number(m['throughput'], 'samples/s')}>"
    )


def main_metrics(result: "Result") -> dict[str, str]:
    """The main metrics by name, in the order in which people read them; what there is not is left out."""
    from lockstep.analysis.breakdown import PARTS
    from lockstep.analysis.memory import told
    from lockstep.analysis.table import keys

    m = result.metrics
    stale = {key: number(value) for key, value in m["staleness"].items() if key != "histogram"}
    parts = dict(zip(PARTS, result.shares.mean(axis=1).tolist(), strict=True))
    for name in ("send", "update"):  # a real run does not know what it sends; updates may take no time
        if not parts[name]:
            del parts[name]
    rows = {
        "duration": number(m["duration_s"], "s"),
        "throughput": number(m["throughput"], "samples/s"),
        **(_losses(m, result.scenario.workload.batch_size) if "goodput" in m else {}),
        "speedup": f"{number(m['speedup'])} (efficiency {percent(m['efficiency'])})",
        "updates": f"{m['updates']:,} ({number(m['updates_per_s'])}/s)",
        "staleness": f"mean {stale['mean']}, median {stale['p50']}, max {stale['max']}",
        "workers' time": ", ".join(f"{name} {percent(part)}" for name, part in parts.items()),
        "bottleneck": m["bottleneck"] or NOTHING,
        "dropped": f"{m['dropped']:,} mini-batches" if m["dropped"] else NOTHING,
        "sent": f"{size(m['bytes_sent'])}, by all nodes",
        "memory": f"{size(m['memory_bytes'])} at most on a device"
        if told(keys(result.scenario) | m)
        else NOTHING,
        "cost": _cost(m),
        "held-out loss": number(m["loss"]),
        "accuracy": percent(m["accuracy"]),
        **{f"held-out {name}": number(value) for name, value in m.get("metrics", {}).items()},
    }
    rows = {name: value for name, value in rows.items() if NOTHING not in value}
    if m["target"] is not None:
        reached = aim(m.get("target_metric"), m["target"]).removesuffix(" accuracy")
        rows[f"time to {reached}"] = number(m["time_to_target_s"], "s", "not reached")
        if m.get("cost_to_target") is not None:
            rows[f"cost to {reached}"] = number(m["cost_to_target"], "USD")
    return rows


def _losses(m: dict[str, Any], batch_size: int) -> dict[str, str]:
    """Of a run with faults or checkpoints."""
    took = {"noticed after": m["time_to_detect_s"], "back after": m["time_to_recover_s"]}
    times = [f"{words} {number(seconds, 's')}" for words, seconds in took.items() if seconds is not None]
    computed = m["samples"] + m["lost_samples"] + m["dropped"] * batch_size
    lost = f" ({percent(m['lost_samples'] / computed)} of all computed)" if computed else ""
    written = f"{m['checkpoints']:,} in {number(m['checkpoint_s'], 's')}"
    return {
        "goodput": number(m["goodput"], "samples/s"),
        "lost work": f"{count(m['lost_samples'], 'sample')}{lost}",
        "failures": ", ".join([f"{m['failures']:,}", *times]),
        "availability": percent(m["availability"]),
        "checkpoints": written if m["checkpoints"] else NOTHING,
    }


def _cost(m: dict[str, Any]) -> str:
    if m.get("cost") is None:
        return NOTHING
    million = m["cost_of_million"]
    each = "" if million is None else f" ({number(million, 'USD')} a million samples)"
    return number(m["cost"], "USD") + each
