"""The critical path of one iteration: the chain of what was done that ended it, from the records.

Walked backwards: what a process does begins when its own activity before it ends, or when the message arrives
for which it waited, whichever is later; a message begins at its sender. It says what one run waited for, and
not what a change would save, which `lockstep.why` tries.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from lockstep.analysis.breakdown import covered
from lockstep.analysis.computations import computing
from lockstep.analysis.records import of, values
from lockstep.analysis.result import Result

Activity = Literal[
    "computing", "own updates", "network", "collective", "server's update", "checkpoint", "down", "waiting"
]
_OWN: Mapping[str, Activity] = {
    "gradient": "computing",
    "pass": "computing",
    "work": "own updates",
    "memory": "network",
    "collective": "collective",
    "checkpoint": "checkpoint",
    "fault": "down",
}
_ITERATION = 1  # from 0: the second, because the first begins with an empty network
_SAME = 1e-9  # of a time: what is left of rounding


class Part(NamedTuple):
    """A part of the path: from `start` to `end`, s since the job started, without gaps between parts."""

    what: Activity
    """ "network": a message is under way; "waiting": nothing that is recorded, such as overheads."""
    node: int
    """The rank that did it; of a message its sender."""
    peer: int
    """The receiver of a message; -1 of all else."""
    start: float
    left: float
    """When the last byte of a message had left; its end of all else, and where that is not known."""
    end: float


@dataclass(frozen=True)
class CriticalPath:
    """What bounds an iteration of a worker, in the order in which it happened."""

    worker: int
    """Whose iteration takes longest, the first of equals."""
    iteration: int
    """Which, from 0."""
    parts: tuple[Part, ...]
    hidden: float
    """Of the mean worker in that time, seconds in which it computed while messages of its were under way."""
    exposed: float
    """Seconds in which they were, and it did not compute."""

    @property
    def seconds(self) -> float:
        """How long the iteration took."""
        return self.parts[-1].end - self.parts[0].start

    @property
    def shares(self) -> dict[Activity, float]:
        """Of that time, the fraction of each activity, the largest first; they sum to 1."""
        found: dict[Activity, float] = {}
        for part in self.parts:
            found[part.what] = found.get(part.what, 0.0) + (part.end - part.start) / self.seconds
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def critical_path(result: Result, iteration: int = _ITERATION) -> CriticalPath | None:
    """The path that ends an iteration (from 0; the last, if there are fewer); None if nothing was computed.

    An iteration of a worker is from the beginning of a gradient to the beginning of its next one.
    """
    gradients = of(result.records, "gradient", ["node", "start"]).sort_values(["node", "start"])
    if gradients.empty:
        return None
    worker, iteration, begin, end = _longest(gradients, iteration, result.span[1])
    if end <= begin:
        return None
    records = result.records
    inside = records[((records["end"] >= begin * (1 - _SAME)) & (records["start"] <= end)).to_numpy()]
    hidden, exposed = _overlap(inside, result.scenario.cluster.workers, begin, end)
    parts = _walk(_Done(inside, len(result.plan.workers)), worker, begin, end)
    return CriticalPath(worker, iteration, tuple(parts), hidden, exposed)


def _longest(gradients: pd.DataFrame, iteration: int, last: float) -> tuple[int, int, float, float]:
    """The worker whose iteration takes longest, which one, and its times.

    Of those that begin a next one, if any does: the others have ended, or are gone.
    """
    starts = {int(str(node)): its.to_numpy() for node, its in gradients.groupby("node")["start"]}
    iteration = max(0, min(iteration, max(map(len, starts.values())) - 2))
    spans = {
        node: (its[iteration], its[iteration + 1] if len(its) > iteration + 1 else last)
        for node, its in starts.items()
        if len(its) > iteration
    }
    if any(len(its) > iteration + 1 for its in starts.values()):
        spans = {node: span for node, span in spans.items() if len(starts[node]) > iteration + 1}
    most = max(end - begin for begin, end in spans.values())
    worker = min(n for n, (begin, end) in spans.items() if end - begin >= most * (1 - _SAME) - _SAME * last)
    begin, end = spans[worker]
    return worker, iteration, float(begin), float(end)


def _overlap(records: pd.DataFrame, workers: int, begin: float, end: float) -> tuple[float, float]:
    """Seconds that the mean worker's messages are hidden behind its computing, and that they are not."""

    def spans(event: str, node: str = "node") -> tuple[np.ndarray, ...]:
        return tuple(values(records, event, [node, "start", "end"]).values())

    both = [spans("message"), spans("message", "peer"), spans("collective"), spans("memory")]
    working = [spans(computing(records)), spans("work")]
    under_way = covered(both, workers, begin, end)
    worked = covered(working, workers, begin, end)
    exposed = covered([*both, *working], workers, begin, end) - worked
    return max(0.0, float((under_way - exposed).mean())), max(0.0, float(exposed.mean()))


