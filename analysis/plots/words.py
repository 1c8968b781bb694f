"""Keys and metrics of the table in words, with units that suit their size."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

# Metric: its words and its unit; metrics without one are plain numbers or fractions.
METRICS: dict[str, tuple[str, str]] = {
    "throughput": ("throughput", "samples/s"),
    "speedup": ("speedup", "× one worker"),
    "efficiency": ("efficiency", "speedup ÷ workers"),
    "duration_s": ("duration", "s"),
    "time_to_target_s": ("time to target", "s"),
    "hosts": ("hosts", "number"),
    "million_s": ("time for a million samples", "s"),
    "cost": ("cost", "USD"),
    "cost_of_million": ("cost of a million samples", "USD"),
    "cost_to_target": ("cost to target", "USD"),
    "machine_time": ("machine time: time × hosts", "host-s"),
    "relative": ("relative", ""),
    "updates": ("updates", "number"),
    "updates_per_s": ("update rate", "updates/s"),
    "samples": ("samples applied", "number"),
    "dropped": ("dropped mini-batches", "number"),
    "bytes_sent": ("data sent", "B"),
    "staleness.mean": ("mean staleness", "versions"),
    "staleness.p50": ("median staleness", "versions"),
    "staleness.p99": ("99th percentile of staleness", "versions"),
    "staleness.max": ("maximum staleness", "versions"),
    "breakdown.compute": ("time computing", "fraction"),
    "breakdown.update": ("time for own updates", "fraction"),
    "breakdown.network": ("time in the network", "fraction"),
    "breakdown.wait": ("time waiting for others", "fraction"),
    "loss": ("held-out loss", ""),
    "accuracy": ("held-out accuracy", "fraction"),
}
MORE_IS_BETTER = frozenset({"throughput", "speedup", "efficiency", "accuracy", "goodput"})
LESS_IS_BETTER = frozenset({
    *("time_to_target_s", "duration_s", "million_s", "machine_time", "loss", "bytes_sent", "memory_bytes"),
    *("cost", "cost_of_million", "cost_to_target"),
})  # fmt: skip
# The last words of scenario keys that are quantities, by base unit (as `scenarios.units` has them).
_QUANTITIES = {
    "B/s": ("bandwidth", "server_bandwidth", "line_rate", "uplink", "link", "memory_bandwidth",
            "encode", "decode", "write", "read"),
    "s": ("latency", "message_overhead", "receive_overhead", "apply_overhead", "pass_overhead",
          "exchange_overhead", "deviation", "time",
          "period", "busy", "offset", "every", "last", "on", "off", "at", "repeat", "mean", "value", "low",
          "high", "shift", "per_message", "per_byte", "per_large_message", "cold", "cold_after", "gradient",
          "overheads", "update", "idle",
          "mtbf", "back_after", "exits_after", "hang_for", "down_for", "notice", "detect"),
    "B": ("activation", "memory", "size", "train", "first", "large", "queue", "window", "initial_window"),
    "FLOP/s": ("peak",),
    "USD/h": ("price",),
}  # fmt: skip
_UNIT_OF = {word: unit for unit, words in _QUANTITIES.items() for word in words}
_SECTIONS = ("cluster.", "workload.", "parallelism.", "strategy.", "stop.", "recovery.")
_WORDS = {
    "engine": "engine",
    "cluster.preset": "cluster",
    "cluster.profile": "profile",
    "workload.preset": "workload",
    "cluster.workers": "workers",
    "cluster.servers.count": "servers",
    "parallelism.pipeline": "stages",
    "parallelism.micro_batches": "micro-batches",
    "parallelism.tensor": "parts of each layer",
    "strategy.name": "strategy",
    "strategy.bound": "staleness bound",
    "cluster.compute.time.mean": "mean time of a gradient",
    "cluster.compute.time.value": "time of a gradient",
    "cluster.compute.time.cv": "variation of compute time (CV)",
    "cluster.network.bandwidth": "bandwidth",
    "cluster.network.latency": "latency",
    "stop.time": "time limit",
}
_PREFIXES = {1e-9: "n", 1e-6: "µ", 1e-3: "m", 1.0: "", 1e3: "k", 1e6: "M", 1e9: "G", 1e12: "T", 1e15: "P"}


class Scale(NamedTuple):
    """How numbers of the table are shown: times `factor`, in `unit`."""

    factor: float
    unit: str


def is_key(column: str) -> bool:
    """Whether a column of the table is a key of the scenario, not a metric of the run."""
    return column.startswith(_SECTIONS) or column in ("seed", "name", "engine")


def words(column: str) -> str:
    """A key or a metric in words, without unit."""
    if column in METRICS:
        return METRICS[column][0]
    *_, last = column.split(".")
    return _WORDS.get(column, last.replace("_", " "))


def scale(column: str, values: Iterable[float]) -> Scale:
    """The unit in which values of a column are best read: ms for 0.02 s, Gbit/s for 1.25e9 B/s."""
    unit = METRICS[column][1] if column in METRICS else _UNIT_OF.get(column.split(".")[-1], "")
    if column.startswith(("strategy.", "workload.")) and column != "workload.activation":
        unit = ""
    host = "host-" * unit.startswith("host-")
    unit = unit.removeprefix("host-")
    known = np.abs(np.fromiter(values, float))
    known = known[np.isfinite(known) & (known > 0)]
    factor = 1.0
    if unit == "B/s":  # scenarios and switches say bits
        factor, unit = 8.0, "bit/s"
    if unit not in ("s", "B", "bit/s", "FLOP/s") or not len(known):
        return Scale(1.0, host + unit)
    typical = float(np.median(known)) * factor
    if unit == "s" and typical >= 0.1:
        return next(Scale(1 / s, host + name) for s, name in ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
                    if typical >= 3 * s or s == 1.0)  # fmt: skip
    prefix = max((p for p in _PREFIXES if p <= typical * 1.0000001), default=min(_PREFIXES))
    return Scale(factor / prefix, host + _PREFIXES[prefix] + unit)


def label(column: str, scale: Scale) -> str:
    """What an axis says: "bandwidth (Gbit/s)"."""
    name = words(column)
    if column == "cluster.workers":
        return "number of workers"
    return f"{name} ({scale.unit})" if scale.unit else name
