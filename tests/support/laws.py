"""What holds of every result, whatever the scenario said: for inputs that nobody has thought of."""

import json
import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from lockstep import Result
from lockstep.analysis.losses import CUT_OFF
from lockstep.analysis.records import of

HANGS_S = 60  # of processor time: nothing that is judged here takes so long
_STANDS = 10  # times as long by the clock, which a machine that does something else too takes for an import


@contextmanager
def soon(seconds: float = HANGS_S) -> Iterator[None]:
    """Fail what computes for ever, or stands still."""

    def fail(*_: Any) -> None:
        pytest.fail(f"still at it after {seconds} s of processor time, or {_STANDS} times as long")

    timers = {
        signal.ITIMER_PROF: (signal.SIGPROF, seconds),
        signal.ITIMER_REAL: (signal.SIGALRM, _STANDS * seconds),
    }
    before = {number: signal.signal(number, fail) for number, _ in timers.values()}
    for timer, (_, after) in timers.items():
        signal.setitimer(timer, after)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def finite(value: Any) -> None:
    """Every number of a document is finite."""
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            finite(inner)
    else:
        assert not isinstance(value, float) or math.isfinite(value)


def keeps_the_laws(result: Result) -> None:
    """Times, shares and counts are possible ones, and every sample is applied, dropped or lost."""
    metrics, records = result.metrics, result.records
    finite(json.loads(result.to_json(), parse_constant=pytest.fail))
    for column in ("start", "end"):
        assert np.isfinite(records[column]).all()
    assert (records["end"] >= records["start"]).all()
    shares = result.breakdown.to_numpy()
    assert (shares >= 0).all()
    assert np.allclose(shares.sum(axis=1), 1) or metrics["duration_s"] == 0
    assert all(0 <= busy <= 1 + 1e-9 for busy in (metrics["utilisation"] or {}).values())
    assert 0 <= (metrics.get("availability") or 0) <= 1
    for name in ("samples", "updates", "dropped", "lost_samples", "duration_s", "bytes_sent"):
        assert metrics.get(name, 0) >= 0, name
    computed = int((of(records, "gradient", ["kind"])["kind"] != CUT_OFF).sum())
    applied, batch_size = metrics["samples"], result.scenario.workload.batch_size
    assert applied + metrics.get("lost_samples", 0) <= computed * batch_size
    if len(result.plan.owners.ranks) == 1:  # a shard may drop what another applies
        assert applied + metrics["dropped"] * batch_size <= computed * batch_size
