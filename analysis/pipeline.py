"""One step of a pipeline, as pictures show it: which passes are cells, how much is bubble, what is kept."""

from functools import cached_property
from math import ceil

import numpy as np
import pandas as pd

from lockstep.analysis.records import of
from lockstep.analysis.result import Result

PASS = ["node", "peer", "start", "end", "kind", "version", "batches", "nbytes"]  # the columns of a pass


_PLACE = ["node", "peer", "version", "batches"]  # a micro-batch in a piece


class Step:
    """What the first replica of the model does from `begin` to `end`, s since the job started.

    With a flush: from the first pass of a mini-batch to the first of the next, or to its update where there
    is no next; the run's second mini-batch, as the first starts cold, or the first if there is one only.
    Without a flush: twice as many micro-batches as there are stages, from when all stages are busy.
    """

    def __init__(self, result: Result) -> None:
        """`result`: a run in passes."""
        plan = result.plan
        self._result, self.ranks, self.flush = result, plan.stages[0].peers, not plan.strategy.own_passes
        passes = of(result.records, "pass", PASS)
        passes = passes[passes["node"].isin(self.ranks)].sort_values("start", kind="stable")
        passes["stage"] = passes["node"].map({rank: stage for stage, rank in enumerate(self.ranks)})
        passes["chunk"] = passes["peer"] // len(self.ranks)
        self._passes = passes
        self.first, self.last = self._steps()
        of_step = passes["version"].between(self.first, self.last)
        self.begin = float(passes["start"][of_step].min())
        self.end = self._end(passes[of_step], passes[passes["version"] > self.last])

    def _steps(self) -> tuple[int, int]:
        """The first mini-batch and the last."""
        passes, plan = self._passes, self._result.plan
        in_each = passes["kind"].nunique() * plan.micro_batches * len(plan.pieces)
        counts = (
            passes[~passes.duplicated([*_PLACE, "kind"])].groupby("version").size()
        )  # not of each segment
        whole = counts.index[counts == in_each].tolist() or [int(counts.index[0])]
        if self.flush:
            return (whole[1], whole[1]) if len(whole) > 1 else (whole[0], whole[0])
        stages = len(self.ranks)
        many = min(len(whole), ceil(2 * stages / plan.micro_batches))
        at = min(ceil(stages / plan.micro_batches), len(whole) - many)
        return whole[at], whole[at + many - 1]

    def _end(self, own: pd.DataFrame, later: pd.DataFrame) -> float:
        if not self.flush:
            return float(later["start"].min() if len(later) else own["end"].max())
        then = later["start"]
        if not len(then):
            updates = of(self._result.records, "update", ["peer", "end"])
            then = updates["end"][updates["peer"].isin(self.ranks)].iloc[-1:]
        return max(float(own["end"].max()), float(then.min()) if len(then) else 0.0)

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.end - self.begin

    @cached_property
    def _within(self) -> pd.DataFrame:
        passes = self._passes
        return passes[(passes["end"] > self.begin) & (passes["start"] < self.end)]

    @cached_property
    def cells(self) -> pd.DataFrame:
        """A row a cell: stage, chunk, kind, number, start and end (s since the job started), own.

        kind: of the pass (strategies.orders.Kind). number: the micro-batch; without a flush, counted from the
        first of the run. own: of this mini-batch, not of one before or after.
        """
        cells = self._within.assign(kind=self._within["kind"].astype(object))
        own = cells["version"].between(self.first, self.last) | (not self.flush)
        number = cells["batches"] + self._result.plan.micro_batches * (0 if self.flush else cells["version"])
        cells = cells.assign(own=own, number=number)
        return cells[["stage", "chunk", "kind", "number", "start", "end", "own"]].reset_index(drop=True)

    @property
    def bubbles(self) -> float:
        """The share of the time of all stages in which they compute nothing."""
        start, end = (self._within[name].clip(self.begin, self.end) for name in ("start", "end"))
        return 1 - float((end - start).sum()) / (len(self.ranks) * self.seconds)

    def kept(self, stage: int) -> tuple[np.ndarray, np.ndarray]:
        """Times from `begin` to `end`, and the bytes that a stage keeps from each to the next."""
        times, nbytes = kept(self._passes[self._passes["stage"] == stage])
        before, after = np.searchsorted(times, self.begin, side="right"), np.searchsorted(times, self.end)
        at_first = nbytes[before - 1 : before] if before else np.zeros(1)
        return np.array([self.begin, *times[before:after], self.end]), np.array(
            [*at_first, *nbytes[before:after]]
        )


def kept(passes: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Of a device, which bytes of micro-batches it keeps, from each instant (s) to the next; shape (2 n,).

    passes: its `PASS` records. A pass has the most from its begin to its end; what the last pass of a
    micro-batch through a piece has kept is then gone.
    """
    of_micro: dict[tuple[int, int, int], int] = {}
    total, times, found = 0, [], []
    in_order = passes.sort_values("start", kind="stable")
    done = ~in_order.duplicated(_PLACE, keep="last")
    columns = ["peer", "start", "end", "version", "batches", "nbytes"]
    for ends, (piece, start, end, step, micro, most) in zip(
        done & in_order["kind"].isin(("backward", "backward-weights")),
        in_order[columns].itertuples(index=False),
        strict=True,
    ):
        key = piece, step, micro
        of_micro[key] = of_micro.get(key, 0) + most - total
        total = most - (of_micro.pop(key) if ends else 0)
        times += [start, end]
        found += [most, total]
    return np.array(times), np.array(found)
