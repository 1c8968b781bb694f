"""Throughput and speedup against the number of workers, with what no cost at all would give."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.plots.against import against

_ALIKE = 0.01


def throughput(table: pd.DataFrame, x: str | None = None, by: str | None = None) -> Figure:
    """Samples a second; ideal: that of one worker with no network, times the workers."""
    return against(table, "throughput", x, by, ideal=_times_one_worker)


def speedup(table: pd.DataFrame, x: str | None = None, by: str | None = None) -> Figure:
    """Throughput ÷ that of one worker with no network; ideal: the workers."""
    return against(table, "speedup", x, by, ideal=_workers)


def _times_one_worker(rows: pd.DataFrame, places: np.ndarray) -> np.ndarray | None:
    single = (rows["throughput"] / rows["speedup"]).dropna()
    workers = _workers(rows, places)
    if workers is None or not len(single) or single.max() - single.min() > _ALIKE * single.mean():
        return None  # batches or devices differ: there is no one ideal
    return np.asarray(workers * single.mean())


def _workers(rows: pd.DataFrame, places: np.ndarray) -> np.ndarray | None:
    """The number of workers at places of the x axis; None if that shows something else."""
    lowest, highest = rows["cluster.workers"].min(), rows["cluster.workers"].max()
    return places if (lowest, highest) == (places[0], places[-1]) and lowest < highest else None
