"""How busy links and processors were."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lockstep.strategies.resource import FIELDS, ResourceId

if TYPE_CHECKING:
    from lockstep.analysis.result import Result

MOST = 64  # resources named in the metrics


def check(table: pd.DataFrame) -> None:
    """Raise ValueError for a table from a file that is no `Result.utilisation`; KeyError for a column."""
    for name in ("start", "end", "busy", "bytes"):
        numbers = table[name]
        if (
            numbers.dtype.kind not in "iuf"
            or np.isinf(numbers).any()
            or (name != "bytes" and numbers.isna().any())
        ):
            raise ValueError(f"the utilisation's {name} is not finite somewhere")
    if not all(isinstance(name, str) for name in table["resource"].unique()):
        raise ValueError("the utilisation has what is no resource")
    for fields in table[list(FIELDS)].drop_duplicates().to_dict("records"):
        ResourceId.of(fields)  # type: ignore[arg-type]


def of_those_there(result: "Result") -> pd.DataFrame | None:
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
    table, (begin, finish) = result.utilisation, result.span
    if table is None or finish <= begin:
        return None
    start, end, share = (table[name].to_numpy() for name in ("start", "end", "busy"))
    within = np.maximum(np.minimum(end, finish) - np.maximum(start, begin), 0)
    seconds = pd.Series(share * within)
    busy = seconds.groupby(table["resource"].array, sort=False, observed=True).sum()
    shares = np.clip(busy.to_numpy() / (finish - begin), 0.0, 1.0)
    return dict(zip(map(str, busy.index), shares.tolist(), strict=True))


def busy_resources(result: "Result") -> dict[ResourceId, float]:
    """`Result.busy` by what each resource is, in the order of the table; empty where it is not known."""
    table, busy = result.utilisation, result.busy
    if table is None or busy is None:
        return {}
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
