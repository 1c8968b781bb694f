"""What workers do beside their programs goes on after them, until every message has been dealt with."""

from collections.abc import Callable
from typing import Any

import pytest
from conftest import ENGINES, scenario

import lockstep
from lockstep.executor import process
from lockstep.executor.launch import RunFailed
from lockstep.simulator.errors import SimulationError
from lockstep.strategies import STRATEGIES, Contribution, Node, Strategy


async def relay_race(node: Node) -> None:
    """A baton goes around after all programs have ended; for most of the time it is in no message."""

    async def runner() -> None:
        while True:
            baton = await node.receive("baton")
            await node.sleep(0.03)
            merged = baton.contributions(baton.version + 2)
            await node.updated(1 + baton.version // len(node.workers), node.initial_parameters(), merged)
            if baton.version < 4 * len(node.workers) - 1:
                following = node.workers[(node.index + 1) % len(node.workers)]
                node.send(following, "baton", version=baton.version + 1)

    node.spawn(runner())
    if node.index == 0:
        node.send(node.rank, "baton")


async def nobody_wants_it(node: Node) -> None:
    """A message that no activity waits for, and one that makes an activity end."""

    async def once() -> None:
        await node.receive("wanted")
        await node.updated(1, node.initial_parameters(), [Contribution(node.rank, 0, 0)])

    node.spawn(once())
    node.send(node.workers[node.index - 1], "unwanted")
    node.send(node.workers[node.index - 1], "wanted")
    node.send(node.workers[node.index - 1], "wanted")


async def only_one_has_them(node: Node) -> None:
    """Worker 0 spawns, late; the others have ended by then."""

    async def late() -> None:
        message = await node.receive("late")
        await node.updated(1, node.initial_parameters(), message.contributions(0))

    if node.index == 0:
        await node.sleep(0.1)
        node.spawn(late())
    else:
        node.send(node.workers[0], "late" if node.index == 1 else "other")


async def two_at_the_inbox(node: Node) -> None:
    """Several activities, the program among them, each wait for messages of their own kind."""
    others = [worker for worker in node.workers if worker != node.rank]

    async def echo(kind: str) -> None:
        while True:
            message = await node.receive(kind)
            node.send(message.sender, "back", version=message.version)

    for kind in ("a", "b", "c"):
        node.spawn(echo(kind))
    for number in range(60):
        node.send(others[number % len(others)], "abc"[number % 3], version=number)
        message = await node.receive("back")
        assert message.version == number
    await node.updated(1, node.initial_parameters(), [Contribution(node.rank, 0, 1)])


async def never_still(node: Node) -> None:
    async def ticking() -> None:
        while True:
            await node.sleep(0.01)

    node.spawn(ticking())
    await node.updated(1, node.initial_parameters(), [Contribution(node.rank, 0, 1)])


async def mistaken_late(node: Node) -> None:
    async def beside() -> None:
        await node.receive("word")
        await node.sleep(0.05)
        raise LookupError("the strategy's own")

    node.spawn(beside())
    if node.index == 0:
        node.send(node.workers[1], "word")


PROGRAMS = [relay_race, nobody_wants_it, only_one_has_them, two_at_the_inbox, never_still, mistaken_late]
UNDER_TEST = {program.__name__: Strategy(program) for program in PROGRAMS}
the_real_main = process.main


def main_that_knows_them(*arguments: Any) -> None:
    STRATEGIES.update(UNDER_TEST)
    the_real_main(*arguments)


@pytest.fixture(params=list(ENGINES))
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., lockstep.Result]:
    monkeypatch.setattr("lockstep.executor.process.main", main_that_knows_them)
    for name, strategy in UNDER_TEST.items():
        monkeypatch.setitem(STRATEGIES, name, strategy)
    return lambda program, **changes: ENGINES[request.param](
        scenario(strategy=program.__name__, cluster__workers=3, **changes)
    )


def updates(result: lockstep.Result) -> Any:
    return result.records[result.records["event"] == "update"]


@pytest.mark.real
def test_they_go_on_until_nothing_more_can_happen(run) -> None:
    found = updates(run(relay_race))
    assert found.sort_values("end")["node"].tolist() == [0, 1, 2] * 4
    assert found["end"].is_monotonic_increasing


@pytest.mark.real
def test_a_message_that_nobody_waits_for_holds_nobody_up(run) -> None:
    assert sorted(updates(run(nobody_wants_it))["node"]) == [0, 1, 2]


@pytest.mark.real
def test_one_worker_may_have_them_alone(run) -> None:
    found = updates(run(only_one_has_them))
    assert found[["node", "peer"]].to_numpy().tolist() == [[0, 1]]


@pytest.mark.real
def test_each_gets_the_messages_it_waits_for(run) -> None:
    result = run(two_at_the_inbox)
    assert len(updates(result)) == 3
    assert (result.records["kind"] == "back").sum() == 180


@pytest.mark.real
def test_the_end_of_the_run_is_theirs_too(run) -> None:
    assert len(updates(run(never_still, stop={"time": "0.3 s"}))) == 3


@pytest.mark.real
def test_a_mistake_after_the_program_is_told(run) -> None:
    with pytest.raises((RunFailed, SimulationError), match=r"worker 1 \(rank 1\) .*: LookupError: the strat"):
        run(mistaken_late)
