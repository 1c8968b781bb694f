"""The ring between hosts of two-level sums, computed, against all its messages: the same records."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Scenario
from lockstep.job.plan import Plan
from lockstep.simulator.engine import Simulation
from lockstep.simulator.network import Network
from lockstep.simulator.ring import Disturbed
from lockstep.simulator.rings import Rings
from lockstep.strategies import STRATEGIES, Contribution, Node, Strategy
from lockstep.strategies.collectives import two_level
from tests.support.nightly import examples
from tests.support.rings import assert_equal, assert_same, run, scenarios
from tests.support.scenarios import scenario

STEADY: dict[str, Any] = {"bandwidth": "1 MB/s", "latency": "1 ms"}
STRAGGLERS: list[list[dict[str, Any]]] = [
    [],
    [{"worker": 1, "slowdown": 3}],
    [{"worker": 0, "slowdown": 2, "probability": 0.4}, {"host": 1, "slowdown": 1.3}],
    [{"worker": 0, "slowdown": 5, "period": "20 ms", "busy": "7 ms"}],
]


@st.composite
def two_levels(draw: st.DrawFn, **fixed: Any) -> Scenario:
    """Hosts with several workers, whose first meet in a ring: times that meet, and times that do not."""
    per_host, hosts = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    network = {"bandwidth": "1 MB/s", "latency": draw(st.sampled_from(["0 s", "1 ms", "70 us"]))}
    network["message_overhead"] = draw(st.sampled_from(["0 s", "0 s", "50 us"]))
    inner = {"bandwidth": draw(st.sampled_from([None, "10 MB/s", "3.7 MB/s"])), "latency": "13 us"}
    racks = {"kind": "racks", "hosts_per_rack": 2, "oversubscription": 3, "latency": "2 ms"}
    network |= draw(
        st.fixed_dictionaries(
            {}, optional={"intra_host": st.just(inner), "topology": st.just(racks), "duplex": st.just("half")}
        )
    )
    strategies = st.fixed_dictionaries(
        {"algorithm": st.just("two-level")},
        optional={"name": st.just("local-sgd"), "buckets": st.just(2), "codec": st.just("fp16")},
    )
    strategy = {"name": "all-reduce"} | draw(strategies)
    if strategy["name"] == "local-sgd":
        strategy = {"name": "local-sgd", "algorithm": "two-level"}
    return draw(
        scenarios(
            cluster__workers=per_host * hosts - draw(st.integers(0, 1)),
            cluster__workers_per_host=per_host,
            cluster__network=network,
            cluster__stragglers=draw(st.sampled_from(STRAGGLERS)),
            strategy=strategy,
            **fixed,
        )
    )


@pytest.mark.slow
@given(two_levels())
def test_same_records_in_two_levels(config: Scenario) -> None:
    assert_same(config)


@pytest.mark.slow
@examples(0.25)
@given(two_levels(workload={"problem": "logistic"}))
def test_same_records_and_parameters_in_two_levels_when_learning(config: Scenario) -> None:
    assert_same(config)


@pytest.mark.parametrize("distribution", ["constant", "lognormal"])
def test_of_two_levels_only_what_stays_in_hosts_goes_by_messages(
    distribution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    time: dict[str, Any] = {"distribution": "constant", "value": "3 ms"}
    if distribution == "lognormal":
        time = {"distribution": "lognormal", "mean": "3 ms", "cv": 0.3}
    config = scenario(
        cluster__workers=12,
        cluster__workers_per_host=4,
        cluster__network={"bandwidth": "1 MB/s", "intra_host": {"bandwidth": "10 MB/s", "latency": "20 us"}},
        cluster__compute={"time": time},
        strategy={"name": "all-reduce", "algorithm": "two-level"},
        stop={"steps": 4},
    )
    carried, sent = run(config, shortcuts=False), list[tuple[int, int]]()
    send = Network.send
    monkeypatch.setattr(Network, "send", lambda *given: sent.append(given[1:3]) or send(*given))
    simulation = Simulation(Plan.of(config))
    simulation.run()  # not Disturbed
    assert len(sent) == 4 * 2 * (12 - 3)
    assert all(sender // 4 == to // 4 for sender, to in sent)
    computed = simulation.result()
    assert_equal(computed, carried)
    assert computed.metrics["utilisation"] == pytest.approx(carried.metrics["utilisation"])


@pytest.mark.parametrize("late", [0.0, 4e-3, 7e-3, 1.0])
@pytest.mark.parametrize("sender", [0, 1])
def test_a_message_between_hosts_is_not_ignored(
    sender: int, late: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gossip of a first worker, or of another one, to another host: the whole run is made by messages."""

    async def program(node: Node) -> None:
        async def gossip() -> None:
            await node.sleep(late)
            node.send(2, "gossip", node.initial_parameters())

        if node.rank == sender:
            node.spawn(gossip())
        for version in range(3):
            total = await node.collective(two_level, node.initial_parameters())
            await node.updated(version + 1, total, [Contribution(node.rank, 0, 1)])

    monkeypatch.setitem(STRATEGIES, "under-test", Strategy(program))
    config = scenario(cluster__workers_per_host=2, cluster__network=STEADY, strategy="under-test")
    if late < 1:
        with pytest.raises(Disturbed):
            Simulation(Plan.of(config)).run()
    assert_equal(lockstep.simulate(config), run(config, shortcuts=False))


UNSTEADY: dict[str, dict[str, Any]] = {
    "a rate that varies": {"varying": [{"links": "*up-link", "schedule": [{"at": "0 s", "factor": 0.4}]}]},
    "others' traffic": {"background": [{"from": 0, "to": 1, "bandwidth": "100 kB/s"}]},
    "a burst": {"burst": {"size": "2 kB", "line_rate": "10 MB/s"}},
    "receiving takes time": {"receive_overhead": "300 us"},
}
FAULTS: dict[str, dict[str, Any]] = {
    "a worker hangs": {"worker": 1, "at": "15 ms", "hang_for": "20 ms"},
    "a first worker crashes": {"worker": 2, "at": "15 ms", "crash": True, "back_after": "20 ms"},
    "a link is down": {"link": {"host": 1}, "at": "15 ms", "down_for": "20 ms"},
}


@pytest.mark.parametrize("case", UNSTEADY)
def test_where_only_messages_can_tell_all_are_sent(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = scenario(
        cluster__workers_per_host=2,
        cluster__network=STEADY | UNSTEADY[case],
        strategy={"name": "all-reduce", "algorithm": "two-level"},
        stop={"steps": 2},
    )
    monkeypatch.delattr(Rings, "enter")
    assert_equal(lockstep.simulate(config), run(config, shortcuts=False))


@pytest.mark.parametrize("case", FAULTS)
def test_with_faults_all_messages_are_sent(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing computed to compare with: only messages can be lost, and be waited for."""
    sent = list[str]()
    send = Network.send
    monkeypatch.setattr(Network, "send", lambda *given: sent.append(given[4].kind) or send(*given))
    monkeypatch.delattr(Rings, "enter")
    config = scenario(
        cluster__workers_per_host=2,
        cluster__network=STEADY,
        cluster__faults=[FAULTS[case]],
        cluster__detect="5 ms",
        recovery={"on_failure": "restart", "checkpoint": {"every": "2 updates"}},
        strategy={"name": "all-reduce", "algorithm": "two-level"},
        stop={"updates": 6},
    )
    assert lockstep.simulate(config).metrics["updates"] == 6
    assert "ring" in sent
