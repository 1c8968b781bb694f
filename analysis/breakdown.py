"""Where each worker's time went."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lockstep.analysis.columns import Columns
from lockstep.analysis.computations import computing as computing_event
from lockstep.analysis.order import AT_ONCE
from lockstep.analysis.records import values

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("compute", "update", "send", "network", "wait")
_WORK, _STOPS = ("work",), ("fault", "recovery", "checkpoint")  # events for which others wait


def shares(records: "Columns | pd.DataFrame", workers: int, begin: float, finish: float) -> np.ndarray:
    """The fractions of the time from `begin` to `finish` (s) that workers spent on PARTS: shape (5, workers).

    compute: computing a gradient, or a pass of one. update: not computing, but at work of its own: a step, a
    sum, a codec.
    send: neither, and a message of its own is leaving, or it is in a collective that everybody has entered.
    network: none of these, but a message to or from it is under way, it reads or adds to shared memory, or no
    worker computes or updates, so that what it waits for is between others or at a server. wait: the rest, in
    which it waits for others to compute or update, for who has failed, or for a checkpoint. They sum to 1;
    all are 0 when no time has passed.
    """
    duration = finish - begin
    if duration <= 0:
        return np.zeros((len(PARTS), workers))
    spans = ["node", "start", "end"]
    gradients = values(records, computing_event(records), spans)
    messages = values(records, "message", ["node", "peer", "start", "left", "end"])
    collectives = values(records, "collective", ["node", "start", "end", "version"])
    work, memory = values(records, "work", spans), values(records, "memory", spans)
    computing = [(gradients["node"], gradients["start"], gradients["end"])]
    updating = [(work["node"], work["start"], work["end"])]
    numbers, place = np.unique(collectives["version"], return_inverse=True)
    entered = np.full(len(numbers), -np.inf)
    np.maximum.at(entered, place, collectives["start"])
    sending = [(collectives["node"], entered[place], collectives["end"])]
    leaving = (messages["node"], messages["start"], messages["left"])
    under_way = [
        (messages["node"], messages["start"], messages["end"]),
        (messages["peer"], messages["start"], messages["end"]),
        (memory["node"], memory["start"], memory["end"]),
    ]
    # Each includes the one before; a message that leaves is under way.
    active = covered(computing, workers, begin, finish)
    worked = covered([*computing, *updating], workers, begin, finish)
    sent = covered([*computing, *updating, *sending, leaving], workers, begin, finish)
    # Waiting is measured on a clock that stands still while nobody computes or updates, and nobody is down.
    times, clock = while_working(*_spans(records, (computing_event(records), *_WORK, *_STOPS)), begin, finish)
    busy = [*computing, *updating, *sending, *under_way]
    wait = clock[-1] - covered(busy, workers, begin, finish, lambda at: np.interp(at, times, clock))
    cumulative = [part / duration for part in (active, worked, sent, duration - wait)]
    bounds = np.clip([np.zeros(workers), *cumulative, np.ones(workers)], 0.0, 1.0)  # rounding
    found: np.ndarray = np.diff(np.maximum.accumulate(bounds), axis=0)
    return found


def stopped(records: "Columns | pd.DataFrame", begin: float, finish: float) -> float:
    """Seconds in which no worker computes or updates, and somebody has failed or a checkpoint is made."""
    work = computing_event(records), *_WORK
    with_stops, without = (
        while_working(*_spans(records, events), begin, finish)[1][-1] for events in ((*work, *_STOPS), work)
    )
    return float(with_stops - without)


def _spans(records: "Columns | pd.DataFrame", events: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """When all records of some events begin and end."""
    found = [values(records, event, ["start", "end"]) for event in events]
    return np.concatenate([each["start"] for each in found]), np.concatenate([each["end"] for each in found])


def while_working(
    start: np.ndarray, end: np.ndarray, begin: float, finish: float
) -> tuple[np.ndarray, np.ndarray]:
    """A clock that goes only during some of the spans: times from `begin` to `finish`, and what it shows.

    Both in s; the clock shows 0 at `begin`, and goes evenly from one of the times to the next. `start` and
    `end` of the spans: shape (n,).
    """
    order = np.argsort(start)
    # Nobody works from each of `until` to the next of `since`, from there to the next of `until` somebody.
    times, clock = np.empty(2 * len(order) + 2), np.empty(2 * len(order) + 2)  # only what is used is there
    times[0], clock[0], count = begin, 0.0, 1
    reached, shown = begin, 0.0
    for at in range(0, len(order), AT_ONCE):
        some = order[at : at + AT_ONCE]
        until = np.clip(np.maximum.accumulate(end[some]), begin, finish)
        until = np.append(reached, np.maximum(until, reached))
        since = np.maximum(np.clip(start[some], begin, finish), until[:-1])
        shows = np.cumsum(np.append(shown, until[1:] - since))
        both = np.column_stack([since, until[1:]]).ravel()
        moves = np.flatnonzero(np.diff(both, prepend=reached) > 0)
        times[count : count + len(moves)] = both[moves]
        clock[count : count + len(moves)] = np.repeat(shows, 2)[1:-1][moves]
        reached, shown, count = float(until[-1]), float(shows[-1]), count + len(moves)
    if finish > reached:
        times[count], clock[count], count = finish, shown, count + 1
    return times[:count], clock[:count]


def covered(
    spans: Sequence[tuple[np.ndarray, ...]],
    workers: int,
    begin: float,
    finish: float,
    shown: Callable[[np.ndarray], np.ndarray] = lambda at: at,
) -> np.ndarray:
    """For each worker the seconds between `begin` and `finish` in which one or more spans are open.

    Spans are (node, start, end), arrays of one length each; those of servers and those with a NaN do not
    count. `shown`: what the clock that counts the seconds shows at such times. Shape (workers,).
    """
    spans = [span for span in spans if len(span[0])]
    if not spans:
        return np.zeros(workers)
    parts = 1 + sum(len(node) for node, *_ in spans) // AT_ONCE
    bounds = [workers * part // parts for part in range(parts + 1)]
    # Of all together there would be millions of spans: of some workers at a time, those of one part.
    part_of = np.repeat(np.arange(parts, dtype=np.min_scalar_type(parts)), np.diff(bounds))
    where = [_parts(span, part_of, parts, begin, finish) for span in spans]
    found = []
    for part, (first, last) in enumerate(pairwise(bounds)):
        some = []
        for (node, start, end), here in zip(spans, where, strict=True):
            rows = np.flatnonzero(here == part)
            since, until = shown(np.maximum(start[rows], begin)), shown(np.minimum(end[rows], finish))
            goes = np.flatnonzero(until > since)  # many messages are under way while nobody computes
            whose = (node[rows[goes]] - first).astype(np.min_scalar_type(last - first))
            some.append((whose, since[goes], until[goes]))
        whose, since, until = (np.concatenate(columns) for columns in zip(*some, strict=True))
        found.append(_covered(whose, since, until, last - first))
    return np.concatenate(found)


def _parts(
    span: tuple[np.ndarray, ...], part_of: np.ndarray, none: int, begin: float, finish: float
) -> np.ndarray:
    """Of each span the part of its worker; `none` if it does not count."""
    node, start, end = span
    found = np.full(len(node), none, part_of.dtype)
    for at in range(0, len(node), AT_ONCE):
        its = slice(at, at + AT_ONCE)
        here = (node[its] >= 0) & (node[its] < len(part_of)) & (end[its] > begin) & (start[its] < finish)
        found[its][here] = part_of[node[its][here]]
    return found


def _covered(node: np.ndarray, start: np.ndarray, end: np.ndarray, workers: int) -> np.ndarray:
    """The seconds of each worker, counted from 0, in which one of its spans or more are open."""
    order = np.argsort(start, kind="stable")
    order = order[np.argsort(node[order], kind="stable")]  # numbers of 16 bits are sorted in no time
    node, start, end = node[order], start[order], end[order]
    # Of a span only what comes after the ends of all that began before it.
    reached = np.empty_like(end)
    for one, next_one in pairwise(np.searchsorted(node, np.arange(workers + 1)).tolist()):
        np.maximum.accumulate(end[one:next_one], out=reached[one:next_one])
    since = np.maximum(start[1:], reached[:-1])
    np.copyto(since, start[1:], where=node[1:] != node[:-1])
    start[1:] = since
    end -= start
    return np.bincount(node, np.maximum(end, 0.0, out=end), workers)
