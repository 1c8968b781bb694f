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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.analysis.given import Piece, Words, framed, small
from lockstep.analysis.order import AT_ONCE, order_of

if TYPE_CHECKING:  # it takes longer to load than a small simulation, which needs it only to show a table
    import pandas as pd

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
    "group": ("node", "end", "version", "nbytes", "kind"),
}
EVENTS = tuple(_FIELDS)
MOST_S = 1e12  # of a time in a file
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


class Columns:
    """Records as arrays, in the order in which things ended: what metrics read. `frame` is their table.

    What ended at the same instant is ordered by its other columns, so that nothing depends on the order in
    which things were recorded.
    """

    def __init__(self, packed: Sequence[np.ndarray], names: Iterable[str]) -> None:
        """packed: rows of each event, which are put in order in their place when they are first read: with
        millions of them each copy is felt; names: of kinds, by their numbers."""
        self._packed, self._names = packed, list(names)

    @cached_property
    def _rows(self) -> dict[str, np.ndarray]:
        """Of each event that happened, in order."""
        place = np.array([self._kinds.index(kind) for kind in self._names], "i4")
        found = {event: rows for event, rows in zip(EVENTS, self._packed, strict=True) if len(rows)}
        for rows in found.values():
            _put_in_order(rows, place)
        return found

    @cached_property
    def _kinds(self) -> Sequence[str]:
        return sorted(self._names)

    def __len__(self) -> int:
        return sum(map(len, self._packed))

    def of(self, event: str, name: str) -> np.ndarray:
        """A column of the records of one event: not a copy of it."""
        return _column(self._rows.get(event, np.empty(0, TYPES[event])), name)

    def happened(self, event: str) -> bool:
        """Whether there is a record of an event."""
        return event in self._rows

    def frame(self) -> "pd.DataFrame":
        """The table."""
        return framed(next(self.pieces(max(1, len(self)))), {"event": _categories()})

    def pieces(self, rows: int) -> Iterator[Piece]:
        """The columns of the table."""
        given, left = list(self._rows.values()), len(self)
        while True:
            # the next rows of all are among the next rows of each; what ends at one instant is in their order
            some = [each[:rows] for each in given]
            ends = np.concatenate([np.empty(0), *(each["end"] for each in some)])
            of = np.repeat(np.arange(len(some), dtype="i1"), [len(each) for each in some])
            of = of[np.argsort(ends, kind="stable")[:rows]]
            del ends
            here = [np.flatnonzero(of == number) for number in range(len(some))]
            yield self._piece([each[: len(at)] for each, at in zip(some, here, strict=True)], here)
            given = [each[len(at) :] for each, at in zip(given, here, strict=True)]
            left -= len(of)
            if not left:
                return

    def _piece(self, rows: Sequence[np.ndarray], here: Sequence[np.ndarray]) -> Piece:
        """Rows of each event that happened, which have these places in the table."""
        count = sum(map(len, here))
        events = np.empty(count, small(EVENTS))
        for event, at in zip(self._rows, here, strict=True):
            events[at] = EVENTS.index(event)
        columns: dict[str, np.ndarray | Words] = {"event": Words(events, EVENTS)}
        for name in _COLUMNS:
            found = [_column(each, name) for each in rows]
            values: np.ndarray = np.broadcast_to(_nothing(name), count)  # takes no memory
            if any(len(each) and each.strides[0] for each in found):
                values = np.empty(count, values.dtype)
                for at, each in zip(here, found, strict=True):
                    values[at] = each
            columns[name] = values
            if name == "kind":
                columns[name] = Words(values.astype(small(self._kinds)), self._kinds)
        return columns


@cache
def _categories() -> "pd.Index[str]":
    """Of all tables: it keeps where each event is."""
    import pandas as pd

    return pd.Index(EVENTS)


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


def _put_in_order(rows: np.ndarray, place: np.ndarray) -> None:
    """place: of the numbers of kinds in the order of their names."""
    fields = rows.dtype.names or ()
    if "kind" in fields:
        rows["kind"] = place[rows["kind"]]
    ties = ("node", "peer", "start", "version", "kind", "nbytes", "left", "staleness", "batches")
    columns = (np.nan_to_num(rows[name]) for name in ties if name in fields)
    order = order_of(chain((rows["end"].copy() for _ in [0]), columns))
    for name in fields:
        values = rows[name].copy()
        for at in range(0, len(order), AT_ONCE):
            rows[name][at : at + AT_ONCE] = values[order[at : at + AT_ONCE]]


def _column(rows: np.ndarray, name: str) -> np.ndarray:
    """One column of the records of one event; one without memory where all is the same."""
    if name == "start" and name not in rows.dtype.fields:  # type: ignore[operator]
        name = "end"
    if name in rows.dtype.fields:  # type: ignore[operator]
        return rows[name]
    return np.broadcast_to(_nothing(name), len(rows))


def _nothing(name: str) -> np.ndarray:
    kind, nothing = _COLUMNS[name]
    return np.array(nothing, kind)


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
    for name, (kind, _) in _COLUMNS.items():
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
    for name, (kind, nothing) in _COLUMNS.items():
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
