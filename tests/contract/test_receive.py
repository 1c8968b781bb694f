"""`receive` takes its message when it is called, on both clocks and in a replay."""

from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep import Scenario
from lockstep.executor import process
from lockstep.executor.running import run_to_end
from lockstep.strategies import STRATEGIES, Contribution, Node, Strategy
from lockstep.strategies.owners import OneModelEach
from tests.support.nodes import real_nodes
from tests.support.scenarios import scenario

the_real_main = process.main


async def in_the_other_order(node: Node) -> None:
    """Two receives, of which the second is awaited first: once with the messages there, and once without."""
    other, parameters, version = 1 - node.index, node.initial_parameters(), 0
    while await node.next_batch_available():
        await node.gradient(parameters)
        if version % 2:
            await node.sleep(0.02)
        seen = [node.receive("word", other), node.receive("word", other)]
        for number in (1, 2):
            node.send(other, "word", parameters[:1], version=2 * version + number)
        second = (await seen[1]).version
        first = (await seen[0]).version
        assert (first, second) == (2 * version + 1, 2 * version + 2)
        version += 1
        parameters = 0.5 * parameters + (first + 2 * second)
        await node.updated(version, parameters, [Contribution(node.rank, 0, 1)])


def main_that_knows_it(*arguments: Any) -> None:
    STRATEGIES["in-the-other-order"] = STRATEGY
    the_real_main(*arguments)


STRATEGY = Strategy(in_the_other_order, owners=OneModelEach)


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.setitem(STRATEGIES, "in-the-other-order", STRATEGY)
    return scenario(
        cluster__workers=2, workload={"problem": "quadratic"}, strategy="in-the-other-order",
        stop={"steps": 6},
    )  # fmt: skip


def test_in_virtual_time(config: Scenario) -> None:
    assert lockstep.simulate(config).metrics["updates"] == 6


def test_a_receive_that_nobody_awaits_has_its_message(config: Scenario) -> None:
    """As one that is posted and forgotten: a later one has the next message."""
    found = []

    async def program(node: Node) -> None:
        forgotten = node.receive("word")
        for version in (1, 2):
            node.send(node.rank, "word", version=version)
        found.append((await node.receive("word")).version)
        await forgotten

    with real_nodes(config) as nodes:
        run_to_end(program(nodes[0]), nodes[0].port)
    assert found == [2]


@pytest.mark.real
def test_in_real_time_and_again(config: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.executor.process.main", main_that_knows_it)
    measured = lockstep.run(config, out=tmp_path)
    assert measured.metrics["updates"] == 6
    assert lockstep.replay(tmp_path).metrics["parameters_sha256"] == measured.metrics["parameters_sha256"]
