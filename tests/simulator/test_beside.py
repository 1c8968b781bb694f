"""Rings that go on while their workers compute, by their events alone, against all messages: same bits."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Scenario
from lockstep.job.plan import Plan
from lockstep.simulator.engine import Simulation
from lockstep.simulator.network import Network
from lockstep.simulator.ring import Disturbed
from lockstep.strategies import STRATEGIES, Contribution, Node, Strategy
from lockstep.strategies.collectives import ring
from tests.support.nightly import examples
from tests.support.rings import assert_equal, run, scenarios
from tests.support.scenarios import scenario

PIPE: list[dict[str, Any]] = [
    {"name": "pipe-sgd"},
    {"name": "pipe-sgd", "algorithm": "native"},
    {"name": "pipe-sgd", "delay": 3, "algorithm": "auto"},
]
DILOCO: list[dict[str, Any]] = [
    {"name": "streaming-diloco", "averaging_period": 3, "fragments": 2},
    {"name": "streaming-diloco", "averaging_period": 2, "fragments": 4, "overlap": 0},
    {"name": "streaming-diloco", "averaging_period": 4, "fragments": 3, "overlap": 2, "codec": "fp16"},
]
CONSTANT = {"distribution": "constant", "value": "3 ms"}
DRAWN = {"distribution": "lognormal", "mean": "30 ms", "cv": 0.2}


@st.composite
def beside(draw: st.DrawFn, **fixed: Any) -> Scenario:
    return draw(scenarios(strategy=draw(st.sampled_from(PIPE + DILOCO)), **fixed))


def assert_same(config: Scenario) -> None:
    """Records, parameters, and what links carried when."""
    simulation = Simulation(Plan.of(config))
    simulation.run()  # not Disturbed
    assert simulation.rings is not None
    computed, carried = lockstep.simulate(config), run(config, shortcuts=False)
    assert_equal(computed, carried)
    pd.testing.assert_frame_equal(computed.utilisation, carried.utilisation, check_exact=True)


@pytest.mark.slow
@given(beside())
def test_same_records(config: Scenario) -> None:
    assert_same(config)


@pytest.mark.slow
@examples(0.25)
@given(beside(workload={"problem": "logistic"}))
def test_same_records_and_parameters_when_learning(config: Scenario) -> None:
    assert_same(config)


def config_of(strategy: dict[str, Any], **changes: Any) -> Scenario:
    given_: dict[str, Any] = {
        "cluster__workers": 8,
        "cluster__network": {"bandwidth": "100 Mbit/s", "latency": "200 us"},
        "cluster__compute": {"time": DRAWN},
        "workload": {"parameters": 30_000},
        "stop": {"steps": 20},
        "strategy": strategy,
    }
    return scenario(**given_ | changes)


@pytest.mark.parametrize("memory", [None, "1 GB/s"])
@pytest.mark.parametrize("time", [DRAWN, CONSTANT])
@pytest.mark.parametrize("strategy", [PIPE[0], PIPE[2], DILOCO[0], DILOCO[1]], ids=str)
def test_rings_that_meet_are_computed(
    strategy: dict[str, Any], time: dict[str, Any], memory: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ring takes 20 ms or more, a gradient 3 ms or 30: several are under way, and wait for each other."""
    config = config_of(strategy, cluster__compute={"time": time}, cluster__memory_bandwidth=memory)
    carried = run(config, shortcuts=False)
    monkeypatch.delattr(Network, "send")
    computed = lockstep.simulate(config)
    assert_equal(computed, carried)
    pd.testing.assert_frame_equal(computed.utilisation, carried.utilisation, check_exact=True)


@pytest.mark.parametrize("end", [0.11, 0.15, 0.4])
def test_an_end_in_the_midst_of_rings(end: float) -> None:
    assert_same(config_of(PIPE[0], stop={"time": f"{end} s"}))


@pytest.mark.parametrize("network", [{"queue": "64 KiB"}, {"intra_host": {"bandwidth": "1 Gbit/s"}}])
def test_where_messages_share_links_or_wait_in_them_all_are_sent(
    network: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = {"bandwidth": "100 Mbit/s", "latency": "200 us"} | network
    config = config_of(PIPE[0], cluster__network=network, cluster__workers_per_host=4)
    carried, sent = run(config, shortcuts=False), list[int]()
    send = Network.send
    monkeypatch.setattr(Network, "send", lambda *given: sent.append(1) or send(*given))
    assert_equal(lockstep.simulate(config), carried)
    assert len(sent) == 20 * 8 * 14


def under_test(monkeypatch: pytest.MonkeyPatch, program: Any) -> Scenario:
    monkeypatch.setitem(STRATEGIES, "under-test", Strategy(program))
    network = {"bandwidth": "1 MB/s", "latency": "1 ms"}
    return scenario(strategy="under-test", cluster__network=network, workload={"parameters": 1000})


@pytest.mark.parametrize("late", [0.0, 3e-3, 1.0])
def test_a_message_beside_them_is_not_ignored(late: float, monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(node: Node) -> None:
        first = node.begin_collective(ring, node.initial_parameters())
        second = node.begin_collective(ring, node.initial_parameters())
        await node.sleep(late)
        node.send(node.workers[node.index - 1], "gossip", node.initial_parameters())
        await second
        await node.updated(1, await first, [Contribution(node.rank, 0, 1)])

    config = under_test(monkeypatch, program)
    with pytest.raises(Disturbed):
        Simulation(Plan.of(config)).run()
    assert_equal(lockstep.simulate(config), run(config, shortcuts=False))


def test_each_is_the_one_that_was_begun_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the workers come to the second ring before the first; one of others' work is between."""

    async def program(node: Node) -> None:
        async def late(member: Node, vector: Any) -> Any:
            await node.sleep(5e-3 * (node.index % 2))
            return await member.collective(ring, vector)

        async def early(member: Node, vector: Any) -> Any:
            await node.sleep(5e-3 * (1 - node.index % 2))
            return await member.collective(ring, vector)

        whole = node.initial_parameters()
        sums = [node.begin_collective(late, whole), node.begin_collective(early, whole[:500])]
        await node.apply(lambda: None, 12_000)
        assert [len(await each) for each in sums] == [1000, 500]
        await node.updated(1, whole, [Contribution(node.rank, 0, 1)])

    config = under_test(monkeypatch, program)
    assert_same(config)
    assert_same(
        config.model_copy(update={"cluster": config.cluster.model_copy(update={"memory_bandwidth": 1e6})})
    )


def test_some_that_are_waited_for_and_some_that_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(node: Node) -> None:
        first = node.begin_collective(ring, node.initial_parameters())
        await node.collective(ring, node.initial_parameters())
        await node.updated(1, await first, [Contribution(node.rank, 0, 1)])

    config = under_test(monkeypatch, program)
    assert_equal(lockstep.simulate(config), run(config, shortcuts=False))
