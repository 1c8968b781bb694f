"""What the suite keeps of a run, measured or predicted alike: a flat row of a table."""

from typing import Any

from lockstep.analysis.records import of
from lockstep.analysis.result import Result
from lockstep.analysis.utilisation import busy_resources

Digest = dict[str, Any]
_PARTS = ("compute", "network", "wait")  # the committed measurements know no own updates


def digest(result: Result) -> Digest:
    """Plain numbers, strings and lists of numbers. Times in s, throughput in samples/s.

    step_time_s: mean time from the beginning of a gradient to that of the same worker's next. staleness,
    staleness_count: the histogram. busiest_link, utilisation, stretch (how many times as long as alone a byte
    is under way): None in a real run, which does not know.
    """
    m = result.metrics
    histogram = {int(value): count for value, count in m["staleness"]["histogram"].items()}
    link, share = _busiest_link(result)
    curve = result.curve
    return {
        "throughput": m["throughput"],
        "duration_s": m["duration_s"],
        "samples": m["samples"],
        "updates": m["updates"],
        "dropped": m["dropped"],
        "step_time_s": _step_time_s(result),
        "staleness_mean": m["staleness"]["mean"],
        "staleness": list(histogram),
        "staleness_count": list(histogram.values()),
        **{part: m["breakdown"][part] for part in _PARTS},
        "bottleneck": m["bottleneck"],
        "busiest_link": link,
        "utilisation": share,
        "stretch": _stretch(result),
        "curve_s": curve["time"].tolist(),
        "curve_loss": curve["loss"].tolist(),
        "curve_accuracy": curve["accuracy"].tolist(),
        "warnings": list(m["warnings"]),
    }


def _busiest_link(result: Result) -> tuple[str | None, float | None]:
    links = {id: share for id, share in busy_resources(result).items() if id.kind != "processor"}
    if not links:
        return None, None
    busiest = max(links, key=lambda each: links[each])
    return busiest.name, links[busiest]


def _stretch(result: Result) -> float | None:
    """The time of all messages, relative to their time on an idle network.

    What a worker sends at one instant, and all shards' parts of an answer, share its card even then.
    """
    network, workers = result.scenario.cluster.network, result.scenario.cluster.workers
    if result.engine != "simulator" or network.bandwidth is None:
        return None
    messages = of(result.records, "message", ["node", "start", "end", "nbytes"])
    messages = messages[messages["nbytes"] > 0]
    at_once = messages.groupby(["node", "start"])["nbytes"].transform("sum")
    shards = len(result.plan.groups[0].owners.ranks)
    shared = at_once.where(messages["node"] < workers, messages["nbytes"] * shards)
    alone_s = float(shared.sum()) / (network.bandwidth * network.goodput)
    alone_s += len(messages) * (network.latency + network.receive_overhead)
    return float((messages["end"] - messages["start"]).sum()) / alone_s if alone_s else None


def _step_time_s(result: Result) -> float | None:
    starts = (
        of(result.records, "gradient", ["node", "start"]).groupby("node")["start"].agg(["min", "max", "size"])
    )
    steps = int((starts["size"] - 1).sum())
    return float((starts["max"] - starts["min"]).sum()) / steps if steps > 0 else None
