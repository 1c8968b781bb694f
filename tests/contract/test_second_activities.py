"""What workers do beside their programs goes on after them, until every message has been dealt with."""

from collections.abc import Callable
from typing import Any

import pytest

import lockstep
from lockstep.executor.launch import RunFailed
from lockstep.simulator.errors import SimulationError
from lockstep.strategies import STRATEGIES
from tests.support.activities import (
    UNDER_TEST,
    main_that_knows_them,
    mistaken_late,
    never_still,
    nobody_wants_it,
    only_one_has_them,
    relay_race,
    two_at_the_inbox,
)
from tests.support.scenarios import ENGINES, scenario


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
