"""A run as a file for Perfetto (https://ui.perfetto.dev) and chrome://tracing.

The format is Chrome's trace-event JSON ("Trace Event Format", Duca and Sinclair 2016): complete events ("X")
on threads, flow events ("s", "t", "f") from slice to slice, counters ("C"), metadata ("M"). Each run is a
process of the trace, each lane of a track a thread of it. Times are microseconds, to the nanosecond.
"""

import gzip
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite, isnan
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd

from lockstep.analysis.arrows import arrows
from lockstep.analysis.pipeline import PASS, kept
from lockstep.analysis.records import of
from lockstep.analysis.result import Result
from lockstep.analysis.tracks import Tracks, lanes, slices, tracks_of
from lockstep.analysis.utilisation import of_those_there
from lockstep.analysis.words import count
from lockstep.job.plan import Plan

_CHUNK = 1 << 14  # slices whose text is made at a time
# Numbers from here on: one with its process's number is Perfetto's "main thread", and goes first.
_THREADS = 101
_LETTERS = {  # as in papers
    "forward": "F",
    "recompute": "R",
    "backward": "B",
    "backward-inputs": "B",
    "backward-weights": "W",
}
_SIDE = {"simulator": "predicted", "executor": "measured"}


def write(results: Sequence[Result], file: Path) -> None:
    """Write runs into one file of trace events for Perfetto, compressed if its name ends in .gz.

    In all of them the first mini-batch starts at the same time, and the first event of all is at 0.
    """
    zeros = [_nanoseconds(result.span[0]) for result in results]
    before = max(zero - _first(result, zero) for result, zero in zip(results, zeros, strict=True))
    messages = 0
    with _opened(file) as out:
        between = '{"displayTimeUnit":"ms","traceEvents":[\n'
        for number, (result, zero) in enumerate(zip(results, zeros, strict=True), 1):
            for event in _events(result, number, zero - before, messages):
                out.write(between)
                out.write(event)
                between = ",\n"
            messages += len(result.records)
        out.write("\n]}\n")


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _microseconds(nanoseconds: int) -> str:
    """An instant, and a tenth of a nanosecond: Perfetto cuts off what is below a whole one."""
    return f"{nanoseconds / 1000:.3f}1"


def _first(result: Result, otherwise: int) -> int:
    """When anything started at first, ns."""
    first = float(result.records["start"].min())
    return otherwise if np.isnan(first) else _nanoseconds(first)


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    if file.suffix != ".gz":
        with file.open("w", encoding="utf-8", newline="\n") as out:
            yield out
        return
    # without a name and a time in it, the same run gives the same bytes
    with (
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as out,
    ):
        yield out


def _events(result: Result, pid: int, zero: int, first_id: int) -> Iterator[str]:
    """The events of a run, each as JSON: names, then slices with their flows by time, then counters."""
    found = tracks_of(result)
    table = slices(result, found)
    start, end, track = (table[name].to_numpy() for name in ("start", "end", "track"))
    lane = lanes(track, start, end)
    used = np.zeros(found.evaluations + 1, int)
    np.maximum.at(used, track, lane)
    first = np.cumsum(np.append(0, used + 1))  # the thread of each track's first lane
    thread = first[track] + lane + _THREADS
    yield from _names(result, pid, found, used, first)
    flows, at_slice = _flows(result, table)
    describe = _descriptions(result.records, result.plan)
    for at in range(0, len(table), _CHUNK):
        part = slice(at, at + _CHUNK)
        columns = (
            start[part] - zero,
            end[part] - start[part],
            thread[part],
            np.diff(at_slice[at : at + _CHUNK + 1]),
        )
        texts = describe(table["row"].to_numpy()[part])
        arrow = int(at_slice[at])
        for since, takes, tid, flown, text in zip(
            *(column.tolist() for column in columns), texts, strict=True
        ):
            where = f'"ts":{_microseconds(since)},"pid":{pid},"tid":{tid}'
            yield f'{{"ph":"X",{where},"dur":{takes / 1000:.3f},{text}}}'
            for phase, message in flows[arrow : arrow + flown].tolist() if flown else ():
                flow = first_id + message
                yield f'{{"ph":"{"stf"[phase]}","bp":"e",{where},"id":{flow},"cat":"arrow","name":"message"}}'
            arrow += flown
    yield from _counters(result, pid, zero)


def _names(result: Result, pid: int, found: Tracks, used: np.ndarray, first: np.ndarray) -> Iterator[str]:
    """What processes and threads are called, and their order."""
    scenario = result.scenario
    what = f"{scenario.strategy.name}, {count(scenario.cluster.workers, 'worker')}"
    name = f"{_SIDE[result.engine]}: {scenario.name} ({what})"
    yield _metadata("process_name", pid, 0, {"name": name})
    yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
    for track, called in enumerate(found.names):
        for lane in range(used[track] + 1):
            thread = int(first[track]) + lane + _THREADS
            yield _metadata(
                "thread_name", pid, thread, {"name": f"{called} ({lane + 1})" if lane else called}
            )
            yield _metadata("thread_sort_index", pid, thread, {"sort_index": thread})


def _metadata(what: str, pid: int, tid: int, args: dict[str, Any]) -> str:
    return f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{what}","args":{json.dumps(args)}}}'


