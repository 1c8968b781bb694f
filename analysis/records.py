"""What a run leaves behind, in the same form from both engines: its records.

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
                                                                 when the failure was noticed, end when it
                                                                 is at work
checkpoint who writes or reads it –                              kind: write or read; version, nbytes
undone     as an update or a drop that was lost when the job went back to a checkpoint
group      a worker that tells it –                              kind: the workers whose gradients are in the
                                                                 updates from then on; version from which
                                                                 they go on; nbytes: the group's number
metric     –                      –                              version, kind: its name; accuracy: its
                                                                 value
========== ====================== ============================== =======================================

Ranks count the workers first, then the servers; −1 stands for nobody.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.analysis.columns import COLUMNS, EVENTS, FIELDS, TYPES, Columns

if TYPE_CHECKING:  # it takes longer to load than a small simulation, which needs it only to show a table
    import pandas as pd

MOST_S = 1e12  # of a time in a file
# A record as packed bytes: millions of them fit into memory, and packing is faster than an array's extend.
_CODES = {"i4": "i", "i8": "q", "f8": "d"}
_PACK = {
    event: Struct("=" + "".join(_CODES[COLUMNS[name][0]] for name in fields)).pack
    for event, fields in FIELDS.items()
}
_PACK_GRADIENT, _PACK_MESSAGE, _PACK_UPDATE = _PACK["gradient"], _PACK["message"], _PACK["update"]


class Recorder:
    """Collects the records of one engine, or of one process of it: packed, 24 to 44 bytes each."""

    def __init__(self) -> None:
        self._kinds: dict[str, int] = {"": 0}
        self._begin()

    def _begin(self) -> None:
        self._packed = {event: bytearray() for event in EVENTS}
        # The three that a run consists of are at hand: looking them up would be felt.
        self._gradients, self._messages, self._updates = (
            self._packed[event] for event in ("gradient", "message", "update")
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the records so far."""
        return sum(map(len, self._packed.values()))

    def last(self, event: str) -> float | None:
        """When the last record of an event so far ended; None: there is none."""
        ends = np.frombuffer(self._packed[event], TYPES[event])["end"]
        return float(ends.max()) if len(ends) else None

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
        if columns["end"].size:
            self._fill(event, {"kind": self._code(kind), **columns})

    def rows(self, event: str, columns: Mapping[str, np.ndarray], kinds: Sequence[str]) -> None:
        """Many records of one event: all its columns, of which that of kinds has the numbers of these."""
        codes = {}
        if "kind" in columns:
            found, which = np.unique(columns["kind"], return_inverse=True)
            codes["kind"] = np.array([self._code(kinds[kind]) for kind in found.tolist()], "i4")[which]
        self._fill(event, {**columns, **codes})

    def _fill(self, event: str, columns: Mapping[str, Any]) -> None:
        """Columns that broadcast to the shape of `end`."""
        rows = np.empty(columns["end"].shape, TYPES[event])
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
        fields, given = FIELDS[event], iter(values)
        codes = [self._code(kind) if name == "kind" else next(given) for name in fields]  # type: ignore[arg-type]
        self._packed[event] += _PACK[event](*codes)

    def _code(self, kind: str) -> int:
        return self._kinds.setdefault(kind, len(self._kinds))

    def columns(self) -> Columns:
        """Take all records out. Nobody may be adding some."""
        packed = [np.frombuffer(self._packed[event], TYPES[event]) for event in EVENTS]
        self._begin()
        return Columns(packed, self._kinds)

    def frame(self) -> "pd.DataFrame":
        """The same as a table."""
        return self.columns().frame()

    def drain(self) -> tuple[list[np.ndarray], list[str]]:
        """Take the records out, other threads adding some: those of each event, and the names of kinds."""
        taken = []
        for event, rows in self._packed.items():
            count = len(rows)
            taken.append(np.frombuffer(bytes(rows[:count]), TYPES[event]))
            del rows[:count]
        return taken, list(self._kinds)


