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
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import pandas as pd

from scenarios import Scenario, dump

# What is kept of each event, in the order in which its Recorder method gives it.
_FIELDS = {
    "gradient": ("node", "start", "end", "version"),
    "message": ("node", "peer", "start", "end", "kind", "nbytes"),
    "collective": ("node", "start", "end", "version", "nbytes"),
    "update": ("node", "peer", "end", "version", "staleness", "batches"),
    "evaluation": ("end", "version", "loss", "accuracy"),
}
EVENTS = tuple(_FIELDS)
# For the events that are many: to pack a record takes half as long as to extend an array by it.
_GRADIENT, _MESSAGE, _UPDATE = (
    Struct(f"{len(_FIELDS[event])}d").pack for event in ("gradient", "message", "update")
)
# The columns of the table, their types, and what stands where an event does not have one.
_COLUMNS: dict[str, tuple[str, float]] = {
    "node": ("i4", -1),
    "peer": ("i4", -1),
    "start": ("f8", np.nan),  # the end: it took no time
    "end": ("f8", np.nan),
    "kind": ("i4", 0),
    "version": ("i8", -1),
    "staleness": ("i8", -1),
    "batches": ("i4", 0),
    "nbytes": ("i8", 0),
    "loss": ("f8", np.nan),
    "accuracy": ("f8", np.nan),
}


class Recorder:
    """Collects the records of one engine, or of one process of it: eight bytes a value, packed."""

    def __init__(self) -> None:
        self._values = {event: array("d") for event in EVENTS}
        self._kinds: dict[str, int] = {"": 0}
        self._gradients, self._messages = self._values["gradient"], self._values["message"]
        self._updates = self._values["update"]

    def gradient(self, worker: int, start: float, end: float, step: int) -> None:
        """A worker computed the gradient of its mini-batch number `step`."""
        self._gradients.frombytes(_GRADIENT(worker, start, end, step))

    def message(self, sender: int, to: int, start: float, end: float, kind: str, nbytes: int) -> None:
        """A message was handed over at `start` and arrived at `end`."""
        code = self._kinds.setdefault(kind, len(self._kinds))
        self._messages.frombytes(_MESSAGE(sender, to, start, end, code, nbytes))

    def collective(self, worker: int, start: float, end: float, number: int, nbytes: int) -> None:
        """A worker took part in its native collective `number`, for which it sent `nbytes`."""
        self._values["collective"].extend((worker, start, end, number, nbytes))

    def update(
        self, holder: int, worker: int, time: float, version: int, staleness: int, batches: int
    ) -> None:
        """A holder of parameters applied a worker's contribution to them, when they were at `version`."""
        self._updates.frombytes(_UPDATE(holder, worker, time, version, staleness, batches))

    def evaluation(self, time: float, version: int, loss: float, accuracy: float | None) -> None:
        """The parameters as they were at `time` had this loss and accuracy on held-out data."""
        score = np.nan if accuracy is None else accuracy
        self._values["evaluation"].extend((time, version, loss, score))

    def frame(self) -> pd.DataFrame:
        """All records as a table, in the order in which things ended."""
        parts = {event: self._rows(event) for event in EVENTS}
        ends = np.concatenate([rows["end"] for rows in parts.values()])
        order = np.argsort(ends, kind="stable")
        codes = np.repeat(np.arange(len(EVENTS), dtype="i4"), [len(rows["end"]) for rows in parts.values()])
        frame = pd.DataFrame({"event": pd.Categorical.from_codes(codes[order], categories=pd.Index(EVENTS))})
        for name, (kind, _) in _COLUMNS.items():
            frame[name] = np.concatenate([rows[name] for rows in parts.values()], dtype=kind)[order]
        frame["kind"] = pd.Categorical.from_codes(frame["kind"].to_numpy(), categories=pd.Index(self._kinds))
        return frame

    def _rows(self, event: str) -> dict[str, np.ndarray]:
        """Every column of the records of one event."""
        fields = _FIELDS[event]
        values = np.array(self._values[event]).reshape(-1, len(fields))
        rows = {name: np.full(len(values), nothing, kind) for name, (kind, nothing) in _COLUMNS.items()}
        rows |= {name: values[:, place].astype(_COLUMNS[name][0]) for place, name in enumerate(fields)}
        if "start" not in fields:
            rows["start"] = rows["end"]
        return rows


def join(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The records of several processes in one table, in the order in which things ended."""
    kinds = sorted({str(kind) for frame in frames for kind in frame["kind"].cat.categories})
    table = pd.concat([frame.astype({"kind": pd.CategoricalDtype(kinds)}) for frame in frames])
    return table.sort_values(["end", "start", "node"], kind="stable", ignore_index=True)


def save_records(scenario: Scenario, records: pd.DataFrame, out: Path) -> None:
    """Write scenario.yaml and records.parquet, and remove what an earlier run left there."""
    out.mkdir(parents=True, exist_ok=True)
    for stale in ("result.json", "parameters.npy"):
        (out / stale).unlink(missing_ok=True)
    (out / "scenario.yaml").write_text(dump(scenario), encoding="utf-8")
    records.to_parquet(out / "records.parquet", index=False)


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
        save_records(self.scenario, self.records, out)
        if self.parameters is not None:
            np.save(out / "parameters.npy", self.parameters)
        (out / "result.json").write_text(text + "\n", encoding="utf-8")

    def _repr_html_(self) -> str:
        rows = {k: v for k, v in self.metrics.items() if not isinstance(v, dict | list)}
        return str(pd.Series(rows, name=self.engine).to_frame().to_html())
