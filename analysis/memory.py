"""The most that each device had in memory at once: predicted vectors, and what passes have really kept."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lockstep.analysis.records import of
from lockstep.analysis.result import Result

if TYPE_CHECKING:
    import pandas as pd


def told(row: "Mapping[str, Any] | pd.Series") -> bool:
    """Whether people see a run's memory: it is known, and its model is split or its devices have a limit.

    row: of a table of runs (`analysis.table.row`).
    """
    known = {str(key) for key, value in row.items() if value is not None and value == value}
    split = any(key.startswith("parallelism.") for key in known)
    limited = "cluster.memory" in known or '"memory"' in str(row.get("cluster.kinds"))
    return "memory_bytes" in known and (split or limited)


def most(result: Result) -> int:
    """The high-water mark of the device that has the largest, in bytes."""
    plan = result.plan
    if plan.stages:
        return int(result.memory["total"].max())
    servers = plan.served_on
    alike = {plan.places[worker][0]: worker for worker in plan.workers if worker not in servers}
    return max(plan.high_water(worker).total for worker in [*alike.values(), *servers])


def memory(result: Result) -> "pd.DataFrame":
    """See `Result.memory`."""
    import pandas as pd

    plan = result.plan
    marks = [*map(plan.high_water, plan.workers)]
    found = pd.DataFrame(marks, index=pd.Index(plan.workers, name="worker"))
    if plan.stages:
        passes = of(result.records, "pass", ["node", "nbytes"])
        found["activations"] = passes.groupby("node")["nbytes"].max().reindex(found.index, fill_value=0)
        messages = of(result.records, "message", ["node", "kind", "nbytes"])
        between = messages[messages["kind"].isin(["activation", "error"])]
        largest = between.groupby(["node", "kind"], observed=True)["nbytes"].max()
        found["buffers"] = largest.groupby("node").sum().reindex(found.index, fill_value=0)
    found["total"] = found.sum(axis=1)
    return found