def of(records: "pd.DataFrame", event: str, columns: Sequence[str]) -> "pd.DataFrame":
    """Some columns of the records of one event: with millions of rows the others would be felt."""
    import pandas as pd

    rows = _rows(records, event)
    # as records.loc would have it, whose fixed cost is what a small run would feel
    found = {name: records[name].array.take(rows) for name in columns}
    return pd.DataFrame(found, index=records.index[rows], copy=False)


def values(records: "Columns | pd.DataFrame", event: str, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """As `of`, of columns of numbers: arrays, of which a small run feels less than of a table."""
    if isinstance(records, Columns):
        return {name: records.of(event, name) for name in columns}
    rows = _rows(records, event)
    return {name: np.asarray(records[name])[rows] for name in columns}


def has(records: "Columns | pd.DataFrame", event: str) -> bool:
    """Whether there is a record of an event."""
    return records.happened(event) if isinstance(records, Columns) else len(_rows(records, event)) > 0


def _rows(records: "pd.DataFrame", event: str) -> np.ndarray:
    events: Any = records["event"].array
    known = events.categories
    return np.flatnonzero(events.codes == known.get_loc(event)) if event in known else np.arange(0)


def checked(records: "pd.DataFrame", nodes: int) -> "pd.DataFrame":
    """Return the records in a file; ValueError if it has none of a run of so many processes.

    Times are finite, nobody else takes part, nothing ends before it starts, and words are categories: all
    that reads records relies on that.
    """
    for name, (kind, _) in COLUMNS.items():
        if name not in records:
            raise ValueError(f"the records have no column {name!r}")
        if name != "kind" and records[name].dtype.kind not in ("iu" if kind[0] == "i" else "iuf"):
            raise ValueError(f"the records' {name} is no {'whole ' * (kind[0] == 'i')}number everywhere")
    for name, known in (("event", EVENTS), ("kind", None)):
        for value in records[name].unique() if name in records else [None]:
            if not isinstance(value, str) or (known and value not in known):
                raise ValueError(f"the records' {name} is {str(value)[:30]!r} somewhere")
    if len(records) and not abs(records["staleness"]).max() < 1 << 31:
        raise ValueError("the records' staleness is too large somewhere")
    if not (np.abs(records[["start", "end"]].to_numpy()) <= MOST_S).all():
        raise ValueError("a time of the records is not finite, or is no run's")
    if (records["end"] < records["start"]).any():
        raise ValueError("a record ends before it starts")
    peers = records["peer"][records["event"] != "pass"]  # of a pass it is a piece of the model
    for name, ranks in (("node", records["node"]), ("peer", peers)):
        if len(ranks) and not -1 <= ranks.min() <= ranks.max() < nodes:
            raise ValueError(f"the records' {name} is not of the run's {nodes} processes everywhere")
    types: dict[str, Any] = {"event": "category", "kind": "category"}
    for name, (kind, nothing) in COLUMNS.items():
        if name == "kind":
            continue
        types[name] = np.dtype(kind)
        if kind[0] == "i" and len(records) and name != "staleness":
            least, most = records[name].min(), records[name].max()
            if not nothing <= least <= most <= np.iinfo(kind).max:
                raise ValueError(f"the records' {name} is negative, or too large, somewhere")
    others = {name: kind for name, kind in types.items() if records[name].dtype != kind}
    return records.astype(others) if others else records


def join(frames: "Sequence[pd.DataFrame]") -> "pd.DataFrame":
    """The records of several processes in one table, in the order in which things ended."""
    import pandas as pd

    kinds = sorted({str(kind) for frame in frames for kind in frame["kind"].cat.categories})
    return in_order(pd.concat([frame.astype({"kind": pd.CategoricalDtype(kinds)}) for frame in frames]))


def in_order(records: "pd.DataFrame") -> "pd.DataFrame":
    """The records in the order in which things ended, which all that reads them relies on."""
    return records.sort_values(["end", "start", "node"], kind="stable", ignore_index=True)
