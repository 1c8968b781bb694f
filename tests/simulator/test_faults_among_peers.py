"""Failures in virtual time where there are no servers: the other workers go on with those who are there."""

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import lockstep
from lockstep.job.ending import Ending, counting
from lockstep.job.node import Node
from lockstep.simulator.faults import Told
from lockstep.strategies import STRATEGIES
from lockstep.strategies.node import Message
from lockstep.strategies.owners import OneModelEach
from lockstep.strategies.peers import Peers
from lockstep.strategies.rounds import Rounds
from lockstep.workloads.problems import Quadratic
from tests.support.gone import CRASH, GONE, simulated
from tests.support.nightly import drawn

PEERS = [name for name, known in STRATEGIES.items() if known.goes_on and known.owners is OneModelEach]
CUT = {"link": {"host": 2}, "at": "3.05 s", "down_for": "2 s"}
RATE = 0.01


run = partial(simulated, strategy="gossip")


@pytest.mark.parametrize(
    ("workers", "every", "on", "fault"),
    [*product((2, 4), (1, 7, None), ("continue", "wait"), (CRASH,)), (4, 7, "continue", CUT)],
)
def test_goodput_of_workers_of_which_one_is_gone_for_a_while(
    workers: int, every: int | None, on: str, fault: dict[str, Any]
) -> None:
    """The others lose nothing; it has what it had saved, and what it makes from when it is back."""
    fault = fault | ({"worker": 1} if "worker" in fault else {"link": {"host": 1}})
    metrics = run(fault, workers=workers, every=every, on=on).metrics
    made = 30 if "worker" in fault else 35  # until it is gone, or counts as gone
    saved = made // every * every if every else 0
    assert metrics["samples"] == 32 * (100 * (workers - 1) + saved + 49)
    assert metrics["lost_samples"] == 32 * (made - saved)
    assert metrics["goodput"] == pytest.approx(metrics["samples"] / metrics["duration_s"])
    assert metrics["time_to_detect_s"] == pytest.approx(0.5)
    assert metrics["time_to_recover_s"] == pytest.approx(2.0)
    assert metrics["availability"] == pytest.approx(1 - 2 / (workers * metrics["duration_s"]))


