"""Where each worker's time went."""

import numpy as np
import pandas as pd

from analysis.records import of

PARTS = ("compute", "send", "network", "wait")


def breakdown(records: pd.DataFrame, workers: int, begin: float, finish: float) -> pd.DataFrame:
    """A row a worker: the fractions of the time from `begin` to `finish` (s) that it spent on four things.

    compute: computing a gradient. send: not computing, and a message of its own is leaving, or it is in a
    collective that everybody has entered. network: neither, but a message to or from it is under way, or no
    worker computes, so that what it waits for is between others or at a server. wait: the rest, in which it
    waits for others to compute. They sum to 1; all are 0 when no time has passed.
    """
    duration = finish - begin
    if duration <= 0:
        return pd.DataFrame(0.0, index=range(workers), columns=list(PARTS))
    gradients = of(records, "gradient", ["node", "start", "end"])
    messages = of(records, "message", ["node", "peer", "start", "left", "end"])
    collectives = of(records, "collective", ["node", "start", "end", "version"])
    entered = collectives.groupby("version")["start"].transform("max")
    computing = [(gradients["node"], gradients["start"], gradients["end"])]
    sending = [(collectives["node"], entered, collectives["end"])]
    leaving = (messages["node"], messages["start"], messages["left"])
    under_way = [
        (messages["node"], messages["start"], messages["end"]),
        (messages["peer"], messages["start"], messages["end"]),
    ]
    nobody = nobody_computes(gradients, begin, finish)
    everyone = pd.Series(np.repeat(np.arange(workers), len(nobody)))
    idle = (everyone, *(pd.Series(np.tile(nobody[side], workers)) for side in ("start", "end")))
    # Each includes the one before; a message that leaves is under way.
    cumulative = [
        covered(spans, workers, begin, finish) / duration
        for spans in (computing, [*computing, *sending, leaving], [*computing, *sending, *under_way, idle])
    ]
    bounds = np.clip([np.zeros(workers), *cumulative, np.ones(workers)], 0.0, 1.0)  # rounding
    shares = np.diff(np.maximum.accumulate(bounds), axis=0)
    return pd.DataFrame(dict(zip(PARTS, shares, strict=True)))


def nobody_computes(gradients: pd.DataFrame, begin: float, finish: float) -> pd.DataFrame:
    """The spans between `begin` and `finish` in which no worker computes: start, end."""
    ordered = gradients.sort_values("start")
    start = np.append(ordered["start"].to_numpy(), finish)
    reached = np.maximum(np.append(begin, ordered["end"].cummax().to_numpy()), begin)
    gaps = pd.DataFrame({"start": reached, "end": np.minimum(start, finish)})
    return gaps[gaps["end"] > gaps["start"]]


def covered(
    spans: list[tuple[pd.Series, pd.Series, pd.Series]], workers: int, begin: float, finish: float
) -> np.ndarray:
    """For each worker the seconds between `begin` and `finish` in which one or more spans are open.

    Spans are (node, start, end), arrays of one length each; those of servers and those with a NaN do not
    count. Shape (workers,).
    """
    kept = []
    for columns in spans:
        node, start, end = (column.to_numpy() for column in columns)
        keep = (node < workers) & (end > begin) & (start < finish)
        kept.append((node[keep], np.maximum(start[keep], begin), np.minimum(end[keep], finish)))
    node, start, end = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    order = np.lexsort((start, node))
    node, start, end = node[order], start[order], end[order]
    # Of a span only what comes after the ends of all that began before it.
    reached = pd.Series(end).groupby(node).cummax().to_numpy()
    before = np.append(begin, reached[:-1])
    before[np.diff(node, prepend=-1) != 0] = begin
    new = np.maximum(end - np.maximum(start, before), 0.0)
    return np.bincount(node, new, workers)
