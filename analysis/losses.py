"""What failures cost a run: computed from its records alone, by the same code for both engines."""

from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.records import of, values
from lockstep.analysis.result import Result

CUT_OFF = "cut off"
"""The kind of a computation that a failure has ended (job/incarnation.py)."""


def losses(result: Result, useful: int, dropped: int) -> dict[str, Any]:
    """Goodput, what was lost, and how long it took; `undone` counts mini-batches, for the throughput.

    useful: mini-batches whose gradients are in the parameters at the end; dropped: those thrown away. Every
    other one that was computed is lost.
    """
    batch_size, (start, end) = result.scenario.workload.batch_size, result.span
    faults = of(result.records, "fault", ["node", "start", "left", "end", "kind"])
    end = max([end, *faults["end"]])  # a run may end while it is down, and not when the last update was made
    duration = end - start
    recoveries = of(result.records, "recovery", ["node", "start", "end"])
    written = of(result.records, "checkpoint", ["node", "start", "end", "kind"])
    written = written[written["kind"] == "write"]
    failures = faults[faults["left"].notna()]
    return {
        "goodput": useful * batch_size / duration if duration > 0 else None,
        "lost_samples": max(0, computed(result) - useful - dropped) * batch_size,
        "undone": _undone(result),
        "failures": len(failures.drop_duplicates(["start", "left"])),
        "time_to_detect_s": _mean(failures["left"] - failures["start"]),
        "time_to_recover_s": _mean(_recovered(failures, recoveries)),
        "availability": _availability(result, faults, start, end),
        "checkpoints": _most(written),
        "checkpoint_s": float((written["end"] - written["start"]).groupby(written["node"]).sum().max())
        if len(written)
        else 0.0,
    }


def computed(result: Result) -> int:
    """Mini-batches that were computed to their end before the last update, or before the last drop after it.

    A gradient that is late for the last update is dropped when the run's duration is over.
    """
    done = [values(result.records, event, ["end"])["end"] for event in ("update", "drop")]
    gradients = of(result.records, "gradient", ["end", "kind"])
    last = max((float(ends.max()) for ends in done if len(ends)), default=result.span[1])
    return int(((gradients["kind"] != CUT_OFF) & (gradients["end"] <= last)).sum())


def _undone(result: Result) -> int:
    """Mini-batches that were in the parameters for a while: of each worker the most that an owner lost."""
    rows = of(result.records, "undone", ["node", "peer", "batches", "staleness"])
    rows = rows[rows["staleness"].notna()]
    return int(rows.groupby(["peer", "node"])["batches"].sum().groupby(level=0).max().sum())


def _recovered(failures: pd.DataFrame, recoveries: pd.DataFrame) -> pd.Series:
    """From each failure until who failed, or the job, went on: s. Without those of which none is known.

    Who is replaced may be back before anybody has noticed.
    """
    found = []
    for node, start in failures[["node", "start"]].to_numpy(float):
        own = recoveries[recoveries["node"].isin((-1, node)) & (recoveries["end"] >= start)]
        if len(own):
            found.append(float(own["end"].min()) - start)
    return pd.Series(found, dtype=float)


def _availability(result: Result, faults: pd.DataFrame, start: float, end: float) -> float | None:
    """The mean share of the duration for which a process was there and could be reached."""
    if end <= start:
        return None
    down = 0.0
    for _, rows in faults.groupby("node"):
        until = start
        for begun, over in zip(rows["start"], rows["end"], strict=True):
            begun, over = max(begun, until), min(over, end)
            down += max(0.0, over - begun)
            until = max(until, over)
    return float(1 - down / (len(result.plan.roles) * (end - start)))


def _most(written: pd.DataFrame) -> int:
    return int(written.groupby("node").size().max()) if len(written) else 0


def _mean(values: pd.Series) -> float | None:
    return float(np.mean(values)) if len(values) else None