@pytest.mark.parametrize("on", ["wait", "continue"])
def test_what_is_sent_to_who_is_gone_is_lost(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a process: who takes its place has another connection. Messages take 1 s."""
    sent, take_in = list[float](), Node.take_in

    def noting(node: Node, arrival: Any) -> None:
        if node.rank == 2 and not isinstance(arrival, Told):
            sent.append(arrival.start)
        take_in(node, arrival)

    monkeypatch.setattr(Node, "take_in", noting)
    run(CRASH, on=on, cluster={"network": {"latency": "1 s"}})
    assert [at for at in sent if 5.05 <= at < 6]
    assert not [at for at in sent if 2.05 < at < 5.05]


def test_who_has_asked_one_that_is_gone_waits_until_that_is_known() -> None:
    """On a ring of four the two that ask it choose it every other time; the other answers both."""
    result = run(CRASH | {"worker": 1}, strategy="ad-psgd")
    steps = result.records.query("event == 'update' and batches > 0").groupby("peer").size()
    assert steps[3] == 100
    assert all(96 <= steps[rank] <= 100 for rank in (0, 2))
    assert steps[1] == 30 + 49
    meanwhile = result.records.query("event == 'update' and batches == 0 and 3.6 < end < 5")
    assert set(meanwhile["peer"]) == set(meanwhile["node"]) == {0, 2, 3}
    assert 1 in set(result.records.query("event == 'update' and batches == 0 and end > 5.2")["peer"])


def test_who_waits_for_one_that_is_back_does_not_wait_for_its_answer() -> None:
    """Nobody is told that it is gone: who has asked it waits until it is back."""
    result = run(CRASH | {"worker": 1}, strategy="ad-psgd", on="wait")
    steps = result.records.query("event == 'update' and batches > 0 and 5.2 < end").groupby("peer").size()
    assert steps.min() >= 48


@pytest.fixture
def _alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """All gradients are 1, so that all models are as far as there have been mini-batches."""
    monkeypatch.setattr(Quadratic, "gradient", lambda self, parameters, worker, step: torch.ones(5))


@pytest.mark.usefixtures("_alike")
@pytest.mark.parametrize(
    ("faults", "every", "steps"),
    [
        ([], None, [100] * 4),
        ([CRASH], None, [100, 100, 51 + 48, 100]),  # the next worker's model, when it has made a first step
        ([CRASH | {"worker": 3}], None, [100, 100, 100, 99]),
        ([GONE], None, [100] * 3),  # of its model nothing is left
        ([GONE], 7, [100, 100, 28, 100]),  # what is on disk counts
        # worker 0 pushes halves of its weight to the others, whose models are a step ahead by then
        (
            [CRASH | {"worker": worker} for worker in range(4)],
            None,
            [49, 49 - 1 / 3, 49 - 1 / 5, 49 - 1 / 9],
        ),
    ],
)
def test_what_the_models_are(faults: list[Any], every: int | None, steps: list[float]) -> None:
    problem = {"problem": "quadratic", "dimension": 5, "batch_size": 32}
    strategy = {"name": "gossip", "learning_rate": RATE, "probability": 1e-4}
    result = run(*faults, every=every, strategy=strategy, workload=problem)
    assert result.parameters is not None
    assert result.parameters / -RATE == pytest.approx(np.full(5, np.mean(steps)), abs=1e-3)


@pytest.mark.usefixtures("_alike")
@pytest.mark.parametrize(
    ("strategy", "steps", "mean", "within"),
    [
        ("d-psgd", [97, 96, 48, 96], (97 + 96 + 95 + 96) / 4, 1e-3),  # who is back begins one step behind
        ("sgp", [95, 95, 48, 95], 95, 1e-3),
        ("osgp", [97, 97, 48, 96], 97, 0.5),  # of its halves some are under way
    ],
)
@pytest.mark.parametrize("every", [None, 7])
def test_who_is_back_takes_over_anothers_model(
    strategy: str, steps: list[int], mean: float, within: float, every: int | None
) -> None:
    """All wait for worker 2 until 3.55 s. Then models are as far as there have been steps."""
    problem = {"problem": "quadratic", "dimension": 5, "batch_size": 32}
    result = run(CRASH, every=every, strategy={"name": strategy, "learning_rate": RATE}, workload=problem)
    own = result.records.query("event == 'update' and batches > 0").groupby("node").size()
    assert own.tolist() == [*steps[:2], (28 if every else 0) + 48, steps[3]]
    assert result.parameters is not None
    assert result.parameters / -RATE == pytest.approx(np.full(5, mean), abs=within)


@pytest.mark.usefixtures("_alike")
@pytest.mark.parametrize("strategy", ["d-psgd", "sgp", "osgp"])
def test_models_are_as_far_as_there_were_rounds(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after eight failures, each of which takes a worker's part of push-sum's Σw along."""
    begin, last = Rounds.begin, 0

    async def noted(self: Rounds) -> int:
        nonlocal last
        last = max(last, number := await begin(self))
        return number

    monkeypatch.setattr(Rounds, "begin", noted)
    problem = {"problem": "quadratic", "dimension": 5, "batch_size": 32}
    often = [CRASH | {"worker": n % 4, "at": f"{n + 1.02} s", "back_after": "600 ms"} for n in range(8)]
    result = run(*often, strategy={"name": strategy, "learning_rate": RATE}, workload=problem)
    assert result.metrics["failures"] == 8
    assert result.parameters is not None
    assert result.parameters / -RATE == pytest.approx(np.full(5, last), abs=1.0)


def test_neighbours_average_with_those_who_are_there() -> None:
    """On a ring of four: who was heard, in all rounds between the failure's notice and the return."""
    result = run(CRASH, strategy="d-psgd")
    merged = result.records.query("event == 'update' and batches == 0")
    of = {rank: merged.query("node == @rank") for rank in range(4)}
    assert set(of[1].query("3.6 < end < 5.1")["peer"]) == {0}
    assert set(of[1].query("end < 3.1")["peer"]) == set(of[1].query("5.3 < end")["peer"]) == {0, 2}
    assert set(of[2].query("5.3 < end")["peer"]) == {1, 3}
    assert set(merged["staleness"]) == {0}


@pytest.mark.parametrize("strategy", PEERS)
@pytest.mark.parametrize("stop", [{"steps": 60}, {"updates": 60}, {"epochs": 5}])
def test_a_run_ends_when_all_have_made_what_there_is(strategy: str, stop: dict[str, Any]) -> None:
    """Who is back makes again what it has lost; of a common pool anybody does."""
    digits = {"dataset": "digits", "learning": False, "batch_size": 32}
    result = run(CRASH, strategy=strategy, stop=stop, every=20, workload=digits)
    metrics = result.metrics
    quota = result.plan.quota
    assert metrics["samples"] == 32 * (quota.together or 4 * (quota.each or 60))
    assert metrics["lost_samples"] == 32 * 10
    if "epochs" not in stop:
        assert metrics["duration_s"] == pytest.approx(5.05 + 4.0, abs=0.11)


@pytest.mark.parametrize("strategy", PEERS)
@pytest.mark.parametrize("stop", [{"steps": 60}, {"updates": 60}])
def test_a_run_ends_without_who_does_not_come_back(strategy: str, stop: dict[str, Any]) -> None:
    metrics = run(GONE, strategy=strategy, stop=stop, every=20).metrics
    assert metrics["samples"] == 32 * (3 * 60 + 20)
    assert metrics["duration_s"] < 6.6


def test_a_target_is_reached_without_who_does_not_come_back() -> None:
    digits = {"dataset": "digits", "model": "mlp", "batch_size": 32}
    stop = {"target_accuracy": 0.9, "time": "60 s"}
    metrics = run(GONE | {"at": "50 ms"}, workload=digits, stop=stop).metrics
    assert metrics["accuracy"] >= 0.9
    assert metrics["duration_s"] < 50


BACK = {"crash": True, "back_after": "300 ms"}
KINDS: dict[str, dict[str, Any]] = {
    "crash": {"worker": 2, **BACK},
    "slow exit": {"worker": 2, "exits_after": "50 ms", **BACK},
    "host": {"host": 1, **BACK},
    "rack": {"rack": 0, **BACK},
    "hang": {"worker": 1, "hang_for": "800 ms"},
    "link": {"link": {"host": 1}, "down_for": "800 ms"},
    "partition": {"partition": [[0, 1], [2, 3]], "down_for": "800 ms"},
    "never back": {"worker": 3, "crash": True},
}


@pytest.mark.parametrize(
    ("strategy", "kind", "on"), drawn([*product(PEERS, KINDS, ("continue", "wait"))], one_in=6)
)
def test_all_kinds_of_faults(strategy: str, kind: str, on: str) -> None:
    """At three phases of a step, with and without checkpoints; all adds up (`run`)."""
    if kind == "never back" and on == "wait":
        return
    for phase, every in product(("600 ms", "650 ms", "699.9 ms"), (3, None)):
        more: dict[str, Any] = {"stop": {"steps": 14}, "every": every, "on": on}
        assert run(KINDS[kind] | {"at": phase}, strategy=strategy, **more).metrics["failures"] == 1


def test_the_next_worker_shows_its_model() -> None:
    class Four:
        rank, workers = 1, range(4)

    node: Any = Four()
    peers = Peers(node)
    assert peers.there == [0, 2, 3]
    assert not peers.hear(Message("leave", 2))
    assert not peers.hear(Message("leave", 2))
    assert peers.there == [0, 3]
    assert [peers.hear(Message("join", who)) for who in (0, 2, 3)] == [True, False, False]
    assert peers.there == [0, 2, 3]
    for gone in (0, 2):
        peers.hear(Message("leave", gone))
    assert peers.hear(Message("join", 3))
    assert Peers(node, [3]).there == [3]


def test_an_end_does_not_wait_for_who_is_gone_for_good() -> None:
    overs: list[int] = []
    ending = Ending(run(stop={"updates": 3}).plan, counting(), lambda: overs.append(1))
    for owner, version in product((0, 1, 3), (1, 2, 3)):
        assert not ending.updated(owner, version)  # it stays: who is back may need it
    assert not overs
    ending.lost(2)
    assert overs == [1]
    assert ending.over


def test_planned_changes_need_servers() -> None:
    with pytest.raises(lockstep.ScenarioError, match=r"faults\[0\].workers: gossip cannot have workers that"):
        run({"workers": {"add": 1}, "at": "1 s"})
