"""Times of gradients from a trace of the PyTorch profiler (Kineto): Chrome trace events, .json or .json.gz.

A step is what the profiler calls `ProfilerStep#N`. Its gradient begins with its first operator and ends with
the backward pass; the optimizer's operators, collectives and the loading of data do not count. If it
has launched kernels on a GPU, it is from the start of the first to the end of the last, wherever the CPU is.
"""

import gzip
import json
import re
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from lockstep.scenarios.units import fail, shown

_STEP = re.compile(r"ProfilerStep#\d+")
_BACKWARD = "autograd::engine::evaluate_function"
# What is not a gradient's, though it happens in a step: annotations, operators and kernels.
_OTHERS = re.compile(
    r"Optimizer\.|enumerate\(DataLoader\)|_MultiProcessingDataLoaderIter|_SingleProcessDataLoaderIter"
    r"|nccl|gloo:|c10d::|record_param_comms"
)
_KERNEL, _LAUNCHES = "kernel", ("cuda_runtime", "cuda_driver")


class _Event(NamedTuple):
    launched: float  # µs; when a kernel was launched on the CPU, else the start
    start: float
    end: float
    category: str
    name: str
    thread: str  # of the launch


class Gradients(NamedTuple):
    """What a trace says about its steps."""

    times_s: tuple[float, ...]
    backward: float  # the median share of the backward pass


def is_trace(path: Path) -> bool:
    """Whether a file's name is that of a trace."""
    return path.name.endswith((".json", ".json.gz"))


def gradients(path: Path) -> Gradients:
    """Return the time of each step's gradient, in order. A file that does not tell is a validation error."""
    try:
        if not path.is_file():  # not a pipe, nor an endless device
            raise FileNotFoundError
        status = path.stat()
        events = _read(path, status.st_mtime_ns, status.st_size)
    except (
        OSError,
        EOFError,
        zlib.error,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ):
        fail(f"cannot read {shown(path.name)}; give a trace of the PyTorch profiler, .json or .json.gz")
    steps = [
        event for event in events if _STEP.fullmatch(event.name) and not event.category.startswith("gpu")
    ]
    if not steps:
        fail("the trace has no ProfilerStep#N: profile with a schedule, and call the profiler's step()")
    found = [gradient for gradient in _each(events, steps) if gradient is not None]
    if not found:
        fail("no step of the trace has a backward pass: profile the CPU's activities too, while training")
    times, shares = zip(*found, strict=True)
    return Gradients(times, round(min(0.999, median(shares)), 3))


@lru_cache(maxsize=4)  # it is asked for again and again
def _read(path: Path, *_changed: int) -> list[_Event]:
    """The events of a file by launch. `_changed`: what is different when the file is."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        document = json.load(file)
    return sorted(_events(document["traceEvents"] if isinstance(document, dict) else document))


def _events(found: list[dict[str, Any]]) -> Iterator[_Event]:
    """The complete events, kernels with the instant and the thread of their launch."""
    whole = [event for event in found if event.get("ph") == "X"]
    launches = {
        event["args"]["correlation"]: event
        for event in whole
        if event.get("cat") in _LAUNCHES and "correlation" in event.get("args", {})
    }
    for event in whole:
        category, by = str(event.get("cat", "")), event
        if category == _KERNEL:
            by = launches.get(event.get("args", {}).get("correlation"), event)
        start = float(event["ts"])
        yield _Event(
            float(by["ts"]),
            start,
            start + float(event.get("dur", 0)),
            category,
            str(event.get("name", "")),
            str(by.get("tid")),
        )


def _each(events: list[_Event], steps: list[_Event]) -> Iterator[tuple[float, float] | None]:
    """Of each step: seconds of the gradient, and the share of its backward pass; None without one."""
    launched = [event.launched for event in events]
    for step in steps:
        first, last = bisect_left(launched, step.start), bisect_left(launched, step.end)
        yield _gradient([event for event in events[first:last] if not _STEP.fullmatch(event.name)])


def _gradient(events: list[_Event]) -> tuple[float, float] | None:
    others = [event for event in events if _OTHERS.search(event.name)]
    spans = [(event.start, event.end, event.thread) for event in others if event.category != _KERNEL]

    def is_own(event: _Event) -> bool:
        at, thread = event.launched, event.thread
        within = (start <= at < end and thread == other for start, end, other in spans)
        return not _OTHERS.search(event.name) and not any(within)

    own = [event for event in events if event.category in (_KERNEL, "cpu_op") and is_own(event)]
    backward = [event for event in own if event.name.startswith(_BACKWARD)]
    if not backward:
        return None
    turn = backward[0].start
    kernels = [event for event in own if event.category == _KERNEL]
    if kernels:
        own, backward = kernels, [event for event in kernels if event.launched >= turn]
    begin = min(event.start for event in own)
    end = max(event.end for event in backward or own)
    takes = end - begin
    backward_takes = end - min((event.start for event in backward), default=end)
    return (takes / 1e6, backward_takes / takes) if takes > 0 else None
