"""The plan of a job: the owners of its parameters, and that it is what a scenario says."""

from typing import Any

import pytest

from lockstep import ScenarioError
from lockstep.job.plan import Plan
from lockstep.strategies import STRATEGIES
from lockstep.strategies.owners import OneModelEach, Owners, Replicated, Sharded, SharedMemory
from lockstep.strategies.parts import length
from tests.support.scenarios import scenario

SERVERS = {"cluster__servers": 2, "cluster__workers": 4}
# Of a kind of owners: a strategy, ranks that own, whose parts are evaluated, and what (1, 2, 3, 4) come to.
KINDS: dict[type[Owners], tuple[str, list[int], list[int], Any]] = {
    Sharded: ("asynchronous", [4, 5], [4, 5], [1, 2]),
    Replicated: ("all-reduce", [0, 1, 2, 3], [0], [1]),
    OneModelEach: ("gossip", [0, 1, 2, 3], [0, 1, 2, 3], 2.5),
    SharedMemory: ("hogwild", [0], [0], [1]),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_who_owns_what(kind: type[Owners]) -> None:
    strategy, ranks, evaluated, whole = KINDS[kind]
    owners = Plan.of(scenario(**SERVERS, strategy=strategy)).owners
    assert type(owners) is kind
    assert (list(owners.ranks), list(owners.evaluated)) == (ranks, evaluated)
    parts = [1, 2, 3, 4][: len(evaluated)]
    assert owners.together(parts, list) == whole
    assert owners.copies == (4 if kind is OneModelEach else 1)
    assert [rank for rank in range(4) if owners.keeps(rank)] == {
        Sharded: [], Replicated: [0], OneModelEach: [0, 1, 2, 3], SharedMemory: [0, 1, 2, 3],
    }[kind]  # fmt: skip
    assert owners.owner(3) == (0 if kind is SharedMemory else 3)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_has_a_plan_that_adds_up(name: str) -> None:
    plan = Plan.of(scenario(strategy=name, cluster__workers=4))
    assert [role.kind for role in plan.roles][:4] == ["worker"] * 4
    assert len(plan.hosts) == len(plan.roles) == len(plan.senders)
    assert sum(map(length, plan.groups[0].shards)) == plan.sizes.parameters
    for rank, senders in enumerate(plan.senders):
        assert rank in senders
        assert all(rank in plan.senders[sender] for sender in senders)  # who hears also answers


def test_what_cannot_be_a_job_has_no_plan() -> None:
    config = scenario(strategy="k-sync")
    strategy = config.strategy.model_copy(update={"name": "k-sink"})
    with pytest.raises(ScenarioError, match="did you mean 'k-sync'"):
        Plan.of(config.model_copy(update={"strategy": strategy}))
