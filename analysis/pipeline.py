"""One step of a pipeline, as pictures show it: which passes are cells, how much is bubble, what is kept."""

from functools import cached_property
from math import ceil

import numpy as np
import pandas as pd

from lockstep.analysis.records import Result, of


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
        self._whole_backward = not self.flush or plan.scenario.split.order != "zero-bubble"
        columns = ["node", "peer", "start", "end", "kind", "version", "batches", "nbytes"]
        passes = of(result.records, "pass", columns)
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
        in_each = 3 * plan.micro_batches * len(plan.pieces)
        counts = passes.groupby("version").size()
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

        kind: "forward", "backward", or its two parts "backward-inputs" and "backward-weights", where an order
        keeps them apart. number: the micro-batch; without a flush, counted from the first of the run. own: of
        this mini-batch, not of one before or after.
        """
        keys = ["stage", "version", "peer", "batches"]
        cells = self._within.assign(kind=self._within["kind"].astype(object))
        if self._whole_backward:
            back = cells["kind"].str.startswith("backward")
            both = cells[back].groupby(keys, sort=False)
            cells.loc[back, "end"] = both["end"].transform("max")
            cells.loc[back, "kind"] = "backward"
            cells = cells[~(back & cells.duplicated([*keys, "kind"]))]
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
        passes = self._passes[self._passes["stage"] == stage]
        before = passes["nbytes"][passes["end"] <= self.begin]
        here = passes[(passes["end"] > self.begin) & (passes["end"] < self.end)]
        return np.array([self.begin, *here["end"], self.end]), np.array(
            [before.iloc[-1] if len(before) else 0, *here["nbytes"]], float
        )
