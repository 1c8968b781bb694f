"""What a run leaves behind, in the same form from both engines.

A record is one row: something that took from `start` to `end` (seconds since the job started) on a node.

========== ====================== ============================== =======================================
event      node                   peer                           header
========== ====================== ============================== =======================================
gradient   the worker             –                              version: which of its mini-batches, from 0
message    the sender             the receiver                   kind, nbytes; left, when its last byte
                                                                 had left the sender; end is its arrival
collective the worker             –                              version: which of its collectives, nbytes
update     owner of parameters    worker of the gradient         version before it, staleness, batches
drop       owner of parameters    worker of the gradient         version it was computed from, batches
memory     the worker             –                              kind: read or add, of shared parameters
work       the worker             –                              kind: apply, encode or decode, on its own
pass       the worker             piece of the model             kind, version: which of its mini-batches,
                                                                 batches: which micro-batch of it; nbytes:
                                                                 the most that is kept while it goes on
evaluation –                      –                              version, loss, accuracy
fault      whom it befell         –                              kind; left, when it was noticed; end is
                                                                 when it was over
recovery   the node, or −1: all   –                              version from which it goes on; start is
                                                                 when the failure was noticed
checkpoint who writes or reads it –                              kind: write or read; version, nbytes
undone     as an update or a drop that was lost when the job went back to a checkpoint
metric     –                      –                              version, kind: its name; accuracy: its
                                                                 value
========== ====================== ============================== =======================================

Ranks count the workers first, then the servers; −1 stands for nobody.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lockstep.analysis.folders import replacing
from lockstep.analysis.order import order_of
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, dump

if TYPE_CHECKING:
    from lockstep.analysis.bottleneck import Bottleneck

# What `Result.save` writes of a run.
FILES = (
    *("scenario.yaml", "records.parquet", "parameters.npy", "utilisation.parquet", "interleaving.parquet"),
    "result.json",
)
# What is kept of each event, in the order in which its Recorder method gives it.
_FIELDS = {
    "gradient": ("node", "start", "end", "version"),
    "message": ("node", "peer", "start", "left", "end", "kind", "nbytes"),
    "collective": ("node", "start", "end", "version", "nbytes"),
    "update": ("node", "peer", "end", "version", "staleness", "batches"),
    "drop": ("node", "peer", "end", "version", "batches"),
    "evaluation": ("end", "version", "loss", "accuracy"),
    "metric": ("end", "version", "kind", "accuracy"),
    "memory": ("node", "start", "end", "kind"),
    "work": ("node", "start", "end", "kind"),
    "pass": ("node", "peer", "start", "end", "kind", "version", "batches", "nbytes"),
    "fault": ("node", "start", "left", "end", "kind"),
    "recovery": ("node", "start", "end", "version"),
    "checkpoint": ("node", "start", "end", "kind", "version", "nbytes"),
    "undone": ("node", "peer", "end", "version", "staleness", "batches"),
}
EVENTS = tuple(_FIELDS)
COPIES = 5  # of all records besides them, while they are put in order
# The columns of the table, their types, and what stands where an event does not have one.
_COLUMNS: dict[str, tuple[str, float]] = {
    "node": ("i4", -1),
    "peer": ("i4", -1),
    "start": ("f8", np.nan),  # the end: it took no time
    "left": ("f8", np.nan),
    "end": ("f8", np.nan),
    "kind": ("i4", 0),
    "version": ("i4", -1),
    "staleness": ("i4", -1),
    "batches": ("i4", 0),
    "nbytes": ("i8", 0),
    "loss": ("f8", np.nan),
    "accuracy": ("f8", np.nan),
}
# A record as packed bytes: millions of them fit into memory, and packing is faster than an array's extend.
TYPES = {event: np.dtype([(name, _COLUMNS[name][0]) for name in fields]) for event, fields in _FIELDS.items()}
_CODES = {"i4": "i", "i8": "q", "f8": "d"}
_PACK = {
    event: Struct("=" + "".join(_CODES[_COLUMNS[name][0]] for name in fields)).pack
    for event, fields in _FIELDS.items()
}
_PACK_GRADIENT, _PACK_MESSAGE, _PACK_UPDATE = _PACK["gradient"], _PACK["message"], _PACK["update"]


class Recorder:
    """Collects the records of one engine, or of one process of it: packed, 24 to 44 bytes each."""

    def __init__(self) -> None:
        self._packed = {event: bytearray() for event in EVENTS}
        # The three that a run consists of are at hand: looking them up would be felt.
        self._gradients, self._messages, self._updates = (
            self._packed[event] for event in ("gradient", "message", "update")
        )
        self._kinds: dict[str, int] = {"": 0}

    @property
    def nbytes(self) -> int:
        """Bytes of the records so far."""
        return sum(map(len, self._packed.values()))

    def gradient(self, worker: int, start: float, end: float, step: int) -> None:
        """A worker computed the gradient of its mini-batch number `step`."""
        self._gradients += _PACK_GRADIENT(worker, start, end, step)

    def message(
        self, sender: int, to: int, start: float, left: float, end: float, kind: str, nbytes: int
    ) -> None:
        """A message was handed over at `start`, its last byte `left` (NaN: unknown), it arrived at `end`."""
        code = self._kinds.get(kind)
        if code is None:
            code = self._code(kind)
        self._messages += _PACK_MESSAGE(sender, to, start, left, end, code, nbytes)

    def many(self, event: str, kind: str, **columns: np.ndarray) -> None:
        """Many records of one event and kind: its other columns, which broadcast to the shape of `end`."""
        shape = columns["end"].shape
        rows = np.empty(shape, TYPES[event])
        if rows.size:
            rows["kind"] = self._code(kind)
        for name, column in columns.items():
            rows[name] = column
        self._packed[event] += rows.tobytes()

    def collective(self, worker: int, start: float, end: float, number: int, nbytes: int) -> None:
        """A worker took part in its native collective `number`, for which it sent `nbytes`."""
        self._packed["collective"] += _PACK["collective"](worker, start, end, number, nbytes)

    def update(
        self, owner: int, worker: int, time: float, version: int, staleness: int, batches: int
    ) -> None:
        """An owner of parameters applied a worker's contribution to them, when they were at `version`."""
        self._updates += _PACK_UPDATE(owner, worker, time, version, staleness, batches)

    def drop(self, owner: int, worker: int, time: float, version: int, batches: int) -> None:
        """An owner of parameters threw away what a worker had computed from this version of them."""
        self._packed["drop"] += _PACK["drop"](owner, worker, time, version, batches)

    def evaluation(
        self,
        time: float,
        version: int,
        loss: float,
        accuracy: float | None,
        others: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """The parameters as they were at `time` were that good on held-out data; `others`: more metrics."""
        score = np.nan if accuracy is None else accuracy
        self._packed["evaluation"] += _PACK["evaluation"](time, version, loss, score)
        for name, value in others.items():
            self._packed["metric"] += _PACK["metric"](time, version, self._code(name), value)

    def memory(self, worker: int, start: float, end: float, kind: str) -> None:
        """A worker read the parameters that all share, or added to them ("read", "add")."""
        self._packed["memory"] += _PACK["memory"](worker, start, end, self._code(kind))

    def work(self, worker: int, start: float, end: float, kind: str) -> None:
        """A worker did work of its own: a step or a sum ("apply"), or a codec's ("encode", "decode")."""
        self._packed["work"] += _PACK["work"](worker, start, end, self._code(kind))

    def passed(
        self, worker: int, start: float, end: float, kind: str, step: int, piece: int, micro: int, kept: int
    ) -> None:
        """A worker did a pass of a micro-batch through a piece of the model, keeping at most so much."""
        pack = _PACK["pass"]
        self._packed["pass"] += pack(worker, piece, start, end, self._code(kind), step, micro, kept)

    def note(self, event: str, *values: Any, kind: str | None = None) -> None:
        """Record a rare event: its values in the order of its fields, without the kind, if it has one."""
        fields, given = _FIELDS[event], iter(values)
        codes = [self._code(kind) if name == "kind" else next(given) for name in fields]  # type: ignore[arg-type]
        self._packed[event] += _PACK[event](*codes)

    def _code(self, kind: str) -> int:
        return self._kinds.setdefault(kind, len(self._kinds))

    def frame(self) -> pd.DataFrame:
        """All records as a table: see `table`."""
        return table([np.frombuffer(self._packed[event], TYPES[event]) for event in EVENTS], self._kinds)

    def drain(self) -> tuple[list[np.ndarray], list[str]]:
        """Take the records out, other threads adding some: those of each event, and the names of kinds."""
        taken = []
        for event, rows in self._packed.items():
            count = len(rows)
            taken.append(np.frombuffer(bytes(rows[:count]), TYPES[event]))
            del rows[:count]
        return taken, list(self._kinds)


def table(packed: Sequence[np.ndarray], names: Iterable[str]) -> pd.DataFrame:
    """Records as a table, in the order in which things ended: rows of each event, and the names of kinds.

    What ended at the same instant is ordered by its other columns, so that the table does not depend on
    the order in which things were recorded.
    """
    names = list(names)
    events = np.repeat(np.arange(len(EVENTS), dtype="i1"), [len(rows) for rows in packed])
    kinds = sorted(names)
    place: np.ndarray = np.array([kinds.index(kind) for kind in names])

    def column(name: str) -> np.ndarray:
        values: np.ndarray = np.concatenate([_column(rows, name) for rows in packed])
        return np.take(place, values) if name == "kind" else values

    def who() -> np.ndarray:
        node: np.ndarray = column("node").astype("i8") + 1
        return np.asarray((events.astype("i8") << 56) + (node << 28) + column("peer") + 1)

    # one at a time: with millions of rows a copy of all would be felt
    others = ("start", "version", "kind", "nbytes", "left", "staleness", "batches")
    ties = (np.nan_to_num(column(name)) for name in others)
    order = order_of(chain([column("end")], (who() for _ in [0]), ties))
    columns: dict[str, Any] = {"event": pd.Categorical.from_codes(events[order], categories=pd.Index(EVENTS))}
    columns |= {name: column(name)[order] for name in _COLUMNS}
    columns["kind"] = pd.Categorical.from_codes(columns["kind"], categories=pd.Index(kinds))
    return pd.DataFrame(columns, copy=False)


def _column(rows: np.ndarray, name: str) -> np.ndarray:
    """One column of the records of one event."""
    if name == "start" and name not in rows.dtype.fields:  # type: ignore[operator]
        name = "end"
    if name in rows.dtype.fields:  # type: ignore[operator]
        return np.asarray(rows[name])
    kind, nothing = _COLUMNS[name]
    return np.full(len(rows), nothing, kind)


def of(records: pd.DataFrame, event: str, columns: Sequence[str]) -> pd.DataFrame:
    """Some columns of the records of one event: with millions of rows the others would be felt."""
    rows = np.asarray(records["event"].array == event)
    # as records.loc would have it, whose fixed cost is what a small run would feel
    return pd.DataFrame({name: records[name].array[rows] for name in columns}, index=records.index[rows])


def join(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The records of several processes in one table, in the order in which things ended."""
    kinds = sorted({str(kind) for frame in frames for kind in frame["kind"].cat.categories})
    return in_order(pd.concat([frame.astype({"kind": pd.CategoricalDtype(kinds)}) for frame in frames]))


def in_order(records: pd.DataFrame) -> pd.DataFrame:
    """The records in the order in which things ended, which all that reads them relies on."""
    return records.sort_values(["end", "start", "node"], kind="stable", ignore_index=True)


@dataclass(frozen=True, repr=False)
class Result:
    """One run: its records, and what can be said from them."""

    engine: str
    """What made the run: "simulator" or "executor"."""
    plan: Plan
    """What was run: who did what, and owned which parameters."""
    records: pd.DataFrame
    """Everything that happened: a row for each event, in the order in which they ended (below)."""
    gradient_s: float
    """Mean seconds of one gradient on a worker of speed 1: the base of speedup."""
    parameters: np.ndarray | None = None
    """The final flat vector, shape (n,); None when nothing was learned."""
    warnings: Sequence[str] = field(default_factory=tuple)
    """What the engine warns of; `metrics["warnings"]` has also disturbances and what the metrics show."""
    disturbances: Sequence[str] = field(default_factory=tuple)
    """What makes the times of a real run doubtful, such as a host that gave its processors to others."""
    attempts: int = 1
    """How many times it was measured: again while it was disturbed."""
    utilisation: pd.DataFrame | None = None
    """How busy links and processors were: a row per resource and interval; None where it is not known.

    Columns: `resource` ("server 0's down-link", or "server 0" for its processor), `start` and `end` (s since
    the job started), `busy` (fraction of the interval, in [0, 1]), `bytes` (carried; NaN for a processor);
    and the fields of its `ResourceId`: `kind`, `owner`, `number`, `direction` and `other`.
    """
    interleaving: pd.DataFrame | None = None
    """What a real run can be repeated from (`lockstep.replay`): a row for each `Entry`, node after node.

    None from the simulator.
    """

    @property
    def scenario(self) -> Scenario:
        """What was run, with everything that presets and profiles say filled in."""
        return self.plan.scenario

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the run: `throughput`, `staleness`, `speedup`, … (docs/metrics.md), computed once.

        What `--json` prints: numbers, texts, lists and mappings only; None where a metric does not exist.
        """
        from lockstep.analysis.metrics import metrics

        return metrics(self)

    @cached_property
    def span(self) -> tuple[float, float]:
        """When the first mini-batch started and when the last update was applied.

        Both in seconds since the job started; the same if no update was applied.
        """
        from lockstep.analysis.computations import computations

        start = float(computations(self.records, ["start"])["start"].min())
        end = float(of(self.records, "update", ["end"])["end"].max())
        start = 0.0 if np.isnan(start) else start
        return start, start if np.isnan(end) else end

    @cached_property
    def breakdown(self) -> pd.DataFrame:
        """Where each worker's time went, as fractions of the run's duration: a row a worker.

        Columns `compute`, `update`, `send`, `network` and `wait` (docs/metrics.md), which sum to 1; all 0 in
        a run that took no time.
        """
        from lockstep.analysis.breakdown import breakdown

        return breakdown(self.records, self.scenario.cluster.workers, *self.span)

    @cached_property
    def memory(self) -> pd.DataFrame:
        """The high-water mark of each device in bytes: a row a worker, docs/memory.md has the columns.

        `activations` and `buffers` are as recorded, where gradients are computed in passes; all else is as
        predicted from the plan.
        """
        from lockstep.analysis.memory import memory

        return memory(self)

    @cached_property
    def bottleneck(self) -> "Bottleneck | None":
        """What limits the run, estimated from shares of its time; None if it did nothing."""
        from lockstep.analysis.bottleneck import bottleneck

        return bottleneck(self)

    @cached_property
    def busy(self) -> dict[str, float] | None:
        """Of every link and processor, by name, the share of the run that it was busy; None of a real run."""
        from lockstep.analysis.utilisation import mean_busy

        return mean_busy(self)

    @property
    def curve(self) -> pd.DataFrame:
        """What was evaluated on held-out data: a row for each snapshot; none if nothing was learned.

        Columns `time` (s since the first mini-batch started), `version` (updates applied until then), `loss`
        and `accuracy` (in [0, 1]; NaN for a problem, which has none), and those of the task's other metrics.
        """
        rows = of(self.records, "evaluation", ["end", "version", "loss", "accuracy"])
        others = of(self.records, "metric", ["version", "kind", "accuracy"])
        for name, values in others.groupby("kind", observed=True, sort=False):
            rows[str(name)] = rows["version"].map(values.set_index("version")["accuracy"])
        rows.insert(0, "time", rows.pop("end") - self.span[0])
        return rows.reset_index(drop=True)

    def to_json(self) -> str:
        """The metrics as one JSON object, without NaN or infinity."""
        return json.dumps(self.metrics, allow_nan=False)

    def save(self, directory: str | Path) -> None:
        """Write the run to a folder, which is made; what an earlier run left there is replaced, all at once.

        `scenario.yaml`, `result.json` (the metrics), `records.parquet` and, if there are any,
        `parameters.npy`, `utilisation.parquet` and `interleaving.parquet`. `analysis.saved.load` reads it
        back. Raises OSError.
        """
        text = self.to_json()
        with replacing(Path(directory), FILES) as new:
            (new / "scenario.yaml").write_text(dump(self.scenario), encoding="utf-8")
            self.records.to_parquet(new / "records.parquet", index=False)
            if self.parameters is not None:
                np.save(new / "parameters.npy", self.parameters)
            if self.utilisation is not None:
                self.utilisation.to_parquet(new / "utilisation.parquet", index=False)
            if self.interleaving is not None:
                self.interleaving.to_parquet(new / "interleaving.parquet", index=False)
            (new / "result.json").write_text(text + "\n", encoding="utf-8")
        from lockstep.analysis.incomplete import discard

        discard(Path(directory))

    def to_tensorboard(self, directory: str | Path) -> Path:
        """Write scalars for TensorBoard to `predicted` or `measured` below the folder, and return the file.

        Needs `pip install 'lockstep[tensorboard]'`; raises ScenarioError without it.
        """
        from lockstep.analysis.tensorboard import write

        return write(self, Path(directory))

    @property
    def row(self) -> dict[str, Any]:
        """The run as a row of a tidy table: what `analysis.table.row` gives."""
        from lockstep.analysis.table import row

        return row(self)

    @property
    def table(self) -> pd.DataFrame:
        """The main metrics in words and units, for people: a row each, one column of texts."""
        from lockstep.analysis.summary import DONE, main_metrics

        return pd.DataFrame({DONE[self.engine]: main_metrics(self)})

    def __repr__(self) -> str:
        from lockstep.analysis.summary import headline

        return headline(self)

    def _repr_html_(self) -> str:
        from lockstep.analysis.notebook import html

        return html(self)