def _descriptions(records: pd.DataFrame, plan: Plan) -> Callable[[np.ndarray], Iterator[str]]:
    """A function from rows of the records to categories, names and arguments, JSON without braces.

    A pass is called by its letter and its micro-batch and, where a device has several pieces, ".chunk".
    """
    names = ("node", "peer", "version", "staleness", "batches", "nbytes", "loss", "accuracy")
    columns = [
        records["event"].cat.codes.to_numpy(),
        records["kind"].cat.codes.to_numpy(),
        *(records[name].to_numpy() for name in names),
    ]
    events = list(records["event"].cat.categories)
    kinds = [json.dumps(str(kind)) for kind in records["kind"].cat.categories]
    letters = [_LETTERS.get(str(kind), "") for kind in records["kind"].cat.categories]
    who = [json.dumps(rank) for rank in [*(role.name for role in plan.roles), "nobody"]]  # -1 is the last
    stages, several = plan.scenario.split.pipeline, plan.chunks > 1

    def describe(rows: np.ndarray) -> Iterator[str]:
        lists = [column[rows].tolist() for column in columns]
        for code, kind, node, peer, version, staleness, batches, nbytes, loss, accuracy in zip(
            *lists, strict=True
        ):
            event = events[code]
            name = f'"{event}"'
            if event == "message":
                name = kinds[kind]
                args = f'"bytes":{nbytes},"from":{who[node]},"to":{who[peer]}'
            elif event == "gradient":
                args = f'"mini_batch":{version}'
            elif event == "pass":
                chunk = peer // stages
                name = f'"{letters[kind]} {batches}.{chunk}"' if several else f'"{letters[kind]} {batches}"'
                args = f'"step":{version},"micro_batch":{batches},"chunk":{chunk},"kept_bytes":{nbytes}'
            elif event == "update":
                args = (
                    f'"version":{version},"staleness":{staleness},'
                    f'"worker":{who[peer]},"mini_batches":{batches}'
                )
            elif event == "drop":
                args = f'"computed_from":{version},"worker":{who[peer]},"mini_batches":{batches}'
            elif event == "collective":
                args = f'"number":{version},"bytes":{nbytes}'
            elif event == "evaluation":
                args = f'"version":{version},"loss":{_number(loss)},"accuracy":{_number(accuracy)}'
            else:  # memory, work, faults and checkpoints
                name, args = kinds[kind], ""
            yield f'"cat":"{event}","name":{name},"args":{{{args}}}'

    return describe


def _number(value: float) -> str:
    """JSON has no word for what is not finite."""
    return repr(value) if isfinite(value) else "null" if isnan(value) else f'"{value}"'


def _flows(result: Result, table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Flow events in the order of their slices, and the number of the first at each slice and of the end.

    A message is a flow from where it is sent through where it is received to all that it led to. Shapes
    (n, 2): phase (start, step or finish), message; (slices + 1,).
    """
    led, row = arrows(result), table["row"].to_numpy()
    event = result.records["event"].to_numpy()
    message = (event == "message")[row]
    slice_of = np.zeros(len(event), int)  # of what is not a message, and so in one slice
    slice_of[row[~message]] = np.flatnonzero(~message)
    who = np.concatenate([row[message], led["message"]])
    where = np.concatenate([np.flatnonzero(message), slice_of[led["effect"]]])
    order = np.lexsort((where, who))
    who, where = who[order], where[order]
    opens, closes = np.diff(who, prepend=-1) != 0, np.diff(who, append=-1) != 0
    phase = np.where(opens, 0, np.where(closes, 2, 1))
    kept = ~(opens & closes)
    kept_where, kept_flow = where[kept], np.column_stack([phase, who])[kept]
    order = np.argsort(kept_where, kind="stable")
    return kept_flow[order], np.searchsorted(kept_where[order], np.arange(len(table) + 1))


def _counters(result: Result, pid: int, zero: int) -> Iterator[str]:
    """How busy links and processors were, what devices keep between passes, the held-out loss.

    A counter each, but for the servers' where the strategy has none. Perfetto calls a counter by its name
    and its unit.
    """
    usage = of_those_there(result)
    if usage is not None:
        for name, rows in usage.groupby("resource", sort=False, observed=True):
            times = np.append(rows["start"], rows["end"].iloc[-1:])
            busy = np.append(np.round(100 * rows["busy"], 2), 0.0)
            changes = np.diff(busy, prepend=-1.0) != 0
            for at, value in zip(times[changes].tolist(), busy[changes].tolist(), strict=True):
                yield _counter(f"{name}, busy", pid, at, zero, "%", value)
    for rank, passes in of(result.records, "pass", PASS).groupby("node"):
        for at, nbytes in zip(*(each.tolist() for each in kept(passes)), strict=True):
            yield _counter(f"worker {rank}, kept", pid, at, zero, "bytes", nbytes)
    for at, loss in of(result.records, "evaluation", ["end", "loss"]).itertuples(index=False):
        if np.isfinite(loss):
            yield _counter("held-out", pid, at, zero, "loss", loss)


def _counter(name: str, pid: int, at: float, zero: int, unit: str, value: float) -> str:
    time = _microseconds(_nanoseconds(at) - zero)
    what = f'"name":{json.dumps(name)},"args":{{"{unit}":{value!r}}}'
    return f'{{"ph":"C","pid":{pid},"tid":0,"ts":{time},{what}}}'
