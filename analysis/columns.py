"""A run's records as arrays (records.py says what they are), and the table of them."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from lockstep.analysis.given import Piece, Words, framed, small
from lockstep.analysis.order import AT_ONCE, in_order, order_of

if TYPE_CHECKING:  # it takes longer to load than a small simulation, which needs it only to show a table
    import pandas as pd

# What is kept of each event, in the order in which its Recorder method gives it.
FIELDS = {
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
EVENTS = tuple(FIELDS)
COPIES = 5  # of all records besides them, while they are put in order
# The columns of the table, their types, and what stands where an event does not have one.
COLUMNS: dict[str, tuple[str, float]] = {
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
TYPES = {event: np.dtype([(name, COLUMNS[name][0]) for name in fields]) for event, fields in FIELDS.items()}


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
        for name in COLUMNS:
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


def _put_in_order(rows: np.ndarray, place: np.ndarray) -> None:
    """place: of the numbers of kinds in the order of their names."""
    fields = rows.dtype.names or ()
    if "kind" in fields:
        rows["kind"] = place[rows["kind"]]
    ties = ("node", "peer", "start", "version", "kind", "nbytes", "left", "staleness", "batches")

    def columns() -> Iterator[np.ndarray]:
        yield rows["end"]
        yield from (_without_nan(rows[name]) for name in ties if name in fields)

    if in_order(columns()):  # as most are recorded
        return
    order = order_of(columns())
    for name in fields:
        values = rows[name].copy()
        for at in range(0, len(order), AT_ONCE):
            rows[name][at : at + AT_ONCE] = values[order[at : at + AT_ONCE]]


def _without_nan(values: np.ndarray) -> np.ndarray:
    """nan is unlike itself: 0 instead."""
    return np.nan_to_num(values) if values.dtype.kind == "f" else values


def _column(rows: np.ndarray, name: str) -> np.ndarray:
    """One column of the records of one event; one without memory where all is the same."""
    if name == "start" and name not in rows.dtype.fields:  # type: ignore[operator]
        name = "end"
    if name in rows.dtype.fields:  # type: ignore[operator]
        return rows[name]
    return np.broadcast_to(_nothing(name), len(rows))


def _nothing(name: str) -> np.ndarray:
    kind, nothing = COLUMNS[name]
    return np.array(nothing, kind)
