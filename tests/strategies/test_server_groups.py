"""Several groups of servers, each with a copy of the parameters: SINGA's frameworks."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import lockstep
from lockstep import ScenarioError
from lockstep.strategies.node import Message
from lockstep.strategies.owners import InCopies
from lockstep.strategies.placement import hosts, roles
from lockstep.strategies.server_groups import SharedShard
from tests.support.nodes import at_once
from tests.support.scenarios import scenario

GAMMA = {"time": {"distribution": "gamma", "mean": "10 ms", "cv": 0.3}}
MLP = {"dataset": "digits", "model": "mlp", "batch_size": 16}


def config(groups: int, copies: int, **changes: Any) -> lockstep.Scenario:
    period = changes.pop("period", 1)
    usual: dict[str, Any] = {
        "cluster__compute": GAMMA, "cluster__network": {"bandwidth": "20 MB/s"}, "workload": MLP,
        "cluster__servers": {"count": 2, "copies": copies}, "stop": {"steps": 30},
        "strategy": {"name": "compute-groups", "groups": groups, "sync_period": period, "learning_rate": 0.1},
    }  # fmt: skip
    return scenario(**{**usual, **changes})


def copies_of(job: lockstep.Scenario, monkeypatch: pytest.MonkeyPatch) -> tuple[lockstep.Result, list[Any]]:
    """The run, and the parts of all copies in the end."""
    seen: list[Any] = []

    def spy(self: InCopies, parts: Any, concatenate: Any) -> Any:
        seen[:] = [part.numpy() for part in parts]
        return together(self, parts, concatenate)

    together = InCopies.together
    monkeypatch.setattr(InCopies, "together", spy)
    return lockstep.simulate(job), seen


def test_each_group_of_servers_has_its_workers() -> None:
    everyone = roles(5, 2, copies=2)
    assert [role.parents for role in everyone[:5]] == [(5, 6)] * 3 + [(7, 8)] * 2
    assert [role.children for role in everyone[5:]] == [(0, 1, 2)] * 2 + [(3, 4)] * 2
    assert [role.followers for role in everyone[5:]] == [(7,), (), (), (6,)]
    assert [role.parents for role in everyone[5:]] == [(), (8,), (5,), ()]
    assert [(role.index, role.shard) for role in everyone[5:]] == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert hosts(5, 1, everyone, colocated=True)[5:] == [0, 1, 3, 4]
    assert hosts(5, 1, everyone, colocated=False)[5:] == [5, 6, 7, 8]


def test_copies_that_are_never_reconciled_are_runs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stale, nothing goes between servers, and every group is in step with itself."""
    result, parts = copies_of(config(2, 2, period=1000), monkeypatch)
    messages = result.records[result.records["event"] == "message"]
    assert not {"moved", "reconciled"} & {*messages["kind"]}
    assert result.metrics["staleness"]["max"] == 0
    assert result.metrics["samples"] == 30 * 4 * 16
    assert not np.array_equal(parts[0], parts[2])


def test_reconciled_copies_come_near_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of two servers: the master of shard 0 is in the first group, of shard 1 in the second."""

    def apart(period: int) -> float:
        _, (a, b, c, d) = copies_of(config(2, 2, period=period), monkeypatch)
        return float(np.linalg.norm(np.concatenate([a - c, b - d])))

    assert apart(1) < apart(10) < apart(1000)


@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=40))
def test_nothing_that_a_copy_adds_is_lost(period: int, happens: list[tuple[int, int]]) -> None:
    """A master has its own updates and what others have told it of; a copy has all that it was told, and its
    own updates. What happens: an update by so much at a server or, in between, one message arrives."""
    wires: dict[tuple[int, int], list[Message]] = {}

    async def apply(function: Any, nbytes: int) -> Any:
        return function()

    async def told(version: int, parameters: Any, contributions: Any) -> None:
        assert contributions == []

    def server(rank: int) -> tuple[Any, SharedShard]:
        def send(to: int, kind: str, body: Any) -> None:
            wires.setdefault((rank, to), []).append(Message(kind, rank, body))

        shard = SimpleNamespace(parameters=np.zeros(1), version=1)
        node = SimpleNamespace(parents=(0,)[:rank], apply=apply, updated=told, send=send, add=np.add)
        return shard, SharedShard(node, shard, period)  # type: ignore[arg-type]

    servers, made = [server(rank) for rank in range(3)], [0, 0, 0]

    def deliver() -> bool:
        waiting = [to for to in wires if wires[to]]
        if waiting:
            at_once(servers[waiting[0][1]][1].take_in(wires[waiting[0]].pop(0)))
        return bool(waiting)

    for rank, amount in happens:
        servers[rank][0].parameters = servers[rank][0].parameters + amount
        made[rank] += amount
        at_once(servers[rank][1].updated())
        if amount % 2:
            deliver()
    while deliver():
        pass
    (master, _), *others = servers
    untold = [copy.parameters - shared.known for copy, shared in others]
    assert master.parameters + sum(untold) == sum(made)
    assert all(
        left <= max(made) and not shared.asked for left, (_, shared) in zip(untold, others, strict=True)
    )


def test_what_servers_send_each_other() -> None:
    """Each of two shards: a request and an answer of its bytes for every `period` updates at the copy."""
    size, period = 4000, 2
    job = config(
        2, 2, period=period, workload={"parameters": size // 4},
        cluster__compute={"time": {"distribution": "constant", "value": "10 ms"}},
    )  # fmt: skip
    records = lockstep.simulate(job).records
    messages = records[records["event"] == "message"]
    moved = messages[messages["kind"] == "moved"]
    assert len(moved) == 2 * 30 / period
    assert {*moved["nbytes"]} == {size // 2}
    assert {*zip(moved["node"], moved["peer"], strict=True)} == {(6, 4), (5, 7)}


def test_one_copy_needs_no_reconciling() -> None:
    """And is what there was before: SINGA's Downpour."""
    one, often = (lockstep.simulate(config(4, 1, period=period)) for period in (1, 7))
    plain = lockstep.simulate(config(4, 1, strategy={"name": "asynchronous", "learning_rate": 0.1}))
    assert one.records.equals(often.records)
    assert one.records.equals(plain.records)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"strategy": "synchronous"}, "must be 1: synchronous's servers keep one copy"),
        ({"groups": 3}, "must divide the 3 groups of workers: 1 or 3; not 2"),
    ],
)
def test_refusals(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        lockstep.simulate(config(changes.pop("groups", 2), 2, **changes))


def test_copies_have_no_relays() -> None:
    with pytest.raises(ValidationError, match="must be 1 with a hierarchy, not 2"):
        config(2, 2, cluster__servers={"copies": 2, "hierarchy": {"groups": 2}})


@pytest.mark.real
def test_real_groups_of_servers() -> None:
    """Distributed Hogwild: both copies learn, and their mean is what is evaluated."""
    job = config(2, 2, period=2)
    predicted, measured = lockstep.simulate(job), lockstep.run(job)
    assert measured.metrics["samples"] == predicted.metrics["samples"]
    assert measured.metrics["bytes_sent"] == pytest.approx(predicted.metrics["bytes_sent"], rel=0.1)
    assert measured.metrics["loss"] < 2.2
