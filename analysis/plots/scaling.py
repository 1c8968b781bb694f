"""Throughput and speedup against the number of workers, with what no cost at all would give."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lockstep.analysis.plots.against import against

_ALIKE = 0.01


def throughput(table: pd.DataFrame, x: str | None = None, by: str | None = None) -> Figure:
    """Throughput (samples/s) against workers; ideal: that of one with no network, times the workers."""
    return against(table, "throughput", x, by, ideal=_times_one_worker)


def speedup(table: pd.DataFrame, x: str | None = None, by: str | None = None) -> Figure:
    """Throughput ÷ that of one worker with no network, against workers; ideal: the workers."""
    return against(table, "speedup", x, by, ideal=lambda _, workers: workers)


def _times_one_worker(rows: pd.DataFrame, workers: np.ndarray) -> np.ndarray | None:
    single = (rows["throughput"] / rows["speedup"]).dropna()
    if not len(single) or single.max() - single.min() > _ALIKE * single.mean():
        return None  # batches or devices differ: there is no one ideal
    return np.asarray(workers * single.mean())
