"""The ring as a recurrence against the ring as messages: the same records, the same parameters."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Scenario
from lockstep.job.plan import Plan
from lockstep.scenarios import Network as NetworkSection
from lockstep.simulator.engine import Simulation
from lockstep.simulator.errors import SimulationError
from lockstep.simulator.network import Network
from lockstep.simulator.ring import Disturbed, Lanes, schedule, separate_lanes
from lockstep.simulator.topology import Topology
from lockstep.strategies import STRATEGIES, Contribution, Node, Strategy
from lockstep.strategies.collectives import ring
from lockstep.strategies.placement import Role
from lockstep.workloads import deterministic_threads
from tests.support.nightly import examples
from tests.support.rings import assert_equal, assert_same, run, scenarios
from tests.support.scenarios import scenario


@pytest.mark.slow
@given(scenarios())
def test_same_records(config: Scenario) -> None:
    assert_same(config)


@pytest.mark.slow
@examples(0.25)
@given(scenarios(workload={"problem": "logistic"}))
def test_same_records_and_parameters_when_learning(config: Scenario) -> None:
    assert_same(config)


@pytest.mark.slow
@examples(0.6)
@given(st.data())
def test_same_records_on_any_network(data: st.DataObject) -> None:
    workers, per_host = data.draw(st.integers(2, 9)), data.draw(st.integers(1, 3))
    hosts = -(-workers // per_host)
    bandwidth = st.floats(1e4, 1e7).map(lambda b: f"{b!r} B/s")
    network: dict[str, Any] = {"bandwidth": "1 MB/s", "latency": "1 ms"}
    network["cards"] = [{"hosts": [host], "bandwidth": data.draw(bandwidth)} for host in range(0, hosts, 2)]
    network |= data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "duplex": st.just("half"),
                "receive_overhead": st.just("300 us"),
                "intra_host": st.just({"bandwidth": "5 MB/s", "latency": "10 us"}),
                "burst": st.just({"size": "2 kB", "line_rate": "10 MB/s"}),
                "topology": st.sampled_from(
                    [
                        {"kind": "racks", "hosts_per_rack": 2, "oversubscription": 3, "latency": "2 ms"},
                        {"kind": "fat-tree", "hosts_per_leaf": 2, "spines": 2, "link": "700 kB/s"},
                    ]
                ),
                "varying": st.just([{"links": "*up-link", "schedule": [{"at": "0 s", "factor": 0.4}]}]),
                "background": st.just([{"from": 0, "to": hosts - 1, "bandwidth": "100 kB/s"}]),
            },
        )
    )
    if hosts == 1 or network.get("duplex") == "half":
        network.pop("background", None)
        network.pop("varying", None)
    config = data.draw(
        scenarios(
            cluster__workers=workers,
            cluster__workers_per_host=per_host,
            cluster__network=network,
            cluster__stragglers=[{"worker": 1, "slowdown": 2}],
        )
    )
    assert_same(config)


@st.composite
def in_hosts(draw: st.DrawFn) -> Scenario:
    """Workers that share a link with others of their hosts; times that meet, and times that do not."""
    per_host = draw(st.integers(2, 5))
    inner = {"bandwidth": draw(st.sampled_from(["1 MB/s", "10 MB/s", "3.7 MB/s"]))}
    inner["latency"] = draw(st.sampled_from(["0 s", "1 ms", "13 us"]))
    network = {"bandwidth": "1 MB/s", "latency": draw(st.sampled_from(["0 s", "1 ms", "70 us"]))}
    network["message_overhead"] = draw(st.sampled_from(["0 s", "0 s", "50 us"]))
    return draw(
        scenarios(
            cluster__workers=per_host * draw(st.integers(1, 3)),
            cluster__workers_per_host=per_host,
            cluster__network={**network, "intra_host": inner},
            cluster__stragglers=[],
        )
    )


@pytest.mark.slow
@given(in_hosts())
def test_same_records_where_workers_share_a_link(config: Scenario) -> None:
    assert_same(config)


@pytest.mark.parametrize("compile_from", [0, 10**9])
@pytest.mark.parametrize("distribution", ["constant", "lognormal"])
def test_a_ring_inside_hosts_is_computed(
    distribution: str, compile_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By numba, where that is installed, and by Python."""
    monkeypatch.setattr("lockstep.simulator.rings._MANY", compile_from)
    time: dict[str, Any] = {"distribution": "constant", "value": "3 ms"}
    if distribution == "lognormal":
        time = {"distribution": "lognormal", "mean": "3 ms", "cv": 0.3}
    inner = {"bandwidth": "10 MB/s", "latency": "20 us"}
    config = scenario(
        cluster__workers=12,
        cluster__workers_per_host=4,
        cluster__network={"bandwidth": "1 MB/s", "latency": "50 us", "intra_host": inner},
        cluster__compute={"time": time},
        strategy={"name": "all-reduce"},
        stop={"steps": 4},
    )
    simulation = Simulation(Plan.of(config))
    simulation.run()  # not Disturbed
    assert_equal(simulation.result(), run(config, shortcuts=False))