class _Done:
    """What each rank did, and what arrived there, by when it ended."""

    def __init__(self, records: pd.DataFrame, workers: int) -> None:
        self._workers = workers
        event = records["event"].to_numpy().astype(object)
        own = {name: what for name, what in _OWN.items() if name not in ("gradient", "pass")}
        own |= {computing(records): "computing"}
        instant = {"update": "update", "drop": "update"}
        keep = np.isin(event, [*own, *instant, "message"])
        kept = records[keep]
        event = event[keep]
        message = event == "message"
        lasts = (kept["end"] > kept["start"]).to_numpy()
        # instants first, then messages: of what ends together, a rank's own work is taken, the last of all
        rank = np.where(message, 1, np.where(lasts, 2, 0))
        at = np.where(message, kept["peer"], kept["node"])
        columns = {
            "at": at, "event": event, "node": kept["node"], "peer": kept["peer"], "start": kept["start"],
            "left": kept["left"], "end": kept["end"], "rank": rank, "version": kept["version"],
        }  # fmt: skip
        table = pd.DataFrame({name: np.asarray(column) for name, column in columns.items()})
        left = table[message & table["left"].notna()]  # some wait until what they send has left
        sent = {"event": "sent", "at": left["node"], "end": left["left"], "rank": 0.5}
        table = pd.concat([table, left.assign(**sent)], ignore_index=True)
        order = ["at", "end", "rank", "start", "node"]  # of equals the lowest rank is the last
        table = table.sort_values(order, ascending=[True] * 4 + [False], kind="stable")
        self.of = {
            int(str(node)): its.reset_index(drop=True) for node, its in table.groupby("at", sort=False)
        }
        self._collectives = table[table["event"] == "collective"]

    def before(self, node: int, now: float, seen: set[tuple[int, int]]) -> int:
        """The row of what ended last by `now`, or else lasts then; -1 if there is none.

        Updates are instants: what led to one that is done now is the message of its worker, or the update
        before it.
        """
        its = self.of.get(node)
        if its is None:
            return -1
        ends = its["end"].to_numpy()
        place = int(np.searchsorted(ends, now * (1 + _SAME), side="right")) - 1
        pushed = self.updated(node, now)
        while place >= 0:
            is_now = ends[place] >= now * (1 - _SAME)
            event, sender = its["event"].iloc[place], its["node"].iloc[place]
            instant = is_now and its["rank"].iloc[place] == 0
            early = not is_now and event == "sent"
            others = event == "message" and pushed and sender < self._workers and sender not in pushed
            if not (instant or early or others or (node, place) in seen):
                break
            place -= 1
        if place >= 0 and ends[place] >= now * (1 - _SAME):
            return place
        lasts = ~its["event"].isin(["message", "sent", "collective"]).to_numpy()
        lasts &= (its["start"].to_numpy() < now * (1 - _SAME)) & (ends > now)
        return int(np.argmax(lasts)) if lasts.any() else place

    def updated(self, node: int, now: float) -> set[int]:
        """Whose contributions a server or relay applies or drops now."""
        its = self.of.get(node)
        if its is None or node < self._workers:
            return set()
        here = ((its["end"] - now).abs() <= _SAME * now) & its["event"].isin(["update", "drop"])
        return set(its["peer"][here].tolist())

    def entered(self, found: pd.Series) -> tuple[int, float]:
        """Who entered a collective last, and when."""
        its = self._collectives[self._collectives["version"] == found["version"]]
        its = its[(its["start"] < found["end"]) & (its["end"] > found["start"])]
        last = its.loc[its["start"].idxmax()]
        return int(last["node"]), float(last["start"])


def _walk(done: _Done, node: int, begin: float, end: float) -> list[Part]:
    """The path back from `end` on a rank, cut where it reaches `begin`."""
    parts: list[Part] = []
    seen: set[tuple[int, int]] = set()
    now = end
    while now > begin:
        place = done.before(node, now, seen)
        if place < 0:
            parts.append(Part("waiting", node, -1, begin, now, now))
            break
        found = done.of[node].iloc[place]
        ended = min(float(found["end"]), now)
        if ended < now * (1 - _SAME):
            what: Activity = "server's update" if done.updated(node, now) else "waiting"
            parts.append(Part(what, node, -1, ended, now, now))
            now = ended
            continue
        seen.add((node, place))
        start = float(found["start"])
        if found["event"] == "message":
            sender, left = int(found["node"]), float(found["left"])
            parts.append(Part("network", sender, node, start, now if left != left else left, now))
            node = sender
        elif found["event"] == "sent":
            parts.append(Part("network", node, int(found["peer"]), start, now, now))
        elif found["event"] in _OWN:
            whose = node
            if found["event"] == "collective":
                node, start = done.entered(found)
            parts.append(Part(_OWN[found["event"]], whose, -1, start, now, now))
        now = start
    parts = [part for part in parts if part.end > part.start]
    parts.reverse()
    if parts:
        first = parts[0]
        parts[0] = first._replace(start=max(first.start, begin), left=max(first.left, begin))
    return parts
