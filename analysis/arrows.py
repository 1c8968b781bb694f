"""Which message led to what: from a push to the update that it is in, from an answer to the next gradient.

Records do not say it; it follows from their order. A holder takes what one sender pushed in the order in
which it arrived.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lockstep.analysis.records import Result
from lockstep.strategies.placement import Role


def arrows(result: Result) -> pd.DataFrame:
    """A row an arrow, ordered by message, then by what it led to: their row numbers in the records."""
    records = result.records
    event = records["event"].to_numpy()
    told = np.flatnonzero((event == "message") & (records["nbytes"] > 0).to_numpy())
    pairs = [_applied(result, event, told), _answered(records, event, told)]
    table = pd.DataFrame(np.concatenate(pairs), columns=["message", "effect"])
    return table.sort_values(["message", "effect"], ignore_index=True)


def _applied(result: Result, event: np.ndarray, told: np.ndarray) -> np.ndarray:
    """(message, update or drop), shape (n, 2)."""
    records = result.records
    node, peer, end = (records[name].to_numpy() for name in ("node", "peer", "end"))
    done = np.flatnonzero(((event == "update") | (event == "drop")) & (node != peer))
    senders = _senders(node[done], peer[done], result.plan.roles)
    messages = pd.Series(told).groupby([peer[told], node[told]], sort=False).indices
    found = [np.empty((0, 2), int)]
    for pair, places in pd.Series(done).groupby([node[done], senders], sort=False).indices.items():
        if pair not in messages:
            continue
        mine, sent = done[places], told[messages[pair]]
        led = _in_turn(end[sent], end[mine])
        found.append(np.column_stack([sent[led], mine])[led >= 0])
    return np.concatenate(found)


def _senders(holders: np.ndarray, workers: np.ndarray, roles: Sequence[Role]) -> np.ndarray:
    """Who handed a worker's push to a holder: the worker, or the relay of its group just below the holder."""
    found: dict[tuple[int, int], int] = {}
    for holder, worker in set(zip(holders.tolist(), workers.tolist(), strict=True)):
        sender, shard = worker, roles[holder].shard
        above = [rank for rank in roles[sender].parents if roles[rank].shard == shard]
        while above and above[0] != holder:
            sender = above[0]
            above = list(roles[sender].parents)
        found[holder, worker] = sender if above else worker
    return np.array([found[pair] for pair in zip(holders.tolist(), workers.tolist(), strict=True)], int)


def _in_turn(arrivals: np.ndarray, times: np.ndarray) -> np.ndarray:
    """For each of the ordered `times` the number of the message that led to it, -1 for none.

    The k-th to the k-th; where a push goes in parts, the last part; where a relay sums, several come from
    one. If that does not fit, the last that had arrived.
    """
    if len(arrivals) < len(times):
        instants, which = np.unique(times, return_inverse=True)
        if len(instants) < len(times):
            return np.asarray(_in_turn(arrivals, instants)[which])
    for parts in range(len(arrivals) // len(times), 0, -1):
        last = parts * np.arange(1, len(times) + 1) - 1
        if (arrivals[last] <= times).all():
            return last
    return np.searchsorted(arrivals, times, side="right") - 1


def _answered(records: pd.DataFrame, event: np.ndarray, told: np.ndarray) -> np.ndarray:
    """(message, gradient), shape (n, 2): the last to arrive before it, and after the one before had begun."""
    begun = np.flatnonzero(event == "gradient")
    gradients = pd.DataFrame(
        {
            "node": records["node"].to_numpy()[begun],
            "at": records["start"].to_numpy()[begun],
            "effect": begun,
        }
    ).sort_values("at", kind="stable")
    gradients["before"] = gradients.groupby("node")["at"].shift(fill_value=-np.inf)
    arrived = pd.DataFrame(
        {
            "node": records["peer"].to_numpy()[told],
            "at": records["end"].to_numpy()[told],
            "message": told,
        }
    )
    arrived["arrival"] = arrived["at"]
    found = pd.merge_asof(gradients, arrived, on="at", by="node").dropna(subset="message")
    found = found[found["arrival"] > found["before"]]
    return found[["message", "effect"]].to_numpy().astype(int)
