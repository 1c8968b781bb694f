"""Asynchronous runs in one loop, against all their programs, events and messages: same bits."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Result, Scenario
from lockstep.job.plan import Plan
from lockstep.simulator import asynchronous, asynchronous_kernel, flows_kernel, kernel
from lockstep.simulator.asynchronous import Asynchronous, follows
from lockstep.simulator.engine import Simulation
from lockstep.simulator.errors import SimulationError
from lockstep.strategies import STRATEGIES
from tests.support.nightly import examples
from tests.support.rings import s, times
from tests.support.scenarios import scenario

STRATEGY: list[Any] = [
    "asynchronous",
    {"name": "asynchronous", "optimizer": "adam", "learning_rate": 0.1},
    "staleness-aware",
    "dc-asgd",
]


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What numba compiles, as it stands."""
    found: dict[str, Any] = {}
    for module in (kernel, flows_kernel, asynchronous_kernel):
        names = {name: each.py_func for name, each in vars(module).items() if hasattr(each, "py_func")}
        for name, function in names.items():
            monkeypatch.setattr(module, name, function)
        found |= names
    monkeypatch.setattr(asynchronous, "schedule", found.get("schedule", flows_kernel.schedule))


def looped(config: Scenario) -> Result:
    """The result of the loop, which must be able to make the run."""
    simulation = Simulation(Plan.of(config))
    assert follows(simulation)
    Asynchronous(simulation, asynchronous_kernel.run).run()
    simulation.finish()
    return simulation.result()


def assert_same(config: Scenario) -> None:
    """Records, what links carried when, and how it ends."""
    simulation = Simulation(Plan.of(config), shortcuts=False)
    simulation.run()
    carried, found = simulation.result(), looped(config)
    pd.testing.assert_frame_equal(found.records, carried.records, check_exact=True)
    pd.testing.assert_frame_equal(found.utilisation, carried.utilisation, check_exact=True)
    assert found.warnings == carried.warnings


@st.composite
def runs(draw: st.DrawFn) -> Scenario:
    """All that the loop is told of; bandwidths such that flows meet, and times that meet too."""
    workers = draw(st.integers(1, 7))
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
    servers = {"count": draw(st.integers(1, 5)), "colocated": draw(st.booleans()), "speed": draw(st.sampled_from([1, 0.5]))}
    slow = st.fixed_dictionaries(
        {"worker": st.integers(0, workers - 1), "slowdown": st.floats(1, 5)}, optional={"probability": st.just(0.3)}
    )
    stops = [
        st.fixed_dictionaries({"steps": st.integers(1, 12)}),
        st.fixed_dictionaries({"steps": st.integers(1, 12), "time": s(0.001, 0.5)}),
        st.fixed_dictionaries({"time": s(0.001, 0.2)}),
    ]
    timed = draw(times)
    if (time := timed.get("value")) is not None and float(time.split()[0]) < 1e-3:
        timed["value"] = "2 ms"  # else a run of a given time has no end
    return scenario(
        cluster__workers=workers,
        cluster__workers_per_host=draw(st.sampled_from([1, 1, 2])),
        cluster__servers=servers,
        cluster__network=network,
        cluster__compute={"time": timed},
        cluster__exchange_overhead=draw(st.sampled_from(["0 s", "1 ms"])),
        cluster__stragglers=draw(st.lists(slow, max_size=1)),
        cluster__memory_bandwidth=draw(st.sampled_from([None, "1 MB/s", "3 GB/s"])),
        cluster__apply_overhead=draw(st.sampled_from(["0 s", "0 s", "123 us"])),
        workload={"parameters": draw(st.sampled_from([1, 3, 500, 3000]))},
        strategy=draw(st.sampled_from(STRATEGY)),
        stop=draw(st.one_of(stops)),
        seed=draw(st.integers(0, 2**31)),
    )


@examples(3)
@given(runs())
def test_same_bits(config: Scenario) -> None:
    assert_same(config)
