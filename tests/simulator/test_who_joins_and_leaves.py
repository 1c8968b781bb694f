"""Workers that join and leave by plan, in virtual time."""

from typing import Any

import pytest

import lockstep
from lockstep.strategies import STRATEGIES
from lockstep.studies.chaos.invariants import broken
from tests.support.failing import simulated as run
from tests.support.nightly import drawn

CRASH = {"at": "3 s", "crash": True, "back_after": "2 s"}
ELASTIC = [name for name, strategy in STRATEGIES.items() if strategy.resizes]
PERIODIC = ("local-sgd", "post-local-sgd", "adacomm", "diloco", "streaming-diloco")
JOIN = {"workers": {"add": 2}, "at": "3 s"}
LEAVE = {"workers": {"remove": [1]}, "at": "3 s"}


@pytest.mark.parametrize(("change", "before", "after"), [(JOIN, 4, 6), (LEAVE, 4, 3)])
@pytest.mark.parametrize(
    ("strategy", "on"), [("synchronous", "stop"), ("all-reduce", "continue"), ("all-reduce", "wait")]
)
def test_rounds_are_of_those_who_are_there_by_plan(
    strategy: str, on: str, change: Any, before: int, after: int
) -> None:
    """Nobody fails, and nothing is lost; without a server who joins adds nothing to its first round."""
    result = run(change, on=on, every=None, strategy=strategy)
    updates = result.records[result.records["event"] == "update"]
    members = updates.groupby("version").size()
    first = 29 if strategy == "synchronous" else 30
    assert set(members[:first]) == {before}
    assert set(members[first + 2 :]) == {after}
    assert result.metrics["duration_s"] == pytest.approx(10.0, abs=0.11)
    assert result.metrics["failures"] == result.metrics["lost_samples"] == 0
    assert result.metrics["availability"] == 1.0


def test_who_joins_begins_where_the_others_are_and_may_leave_again() -> None:
    """Three at times, and one alone in the end; all that is computed is in the parameters."""
    changes = [
        {"workers": {"join": [2]}, "at": "1 s"},
        {"workers": {"remove": [1]}, "at": "2 s"},
        {"workers": {"remove": [2]}, "at": "3 s"},
    ]
    digits = {"dataset": "digits", "model": "mlp", "batch_size": 32}
    more: dict[str, Any] = {"workload": digits, "cluster": {"workers": 3}, "stop": {"time": "4.05 s"}}
    result = run(*changes, on="continue", every=5, strategy="all-reduce", **more)
    assert not [*broken(result)]
    made = result.records[result.records["event"] == "gradient"].groupby("node").size()
    assert made[0] == pytest.approx(40, abs=1)
    assert made[1] == pytest.approx(20, abs=1)
    assert made[2] == pytest.approx(19, abs=1)
    assert result.metrics["lost_samples"] <= 32  # the one that is under way at the end
    assert result.curve["version"].max() == pytest.approx(40, abs=1)


@pytest.mark.parametrize("strategy", ["synchronous", "asynchronous", "fedavg"])
def test_who_joins_does_so_at_its_time_though_a_server_was_back_before(strategy: str) -> None:
    back = {"server": 0, "at": "1 s", "crash": True, "back_after": "500 ms"}
    result = run(back, JOIN | {"at": "4 s"}, on="continue", strategy=strategy, stop={"time": "6 s"})
    assert not [*broken(result)]
    gradients = result.records[(result.records["event"] == "gradient") & (result.records["node"] >= 4)]
    assert 4.0 <= gradients["start"].min() < 4.7
    late = result.records[(result.records["event"] == "update") & (result.records["end"].between(2, 4))]
    assert len(late) > 10


def test_workers_that_join_and_leave_make_as_many_gradients_as_they_have_time_for() -> None:
    changes = [JOIN, {"workers": {"remove": [0, 5]}, "at": "7.95 s"}]
    result = run(*changes, on="stop", every=None, strategy="asynchronous", stop={"time": "10.05 s"})
    gradients = result.records[(result.records["event"] == "gradient") & (result.records["end"] < 10.05)]
    assert [*gradients.groupby("node").size()] == [80, 100, 100, 100, 70, 50]


@pytest.mark.parametrize("strategy", drawn(ELASTIC, one_in=4))
def test_elastic_strategies_have_workers_that_join_and_leave(strategy: str) -> None:
    on = "stop" if STRATEGIES[strategy].has_servers else "continue"
    for phase in ("600 ms", "650 ms", "699.9 ms"):
        changes = [JOIN | {"at": phase}, LEAVE | {"at": phase}]
        settings = {"name": strategy, **({"averaging_period": 2} if strategy in PERIODIC else {})}
        result = run(*changes, strategy=settings, on=on, every=None, stop={"steps": 14})
        assert not [*broken(result)]
        assert set(result.records[result.records["event"] == "gradient"]["node"]) == {*range(6)}


def test_who_is_not_there_does_not_fail() -> None:
    early, late = CRASH | {"worker": 5, "at": "1 s"}, CRASH | {"worker": 1, "at": "5 s"}
    assert run(JOIN, LEAVE, early, late, on="stop", every=None).metrics["failures"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{"workers": {"remove": [4]}, "at": "1 s"}], r"remove\[0\]: must be a worker's number, from 0 to 3"),
        ([LEAVE, LEAVE], r"faults\[1\].workers.remove\[0\]: worker 1 is listed twice"),
        ([{"workers": {"remove": [0, 1, 2, 3]}, "at": "1 s"}], "no worker is left at 1 s"),
        ([{"workers": {"join": [0, 1, 2, 3]}, "at": "1 s"}], "no worker is there when the run begins"),
        (
            [LEAVE | {"workers": {"remove": [0]}}, "all-reduce"],
            "worker 0 writes the checkpoints of all-red",
        ),
        ([JOIN, "diloco"], "every worker writes the checkpoints of diloco, and cannot join or leave"),
        ([JOIN, {"workers": {"remove": [4]}, "at": "1 s"}], "worker 4 leaves at 1 s, before it joins at 3 s"),
        ([{"workers": {"add": 2, "remove": [1]}, "at": "1 s"}], "give exactly one of add"),
        ([{"workers": {"add": 0}, "at": "1 s"}], "workers.add"),
    ],
)
def test_plans_that_cannot_be(changes: list[Any], message: str) -> None:
    more: dict[str, Any] = {"on": "stop", "every": None}
    if isinstance(changes[-1], str):
        *changes, strategy = changes
        more = {"on": "continue", "every": 5, "strategy": strategy}
    with pytest.raises(lockstep.ScenarioError, match=message):
        run(*changes, **more)


def test_those_who_join_are_workers_of_the_scenario() -> None:
    cluster = run(JOIN, on="stop", every=None).scenario.cluster
    assert (cluster.workers, cluster.faults[0].workers.join) == (6, (4, 5))
