"""How busy links and processors were."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lockstep.analysis.given import given
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
        import pandas as pd

        codes = np.repeat(np.arange(len(self.ids)), len(self.start))
        names = pd.Index([id.name for id in self.ids], dtype=str)
        return pd.DataFrame(
            {
                "resource": pd.Categorical.from_codes(codes, categories=names),
                "start": np.tile(self.start, len(self.ids)),
                "end": np.tile(self.end, len(self.ids)),
                "bytes": self.nbytes.ravel(),
                "busy": self.busy.ravel(),
                **{name: _of_each([getattr(id, name) for id in self.ids], codes) for name in FIELDS},
            }
        )


def _of_each(values: Sequence[Any], codes: np.ndarray) -> Any:
    """Of each row the value that its code stands for; texts as categories."""
    import pandas as pd

    if not values or isinstance(values[0], int):
        return np.array(values, np.int32)[codes]
    categories = {value: code for code, value in enumerate(dict.fromkeys(values))}
    found = np.array([categories[value] for value in values], np.int8)[codes]
    return pd.Categorical.from_codes(found, categories=pd.Index(list(categories), dtype=str))


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
    if isinstance(table, Utilisation):
        names = [id.name for id in table.ids]
        codes = np.repeat(np.arange(len(names)), len(table.start))
        start, end = (np.tile(times, len(names)) for times in (table.start, table.end))
        share = table.busy.ravel()
    else:
        codes, found = table["resource"].factorize()
        names = [str(name) for name in found]
        start, end, share = (table[name].to_numpy() for name in ("start", "end", "busy"))
    within = np.maximum(np.minimum(end, finish) - np.maximum(start, begin), 0)
    order = np.argsort(codes, kind="stable")
    busy = np.add.reduceat((share * within)[order], np.searchsorted(codes[order], np.arange(len(names))))
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
