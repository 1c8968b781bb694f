"""Runs whose rings are computed against runs with all their messages."""

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from lockstep import Result, Scenario
from lockstep.job.plan import Plan
from lockstep.simulator.engine import Simulation
from lockstep.simulator.ring import Disturbed
from lockstep.workloads import deterministic_threads
from tests.support.scenarios import scenario


def both(config: Scenario) -> tuple[Result, Result]:
    """The run with computed rings, and with every message."""
    return run(config, shortcuts=True), run(config, shortcuts=False)


def run(config: Scenario, shortcuts: bool) -> Result:
    with deterministic_threads():
        simulation = Simulation(Plan.of(config), shortcuts)
        try:
            simulation.run()
        except Disturbed:
            assert simulation.rings._lanes.links is not None
            return run(config, shortcuts=False)
        return simulation.result()


def assert_same(config: Scenario) -> None:
    assert_equal(*both(config))


def assert_equal(computed: Result, carried: Result) -> None:
    pd.testing.assert_frame_equal(computed.records, carried.records, check_exact=True)
    if carried.parameters is None:
        assert computed.parameters is None
    else:
        assert np.array_equal(computed.parameters, carried.parameters, equal_nan=True)


def s(low: float, high: float) -> st.SearchStrategy[str]:
    return st.one_of(st.just(low), st.floats(low or 1e-12, high)).map(lambda value: f"{value!r} s")


times = st.one_of(
    st.fixed_dictionaries({"distribution": st.just("constant"), "value": s(0, 0.1)}),
    st.fixed_dictionaries({"distribution": st.just("exponential"), "mean": s(1e-4, 0.1)}),
    st.fixed_dictionaries(
        {"distribution": st.just("lognormal"), "mean": s(1e-4, 0.1), "cv": st.sampled_from([0.1, 1])}
    ),
)
networks = st.fixed_dictionaries(
    {"latency": s(0, 0.01), "message_overhead": s(0, 0.01)},
    optional={
        "bandwidth": st.floats(1e3, 1e7).map(lambda b: f"{b!r} B/s"),
        "goodput": st.floats(0.5, 1),
        "queue": st.sampled_from(["100 B", "64 KiB"]),
    },
)


@st.composite
def scenarios(draw: st.DrawFn, **fixed: Any) -> Scenario:
    workers = draw(st.integers(1, 9))
    slow = st.builds(dict, worker=st.integers(0, workers - 1), slowdown=st.floats(1, 5))
    stops = [
        st.fixed_dictionaries({"steps": st.integers(1, 5)}),
        st.fixed_dictionaries({"updates": st.integers(1, 5)}),
        st.fixed_dictionaries({"steps": st.integers(1, 5), "time": s(0.001, 0.3)}),
    ]
    changes: dict[str, Any] = {
        "cluster__workers": workers,
        "cluster__network": draw(networks),
        "cluster__compute": {"time": draw(times)},
        "cluster__stragglers": draw(st.lists(slow, max_size=1)),
        "cluster__memory_bandwidth": draw(st.sampled_from([None, "1 MB/s", "3 GB/s"])),
        "cluster__apply_overhead": draw(st.sampled_from(["0 s", "0 s", "123 us"])),
        "workload": {"parameters": draw(st.integers(1, 3000))},
        "strategy": {
            "name": "all-reduce",
            "algorithm": draw(st.sampled_from(["ring", "native", "auto"])),
            "buckets": draw(st.sampled_from([1, 1, 3])),
        },
        "stop": draw(st.one_of(stops)),
        "seed": draw(st.integers(0, 2**31)),
    }
    return scenario(**changes | fixed)
