"""Which message led to what: from a push to the update that it is in, from an answer to the next gradient.

And from an activation or an error to the pass that it is for. Records do not say it; it follows from their
order. An owner takes what one sender pushed in the order in which it arrived.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lockstep.analysis.computations import computations
from lockstep.analysis.records import of
from lockstep.analysis.result import Result
from lockstep.strategies.placement import Role

# What a stage hands on after a pass: the kinds of the pass, and which way it goes through the model.
_AFTER = {"activation": ({"forward"}, 1), "error": ({"backward", "backward-inputs"}, -1)}


def arrows(result: Result) -> pd.DataFrame:
    """A row an arrow, ordered by message, then by what it led to: their row numbers in the records."""
    records = result.records
    event = records["event"].to_numpy()
    message, handed_on = event == "message", records["kind"].isin(_AFTER).to_numpy()
    told = np.flatnonzero(message & ~handed_on & (records["nbytes"] > 0).to_numpy())
    pairs = [_applied(result, event, told), _answered(records, told)]
    pairs += [_handed_on(result, kind) for kind in _AFTER if handed_on.any()]
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


def _senders(owners: np.ndarray, workers: np.ndarray, roles: Sequence[Role]) -> np.ndarray:
    """Who handed a worker's push to an owner: the worker, or the relay of its group just below the owner."""
    found: dict[tuple[int, int], int] = {}
    for owner, worker in set(zip(owners.tolist(), workers.tolist(), strict=True)):
        sender, shard = worker, roles[owner].shard
        above = [rank for rank in roles[sender].parents if roles[rank].shard == shard]
        while above and above[0] != owner:
            sender = above[0]
            above = list(roles[sender].parents)
        found[owner, worker] = sender if above else worker
    return np.array([found[pair] for pair in zip(owners.tolist(), workers.tolist(), strict=True)], int)


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


def _answered(records: pd.DataFrame, told: np.ndarray) -> np.ndarray:
    """(message, gradient), shape (n, 2): the last to arrive before it, and after the one before had begun.

    Of a gradient in passes, its first pass.
    """
    gradients = computations(records, ["node", "start", "version"]).rename(columns={"start": "at"})
    gradients = gradients.sort_values("at", kind="stable")
    gradients = gradients[~gradients.duplicated(["node", "version"])]
    gradients["effect"] = gradients.index
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


def _handed_on(result: Result, kind: str) -> np.ndarray:
    """(activation or error, pass), shape (n, 2).

    A stage hands on what each of its passes has made, in their order, to the device with the next piece of
    the model; an error to that with the piece before.
    """
    after, towards = _AFTER[kind]
    passes = of(result.records, "pass", ["node", "peer", "start", "kind", "version", "batches"])
    passes = passes[passes["kind"].isin(after)]
    passes["replica"] = [result.plan.stages[rank].replica for rank in passes["node"]]
    made = passes[passes["peer"] != (len(result.plan.pieces) - 1 if towards > 0 else 0)]
    one = ["node", "peer", "version", "batches"]  # a piece may have several segments
    passes = passes.sort_values("start", kind="stable").drop_duplicates(one)
    made = made.sort_values("start", kind="stable").drop_duplicates(one, keep="last")
    made = made.assign(peer=made["peer"] + towards)
    sent = of(result.records, "message", ["node", "start", "kind"])
    sent = sent[sent["kind"] == kind].sort_values("start", kind="stable")
    for table in (made, sent):
        table["turn"] = table.groupby("node").cumcount()
    led = sent.reset_index(names="message").merge(made, on=["node", "turn"])
    passes["place"] = [result.plan.stages[rank].tensor for rank in passes["node"]]
    led["place"] = [result.plan.stages[rank].tensor for rank in led["node"]]
    same = ["replica", "place", "peer", "version", "batches"]
    led = led[["message", *same]].merge(passes.reset_index(names="effect"), on=same)
    return led[["message", "effect"]].to_numpy().astype(int)
