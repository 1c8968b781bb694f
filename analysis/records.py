"""What a run leaves behind, in the same form from both engines.

A record is one row: something that took from `start` to `end` (seconds since the job started) on a node.

========== ====================== ============================== =======================================
event      node                   peer                           header
========== ====================== ============================== =======================================
gradient   the worker             –                              version: which of its mini-batches, from 0
message    the sender             the receiver                   kind, nbytes; end is its arrival
collective the worker             –                              version: which of its collectives, nbytes
update     holder of parameters   worker of the gradient         version before it, staleness, batches
drop       holder of parameters   worker of the gradient         version it was computed from, batches
evaluation –                      –                              version, loss, accuracy
========== ====================== ============================== =======================================

Ranks count the workers first, then the servers; −1 stands for nobody.
"""

import json
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
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
    "drop": ("node", "peer", "end", "version", "batches"),
    "evaluation": ("end", "version", "loss", "accuracy"),
}
EVENTS = tuple(_FIELDS)
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
        self._many_messages: list[tuple[Any, ...]] = []

    def gradient(self, worker: int, start: float, end: float, step: int) -> None:
        """A worker computed the gradient of its mini-batch number `step`."""
        self._gradients.extend((worker, start, end, step))

    def message(self, sender: int, to: int, start: float, end: float, kind: str, nbytes: int) -> None:
        """A message was handed over at `start` and arrived at `end`."""
        code = self._kinds.setdefault(kind, len(self._kinds))
        self._messages.extend((sender, to, start, end, code, nbytes))

    def messages(
        self,
        senders: np.ndarray,
        to: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
        kind: str,
        nbytes: np.ndarray,
    ) -> None:
        """Many messages of one kind: arrays that broadcast to the shape of `starts`, and are kept."""
        if not starts.size:
            return
        code = self._kinds.setdefault(kind, len(self._kinds))
        self._many_messages.append((senders, to, starts, ends, code, nbytes))

    def collective(self, worker: int, start: float, end: float, number: int, nbytes: int) -> None:
        """A worker took part in its native collective `number`, for which it sent `nbytes`."""
        self._values["collective"].extend((worker, start, end, number, nbytes))

    def update(
        self, holder: int, worker: int, time: float, version: int, staleness: int, batches: int
    ) -> None:
        """A holder of parameters applied a worker's contribution to them, when they were at `version`."""
        self._updates.extend((holder, worker, time, version, staleness, batches))

    def drop(self, holder: int, worker: int, time: float, version: int, batches: int) -> None:
        """A holder of parameters threw away what a worker had computed from this version of them."""
        self._values["drop"].extend((holder, worker, time, version, batches))

    def evaluation(self, time: float, version: int, loss: float, accuracy: float | None) -> None:
        """The parameters as they were at `time` had this loss and accuracy on held-out data."""
        score = np.nan if accuracy is None else accuracy
        self._values["evaluation"].extend((time, version, loss, score))

    def frame(self) -> pd.DataFrame:
        """All records as a table, in the order in which things ended.

        What ended at the same instant is ordered by its other columns, so that the table does not depend on
        the order in which things were recorded.
        """
        events = np.repeat(np.arange(len(EVENTS)), [len(self._values_of(e, "end")) for e in EVENTS])
        who = (events << 56) + (self._column("node").astype("i8") + 1 << 28) + self._column("peer") + 1
        ties = (self._column(name) for name in ("start", "version", "kind", "nbytes", "staleness", "batches"))
        order = _order(chain([self._column("end"), who], ties))
        codes = events.astype("i1")[order]
        del events, who
        frame = pd.DataFrame({"event": pd.Categorical.from_codes(codes, categories=pd.Index(EVENTS))})
        for name in _COLUMNS:
            frame[name] = self._column(name)[order]
        kinds = pd.Index(sorted(self._kinds))
        frame["kind"] = pd.Categorical.from_codes(frame["kind"].to_numpy(), categories=kinds)
        return frame

    def _column(self, name: str) -> np.ndarray:
        """One column of the records of all events, event by event; kinds by their place in the alphabet."""
        parts = [self._values_of(event, name) for event in EVENTS]
        column = np.concatenate(parts, dtype=_COLUMNS[name][0], casting="unsafe")
        if name != "kind":
            return column
        place = {kind: place for place, kind in enumerate(sorted(self._kinds))}
        return np.array([place[kind] for kind in self._kinds], column.dtype)[column]

    def _values_of(self, event: str, name: str) -> np.ndarray:
        """One column of the records of one event."""
        fields, packed = _FIELDS[event], self._values[event]
        many = self._many_messages if event == "message" else []
        if name == "start" and name not in fields:
            name = "end"
        if name not in fields:
            length = len(packed) // len(fields) + sum(block[2].size for block in many)
            return np.broadcast_to(_COLUMNS[name][1], length)
        place = fields.index(name)
        one_by_one = np.array(packed[place :: len(fields)])
        blocks = [np.broadcast_to(block[place], block[2].shape).ravel() for block in many]
        return np.concatenate([one_by_one, *blocks], dtype="f8")


def _order(columns: Iterable[np.ndarray]) -> np.ndarray:
    """The order of rows by the first column, ties by the next, and so on, as far as there are ties."""
    columns = iter(columns)
    first = next(columns)
    order = np.argsort(first, kind="stable")
    opens = np.concatenate([[True], np.diff(first[order]) != 0])[: len(first)]  # rows unlike the one before
    while not opens.all():
        column = next(columns, None)
        if column is None:
            break
        places = np.flatnonzero(~opens | ~np.append(opens[1:], True))
        rows = order[places]
        rows = rows[np.lexsort((column[rows], np.cumsum(opens[places])))]
        order[places] = rows
        opens[places[1:]] |= np.diff(column[rows]) != 0
    return order


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
