"""Runs that a loop makes, against all their programs, events and messages."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

from lockstep import Scenario
from lockstep.job.plan import Plan
from lockstep.simulator import compiled, flows_kernel, kernel, loop, loop_kernel, queues_kernel
from lockstep.simulator.engine import Simulation
from lockstep.simulator.jit import installed, linker
from lockstep.simulator.loop import Loop
from lockstep.simulator.native import Native, native
from tests.support.rings import s, times


class FromZero(np.ndarray[Any, Any]):
    """Is asked for nothing that counts from its end: libraries do not look for that (building.py)."""

    def __getitem__(self, index: Any) -> Any:
        self._look(index)
        found = super().__getitem__(index)
        return found.view(np.ndarray) if isinstance(found, np.ndarray) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        self._look(index)
        super().__setitem__(index, value)

    def _look(self, index: Any) -> None:
        for each in index if isinstance(index, tuple) else (index,):
            assert isinstance(each, slice) or each >= 0, f"[{index}] counts from the end"


def from_zero(function: Callable[..., Any]) -> Callable[..., Any]:
    """That function of a kernel, which fails where an index counts from the end of what it is given."""

    def viewed(given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(viewed(each) for each in given)
        return given.view(FromZero) if isinstance(given, np.ndarray) else given

    return lambda *given: function(*viewed(given))


def in_python(monkeypatch: pytest.MonkeyPatch, own: ModuleType, entry: str = "run") -> None:
    """Let what numba compiles be as it stands, and count from 0. own, entry: a kernel, and what is called."""
    monkeypatch.setattr(compiled if own is kernel else loop, "native", lambda *_: None)
    for module in (kernel, flows_kernel, queues_kernel, loop_kernel, own):
        for name, each in [*vars(module).items()]:
            if hasattr(each, "py_func"):
                monkeypatch.setattr(module, name, each.py_func)
    for module in (kernel, own):
        monkeypatch.setattr(module, "lent", lambda given: given)
    monkeypatch.setattr(own, entry, from_zero(getattr(own, entry)))


def assert_same(kind: type[Loop], config: Scenario) -> None:
    """Records, what links carried when, and how it ends; the loop must be able to make the run."""
    carried, made = Simulation(Plan.of(config), shortcuts=False), Simulation(Plan.of(config))
    carried.run()
    made.environment.give_up()
    assert kind.follows(made)
    looped = kind(made)
    if loop.native is native and linker() and installed():
        assert isinstance(looped._run, Native)  # else Python would be compared with itself
    looped.run()
    made.finish()
    found, expected = made.result(), carried.result()
    pd.testing.assert_frame_equal(found.records, expected.records, check_exact=True)
    pd.testing.assert_frame_equal(found.utilisation, expected.utilisation, check_exact=True)
    assert found.warnings == expected.warnings


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    """All that a loop is told of; bandwidths such that flows meet."""
    network: dict[str, Any] = {
        "bandwidth": draw(st.sampled_from(["1 MB/s", "100 kB/s", "7 kB/s", None])),
        "latency": draw(s(0, 0.01)),
        "message_overhead": draw(st.sampled_from(["0 s", "0 s", "100 us", "7 ms"])),
        "duplex": draw(st.sampled_from(["full", "full", "half"])),
        "goodput": draw(st.sampled_from([1.0, 0.9])),
        "server_bandwidth": draw(st.sampled_from([None, "50 kB/s", "3 MB/s"])),
        "intra_host": draw(st.sampled_from([None, {"bandwidth": "2 MB/s"}])),
    }
    if network["bandwidth"] is not None and draw(st.booleans()):
        network["topology"] = {"kind": "racks", "hosts_per_rack": 2, "oversubscription": 2}
    if draw(st.booleans()):
        network["queue"] = draw(st.sampled_from(["100 B", "3 kB", "64 KiB"]))
    return network


@st.composite
def paces(draw: st.DrawFn, workers: int, steps: int) -> dict[str, Any]:
    """How long all takes, and when it ends: after `steps` mini-batches at least, or some time."""
    slow = st.fixed_dictionaries(
        {"worker": st.integers(0, workers - 1), "slowdown": st.floats(1, 5)},
        optional={"probability": st.just(0.3)},
    )
    stops = [
        st.fixed_dictionaries({"steps": st.integers(steps, steps + 11)}),
        st.fixed_dictionaries({"steps": st.integers(steps, steps + 11), "time": s(0.001, 0.5)}),
        st.fixed_dictionaries({"time": s(0.001, 0.2)}),
    ]
    timed = draw(times)
    if (time := timed.get("value")) is not None and float(time.split()[0]) < 1e-3:
        timed["value"] = "2 ms"  # else a run of a given time has no end
    return {
        "cluster__compute": {"time": timed},
        "cluster__exchange_overhead": draw(st.sampled_from(["0 s", "1 ms"])),
        "cluster__stragglers": draw(st.lists(slow, max_size=1)),
        "cluster__memory_bandwidth": draw(st.sampled_from([None, "1 MB/s", "3 GB/s"])),
        "cluster__apply_overhead": draw(st.sampled_from(["0 s", "0 s", "123 us"])),
        "stop": draw(st.one_of(stops)),
        "seed": draw(st.integers(0, 2**31)),
    }
