"""How busy links and processors were."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lockstep.analysis.given import Piece, Words, framed, given, small
from lockstep.analysis.records import MOST_S
from lockstep.strategies.resource import FIELDS, ResourceId

if TYPE_CHECKING:
    import pandas as pd

    from lockstep.analysis.result import Result

MOST = 64  # resources named in the metrics


class Utilisation(NamedTuple):
    """`Result.utilisation` as arrays, of n resources in the same k intervals. `frame` is the table."""

    ids: Sequence[ResourceId]
    start: np.ndarray
    """Of each interval, shape (k,). s"""
    end: np.ndarray
    nbytes: np.ndarray
    """What links carried, shape (n, k)."""
    busy: np.ndarray
    """The fraction of the interval, or of what a link can carry in it; shape (n, k)."""

    def frame(self) -> "pd.DataFrame":
        """A row a resource and interval, in the order of both."""
        return framed(next(self.pieces(self.busy.size)), {})

    def pieces(self, rows: int) -> Iterator[Piece]:
        """The columns of `frame`."""
        count = len(self.ids)
        at_once = max(1, rows // max(1, len(self.start)))  # resources
        names = [id.name for id in self.ids]
        for first in range(0, max(1, count), at_once):
            some = np.arange(first, min(first + at_once, count), dtype=small(names))
            of_row = np.repeat(some, len(self.start))
            yield {
                "resource": Words(of_row, names),
                "start": np.tile(self.start, len(some)),
                "end": np.tile(self.end, len(some)),
                "bytes": self.nbytes[some].ravel(),
                "busy": self.busy[some].ravel(),
                **{name: _of_each([getattr(id, name) for id in self.ids], of_row) for name in FIELDS},
            }


def _of_each(values: Sequence[Any], of_row: np.ndarray) -> np.ndarray | Words:
    """Of each row the value with its number."""
    if not values or isinstance(values[0], int):
        found: np.ndarray = np.array(values, np.int32)[of_row]
        return found
    texts = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return Words(np.array([texts[value] for value in values], np.int8)[of_row], list(texts))


def check(table: "pd.DataFrame") -> None:
    """Raise ValueError for a table from a file that is no `Result.utilisation`; KeyError for a column."""
    for name in ("start", "end", "busy", "bytes"):
        numbers = table[name]
        if (
            numbers.dtype.kind not in "iuf"
            or np.isinf(numbers).any()
            or (name != "bytes" and numbers.isna().any())
            or (name in ("start", "end") and (numbers.abs() > MOST_S).any())
        ):
            raise ValueError(f"the utilisation's {name} is not finite somewhere, or no run's")
    if not all(isinstance(name, str) for name in table["resource"].unique()):
        raise ValueError("the utilisation has what is no resource")
    for fields in table[list(FIELDS)].drop_duplicates().to_dict("records"):
        ResourceId.of(fields)  # type: ignore[arg-type]


def of_those_there(result: "Result") -> "pd.DataFrame | None":
    """`Result.utilisation`, without what is a server's or a relay's where the strategy has none."""
    table = result.utilisation
    if table is None or result.plan.has_servers:
        return table
    return table[~table["owner"].isin(["server", "relay"])]


def mean_busy(result: "Result") -> dict[str, float] | None:
    """Of every resource the fraction of the run's duration in which it was busy; None where unknown.

    `Result.utilisation` says how busy each was within intervals; one that reaches beyond the run counts
    with the part that lies within.
    """
    table, (begin, finish) = given(result, "utilisation"), result.span
    if table is None or finish <= begin:
        return None

    def within(start: np.ndarray, end: np.ndarray) -> np.ndarray:
        seconds: np.ndarray = np.maximum(np.minimum(end, finish) - np.maximum(start, begin), 0)
        return seconds

    if isinstance(table, Utilisation):
        names = [id.name for id in table.ids]
        each = (table.busy * within(table.start, table.end)).ravel()
        first = np.arange(len(names)) * len(table.start)
    else:
        codes, found = table["resource"].factorize()
        names = [str(name) for name in found]
        start, end, share = (table[name].to_numpy() for name in ("start", "end", "busy"))
        order = np.argsort(codes, kind="stable")
        each = (share * within(start, end))[order]
        first = np.searchsorted(codes[order], np.arange(len(names)))
    busy = np.add.reduceat(each, first)
    return dict(zip(names, np.clip(busy / (finish - begin), 0.0, 1.0).tolist(), strict=True))


def busy_resources(result: "Result") -> dict[ResourceId, float]:
    """`Result.busy` by what each resource is, in the order of the table; empty where it is not known."""
    table, busy = given(result, "utilisation"), result.busy
    if table is None or busy is None:
        return {}
    if isinstance(table, Utilisation):
        return {id: busy[id.name] for id in table.ids}
    first = ~table["resource"].duplicated().to_numpy()
    fields = zip(*(table[name].array[first].tolist() for name in FIELDS), strict=True)
    ids = (ResourceId.of(dict(zip(FIELDS, each, strict=True))) for each in fields)
    names = table["resource"].array[first].tolist()
    return dict(zip(ids, (busy[str(name)] for name in names), strict=True))


def utilisation(result: "Result") -> dict[str, float] | None:
    """`Result.busy` of all resources, or of the 64 busiest if there are more, in the order of the table."""
    busy = result.busy
    if busy is None or len(busy) <= MOST:
        return busy
    busiest = set(sorted(busy, key=lambda name: -busy[name])[:MOST])
    return {name: share for name, share in busy.items() if name in busiest}
