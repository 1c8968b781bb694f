"""What a run leaves behind, in the same form from both engines.

A record is one row: something that took from `start` to `end` (seconds since the job started) on a node.

========== ====================== ============================== =======================================
event      node                   peer                           header
========== ====================== ============================== =======================================
gradient   the worker             –                              version: which of its mini-batches, from 0
message    the sender             the receiver                   kind, nbytes; end is its arrival
collective the worker             –                              version: which of its collectives, nbytes
update     holder of parameters   worker of the gradient         version before it, staleness, batches
evaluation –                      –                              version, loss, accuracy
========== ====================== ============================== =======================================

Ranks count the workers first, then the servers; −1 stands for nobody.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scenarios import Scenario, dump

EVENTS = ("gradient", "message", "collective", "update", "evaluation")
_HEADER = [
    ("event", "i1"),
    ("node", "i4"),
    ("peer", "i4"),
    ("start", "f8"),
    ("end", "f8"),
    ("kind", "i2"),
    ("version", "i8"),
    ("staleness", "i8"),
    ("batches", "i4"),
    ("nbytes", "i8"),
    ("loss", "f8"),
    ("accuracy", "f8"),
]
_NAN = float("nan")
_BLOCK = 1 << 16  # rows held as Python tuples before they are packed


class Recorder:
    """Collects the records of one engine, or of one process of it."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._blocks: list[np.ndarray] = []
        self._kinds: dict[str, int] = {"": 0}

    def gradient(self, worker: int, start: float, end: float, step: int) -> None:
        """A worker computed the gradient of its mini-batch number `step`."""
        self._add((0, worker, -1, start, end, 0, step, -1, 1, 0, _NAN, _NAN))

    def message(self, sender: int, to: int, start: float, end: float, kind: str, nbytes: int) -> None:
        """A message was handed over at `start` and arrived at `end`."""
        code = self._kinds.setdefault(kind, len(self._kinds))
        self._add((1, sender, to, start, end, code, -1, -1, 0, nbytes, _NAN, _NAN))

    def collective(self, worker: int, start: float, end: float, number: int, nbytes: int) -> None:
        """A worker took part in its native collective `number`, for which it sent `nbytes`."""
        self._add((2, worker, -1, start, end, 0, number, -1, 0, nbytes, _NAN, _NAN))

    def update(
        self, holder: int, worker: int, time: float, version: int, staleness: int, batches: int
    ) -> None:
        """A holder of parameters applied a worker's contribution to them, when they were at `version`."""
        self._add((3, holder, worker, time, time, 0, version, staleness, batches, 0, _NAN, _NAN))

    def evaluation(self, time: float, version: int, loss: float, accuracy: float | None) -> None:
        """The parameters as they were at `time` had this loss and accuracy on held-out data."""
        score = _NAN if accuracy is None else accuracy
        self._add((4, -1, -1, time, time, 0, version, -1, 0, 0, loss, score))

    def _add(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) == _BLOCK:
            self._pack()

    def _pack(self) -> None:
        self._blocks.append(np.array(self._rows, dtype=_HEADER))
        self._rows.clear()

    def frame(self) -> pd.DataFrame:
        """All records as a table, in the order they were made."""
        self._pack()
        rows = np.concatenate(self._blocks)
        frame = pd.DataFrame({name: rows[name] for name, _ in _HEADER})
        frame["event"] = pd.Categorical.from_codes(rows["event"].astype("i4"), categories=pd.Index(EVENTS))
        frame["kind"] = pd.Categorical.from_codes(rows["kind"].astype("i4"), categories=pd.Index(self._kinds))
        return frame


def join(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The records of several processes in one table, in the order in which things ended."""
    kinds = sorted({str(kind) for frame in frames for kind in frame["kind"].cat.categories})
    table = pd.concat([frame.astype({"kind": pd.CategoricalDtype(kinds)}) for frame in frames])
    return table.sort_values(["end", "start", "node"], kind="stable", ignore_index=True)


@dataclass(frozen=True)
class Result:
    """One run: its records, and what can be said from them."""

    engine: str
    scenario: Scenario
    records: pd.DataFrame
    holders: Sequence[int]
    """Ranks that hold parameters: the servers, one shard each, or all workers, the whole vector each."""
    gradient_s: float
    """Mean seconds of one gradient on a worker of speed 1: the base of speedup."""
    parameters: np.ndarray | None = None
    """The final flat vector, shape (n,); None when nothing was learned."""
    warnings: Sequence[str] = field(default_factory=tuple)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The figures of the run: throughput, staleness, speedup, … (docs/metrics.md)."""
        from analysis.metrics import metrics

        return metrics(self)

    @property
    def curve(self) -> pd.DataFrame:
        """Held-out loss and accuracy against time (s since the first mini-batch started) and version."""
        is_gradient, is_evaluation = (self.records["event"] == e for e in ("gradient", "evaluation"))
        start = self.records.loc[is_gradient, "start"].min()
        rows = self.records.loc[is_evaluation].assign(time=lambda table: table["end"] - start)
        return rows[["time", "version", "loss", "accuracy"]].reset_index(drop=True)

    def to_json(self) -> str:
        """The metrics as one JSON object."""
        return json.dumps(self.metrics, allow_nan=False)

    def save(self, directory: str | Path) -> None:
        """Write scenario.yaml, result.json, records.parquet and parameters.npy; the folder is made."""
        out = Path(directory)
        text = self.to_json()
        out.mkdir(parents=True, exist_ok=True)
        (out / "scenario.yaml").write_text(dump(self.scenario), encoding="utf-8")
        self.records.to_parquet(out / "records.parquet", index=False)
        if self.parameters is not None:
            np.save(out / "parameters.npy", self.parameters)
        else:  # none of an earlier run either
            (out / "parameters.npy").unlink(missing_ok=True)
        (out / "result.json").write_text(text + "\n", encoding="utf-8")

    def _repr_html_(self) -> str:
        rows = {k: v for k, v in self.metrics.items() if not isinstance(v, dict | list)}
        return str(pd.Series(rows, name=self.engine).to_frame().to_html())
