"""Where each worker's time went."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.analysis import by_rank
from lockstep.analysis.columns import Columns
from lockstep.analysis.computations import computing as computing_event
from lockstep.analysis.order import AT_ONCE
from lockstep.analysis.records import values

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("compute", "update", "send", "network", "wait")
Spans = tuple[np.ndarray, ...]
"""Node, start and end of each, arrays of one length."""
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
    numbers, place = np.unique(collectives["version"], return_inverse=True)
    entered = by_rank.largest(place, collectives["start"], np.full(len(numbers), -np.inf))
    all_spans = (
        [(gradients["node"], gradients["start"], gradients["end"])],
        [(work["node"], work["start"], work["end"])],
        [(collectives["node"], entered[place], collectives["end"])],
        [(messages["node"], messages["start"], messages["left"])],
        [
            (messages["node"], messages["start"], messages["end"]),
            (messages["peer"], messages["start"], messages["end"]),
            (memory["node"], memory["start"], memory["end"]),
        ],
    )
    # Waiting is measured on a clock that stands still while nobody computes or updates, and nobody is down.
    times, clock = while_working(*_spans(records, (computing_event(records), *_WORK, *_STOPS)), begin, finish)
    found = np.zeros((len(PARTS) + 1, workers))
    for its, some in _by_workers(all_spans, workers, begin, finish):
        computing, updating, sending, leaving, under_way = some
        # Each includes the one before; a message that leaves is under way.
        active = worked = _covered(computing, its)
        if updating:
            worked = _covered([*computing, *updating], its)
        sent = worked
        if sending or leaving:
            sent = _covered([*computing, *updating, *sending, *leaving], its)
        busy = [
            _some(whose, np.interp(since, times, clock), np.interp(until, times, clock))
            for whose, since, until in (*computing, *updating, *sending, *under_way)
        ]
        wait = clock[-1] - _covered(busy, its)
        found[1:-1, its] = [part / duration for part in (active, worked, sent, duration - wait)]
    found[-1] = 1.0
    np.maximum.accumulate(np.clip(found, 0.0, 1.0, out=found), axis=0, out=found)  # rounding
    return np.diff(found, axis=0)


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


def covered(spans: Sequence[Spans], workers: int, begin: float, finish: float) -> np.ndarray:
    """Of each worker the seconds between `begin` and `finish` in which one or more spans are open.

    Spans of servers and those with a NaN do not count. Shape (workers,).
    """
    parts = _by_workers([spans], workers, begin, finish)
    return np.concatenate([_covered(each, its) for its, (each,) in parts])


def _by_workers(
    spans: Sequence[Sequence[Spans]], workers: int, begin: float, finish: float
) -> Iterator[tuple[slice, list[list[Spans]]]]:
    """Some workers at a time, and their spans: of all together there would be millions.

    Spans, lists of them, are cut to what is between `begin` and `finish`, and their workers are counted from
    the first of these; those of servers, those with a NaN and empty ones are left out.
    """
    parts = 1 + sum(len(node) for some in spans for node, *_ in some) // AT_ONCE
    bounds = [workers * part // parts for part in range(parts + 1)]
    part_of = np.repeat(np.arange(parts, dtype=np.min_scalar_type(parts)), np.diff(bounds))
    where = [[_parts(node, part_of, parts) for node, *_ in some] if parts > 1 else [] for some in spans]
    for part, its in enumerate(map(slice, bounds, bounds[1:])):
        found = list[list[Spans]]()
        for some, places in zip(spans, where, strict=True):
            rows: list[Any] = [...] * len(some)  # all
            if parts > 1:
                rows = [np.flatnonzero(each == part) for each in places]
            cut = [_cut(each, its, begin, finish, here) for each, here in zip(some, rows, strict=True)]
            found.append([each for each in cut if len(each[0])])
        yield its, found


def _parts(node: np.ndarray, part_of: np.ndarray, none: int) -> np.ndarray:
    """The part of each span's worker; `none` if it is of no worker."""
    found = np.full(len(node), none, part_of.dtype)
    for at in range(0, len(node), AT_ONCE):
        its = slice(at, at + AT_ONCE)
        here = (node[its] >= 0) & (node[its] < len(part_of))
        found[its][here] = part_of[node[its][here]]
    return found


def _cut(spans: Spans, workers: slice, begin: float, finish: float, rows: Any) -> Spans:
    """What those rows that are of some workers have between `begin` and `finish`."""
    node, start, end = spans
    since, until = np.maximum(start[rows], begin), np.minimum(end[rows], finish)
    whose, count = node[rows] - workers.start, workers.stop - workers.start
    if len(whose) and not 0 <= whose.min() <= whose.max() < count:
        until[(whose < 0) | (whose >= count)] = -np.inf
    return _some(whose.astype(np.min_scalar_type(count)), since, until)


def _some(whose: np.ndarray, since: np.ndarray, until: np.ndarray) -> Spans:
    """Those that take any time."""
    goes = until > since
    if goes.all():  # else, as of messages that are under way while nobody computes, most may not
        return whose, since, until
    some = np.flatnonzero(goes)
    return whose[some], since[some], until[some]


def _covered(spans: Sequence[Spans], workers: slice) -> np.ndarray:
    """Of each of some workers the seconds in which one of its spans or more are open.

    Spans count the workers from the first of these. Shape (number of these,).
    """
    count = workers.stop - workers.start
    if not spans:
        return np.zeros(count)
    node, start, end = (np.concatenate(columns) for columns in zip(*spans, strict=True))
    order = np.argsort(start, kind="stable")
    order = order[np.argsort(node[order], kind="stable")]  # numbers of 16 bits are sorted in no time
    node, start, end = node[order], start[order], end[order]
    # Of a span only what comes after the ends of all that began before it.
    reached = np.empty_like(end)
    for one, next_one in pairwise(np.searchsorted(node, np.arange(count + 1)).tolist()):
        np.maximum.accumulate(end[one:next_one], out=reached[one:next_one])
    since = np.maximum(start[1:], reached[:-1])
    np.copyto(since, start[1:], where=node[1:] != node[:-1])
    start[1:] = since
    end -= start
    return np.bincount(node, np.maximum(end, 0.0, out=end), count)
