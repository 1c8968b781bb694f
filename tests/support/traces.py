"""Files of trace events, read as Perfetto reads them, after a look at the rules of the format."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from lockstep.analysis.result import Result
from lockstep.analysis.timeline import write

Event = dict[str, Any]


def trace(file: Path) -> list[Event]:
    """The events of a file, after a look at its structure."""
    packed = file.read_bytes()
    text = gzip.decompress(packed) if file.suffix == ".gz" else packed
    whole = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    events: list[Event] = whole["traceEvents"]
    for event in events:
        if event["ph"] != "M":
            event["ts"] = int(event["ts"] * 1000) / 1000  # as Perfetto does it
    check(events)
    return events


def check(events: list[Event]) -> None:
    """The rules of the format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU"""
    assert {event["ph"] for event in events} <= set("MXstfC")
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert not any(pid == tid for pid, tid in named), "Perfetto puts a main thread first"
    flows: dict[int, list[Event]] = defaultdict(list)
    open_slices: dict[tuple[int, int], list[int]] = defaultdict(list)
    last: dict[tuple[Any, ...], int] = defaultdict(int)
    slice_at = None
    for event in events:
        if event["ph"] == "M":
            continue
        at, place = round(1000 * event["ts"]), (event["pid"], event["tid"])
        key = (*place, event["name"]) if event["ph"] == "C" else place
        assert at >= last[key], "time goes back"
        last[key] = at
        if event["ph"] == "X":
            assert place in named
            ends = open_slices[place]
            while ends and ends[-1] <= at:
                ends.pop()
            end = at + round(1000 * event["dur"])
            assert not ends or end <= ends[-1], "slices cross"
            assert not ends or event["dur"] == 0, "nothing but an instant lies within another"
            ends.append(end)
            slice_at = at, place
        elif event["ph"] in "stf":
            assert slice_at == (at, place), "a flow event is at the slice before it"
            flows[event["id"]].append(event)
    for steps in flows.values():
        assert [step["ph"] for step in steps] == ["s", *"t" * (len(steps) - 2), "f"]
        assert {step["bp"] for step in steps} == {"e"}
        assert len({(step["cat"], step["name"]) for step in steps}) == 1


def written(tmp_path: Path, *results: Result) -> list[Event]:
    write(results, tmp_path / "trace.json")
    return trace(tmp_path / "trace.json")