@pytest.mark.slow
@pytest.mark.parametrize("slowdown", [1, 1.3])
def test_a_time_that_ends_the_run_at_the_very_instant_of_an_arrival(slowdown: float) -> None:
    common = {
        "strategy": "all-reduce",
        "cluster__network": {"bandwidth": "1 MB/s", "latency": "1 ms"},
        "cluster__stragglers": [{"worker": 1, "slowdown": slowdown}],
    }
    whole = lockstep.simulate(scenario(stop={"steps": 3}, **common))
    for end in whole.records["end"].unique():
        assert_same(scenario(stop={"steps": 3, "time": f"{float(end)!r} s"}, **common))


@pytest.mark.parametrize("bound", ["steps", "updates"])
@pytest.mark.parametrize("mean", ["0 s", "10 ms"])
def test_same_records_when_a_target_ends_the_run(bound: str, mean: str) -> None:
    """Some workers may then have begun a ring that others never enter."""
    config = scenario(
        workload={"dataset": "digits", "model": "mlp"}, cluster__network={"latency": "1 ms"},
        stop={bound: 30, "target_accuracy": 0.5},
        strategy={"name": "all-reduce", "learning_rate": 0.3},
        cluster__compute={"time": {"distribution": "lognormal", "mean": mean, "cv": 2}}
        if mean != "0 s" else {"time": {"distribution": "constant", "value": mean}},
    )  # fmt: skip
    with deterministic_threads():
        carried = Simulation(Plan.of(config), shortcuts=False)
        carried.run()
    result = lockstep.simulate(config)
    pd.testing.assert_frame_equal(result.records, carried.result().records, check_exact=True)


@pytest.mark.parametrize("workers", [2, 5, 16])
def test_additions_that_take_time(workers: int) -> None:
    """2(p−1)α + 2(p−1)/p·M/B + (p−1)/p·M·γ, with three bytes touched for each that is added."""
    p, m, bandwidth, alpha, byte_s = workers, 80_000, 1e6, 2e-3, 1e-8
    lanes = Lanes(np.full(p, bandwidth), np.full(p, alpha))
    times = schedule(
        np.zeros(p),
        np.zeros(p),
        np.full((2 * (p - 1), p), m // p),
        lanes,
        add_s=lambda touched: touched * byte_s,
    )
    share = (p - 1) / p * m
    assert times.done == pytest.approx(2 * (p - 1) * alpha + 2 * share / bandwidth + share * 3 * byte_s)


def test_unequal_lanes() -> None:
    """All rings are as slow as their narrowest lane, whose messages follow each other without a pause."""
    rates, p = np.array([1e6, 5e6, 1e5, 3e6]), 4
    lanes = Lanes(rates, np.zeros(p))
    times = schedule(np.zeros(p), np.zeros(p), np.full((2 * (p - 1), p), 1000), lanes)
    assert times.ends[-1, 2] == pytest.approx(2 * (p - 1) * 1000 / rates.min())


def registered(monkeypatch: pytest.MonkeyPatch, program) -> Scenario:
    monkeypatch.setitem(STRATEGIES, "under-test", Strategy(program))
    network = {"bandwidth": "1 MB/s", "latency": "1 ms"}
    return scenario(strategy="under-test", cluster__network=network)


@pytest.mark.parametrize("late", [0.0, 1e-3, 4.5e-3, 1.0])
def test_messages_beside_a_ring_are_not_ignored(monkeypatch: pytest.MonkeyPatch, late: float) -> None:
    """Gossip that meets a ring on its links: the whole run is made by messages."""

    async def program(node: Node) -> None:
        async def gossip() -> None:
            await node.sleep(late)
            node.send(node.workers[node.index - 2], "gossip", node.initial_parameters())

        node.spawn(gossip())
        for version in range(3):
            total = await node.collective(ring, node.initial_parameters())
            await node.updated(version + 1, total, [Contribution(node.rank, 0, 1)])

    config = registered(monkeypatch, program)
    if late < 1:
        with pytest.raises(Disturbed):
            Simulation(Plan.of(config)).run()
    carried = Simulation(Plan.of(config), shortcuts=False)
    carried.run()
    pd.testing.assert_frame_equal(lockstep.simulate(config).records, carried.result().records)


def test_a_ring_that_not_all_enter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(node: Node) -> None:
        if node.index != 2:
            await node.collective(ring, node.initial_parameters())

    with pytest.raises(SimulationError, match="rank 0 waits for ring from 3"):
        lockstep.simulate(registered(monkeypatch, program))


def test_vectors_of_different_lengths_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(node: Node) -> None:
        await node.collective(ring, node.initial_parameters()[node.index :])

    with pytest.raises(SimulationError, match="elements do not combine"):
        lockstep.simulate(registered(monkeypatch, program))


def test_paths_that_share_a_link_are_not_separate() -> None:
    """Two workers on one host, each with a neighbour elsewhere."""

    def network(*hosts: int) -> Network:
        residents = [
            [Role("worker", w) for w, host in enumerate(hosts) if host == h] for h in sorted(set(hosts))
        ]
        return Network(simpy.Environment(), Topology(NetworkSection(bandwidth="1 MB/s"), residents), hosts)

    assert separate_lanes(network(0, 1, 2, 3), range(4)) is not None
    assert separate_lanes(network(0, 0, 1, 1), range(4)) is not None
    assert separate_lanes(network(0, 1, 0, 1), range(4)) is None
    assert separate_lanes(network(0), range(1)) is None
