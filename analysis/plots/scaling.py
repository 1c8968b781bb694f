"""Throughput and speedup against the number of workers, with what no cost at all would give."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lockstep.analysis.plots.against import against
from lockstep.analysis.plots.series import axes, ready
from lockstep.analysis.words import percent

_ALIKE = 0.01
_IDEAL = 0.9  # efficiency from which on lines of speedup cannot be told from the ideal


def throughput(table: pd.DataFrame, x: str | None = None, by: str | None = None) -> Figure:
    """Throughput (samples/s) against workers; ideal: that of one with no network, times the workers."""
    return against(table, "throughput", x, by, ideal=_times_one_worker)


def speedup(table: pd.DataFrame, x: str | None = None, by: str | None = None) -> Figure:
    """Throughput ÷ that of one worker with no network, against workers; ideal: the workers.

    Where all of it is within 10% of the ideal, the efficiency, in which one sees what is lost.
    """
    least = _least_efficiency(table, x, by)
    if least is not None and least >= _IDEAL:
        found = f"all within {percent(abs(1 - least))} of the ideal"
        return against(
            table, "efficiency", x, by, title="Efficiency", finding=found, closely=True,
            ideal=lambda _, workers: np.ones(len(workers)),
        )  # fmt: skip
    return against(table, "speedup", x, by, ideal=lambda _, workers: workers)


def _least_efficiency(table: pd.DataFrame, x: str | None, by: str | None) -> float | None:
    """The lowest efficiency, where it is against several numbers of workers; else nothing."""
    ended, _ = ready(table)
    across, _ = axes(ended, x, by)
    if across != "cluster.workers" or ended[across].nunique() < 2 or "efficiency" not in ended:
        return None
    return float(ended["efficiency"].min())


def _times_one_worker(rows: pd.DataFrame, workers: np.ndarray) -> np.ndarray | None:
    single = (rows["throughput"] / rows["speedup"]).dropna()
    if not len(single) or single.max() - single.min() > _ALIKE * single.mean():
        return None  # batches or devices differ: there is no one ideal
    return np.asarray(workers * single.mean())
