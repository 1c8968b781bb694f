"""Failures in virtual time where workers sum by collectives: those who are there do the round again."""

from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import lockstep
from lockstep.analysis.records import Recorder, of
from lockstep.job.rounds import completed
from lockstep.strategies.shared_rounds import SharedRounds
from lockstep.workloads.problems import Quadratic
from tests.support.gone import CRASH, GONE, simulated

RATE = 0.01
QUADRATIC = {"problem": "quadratic", "dimension": 5, "batch_size": 32}


PERIODIC: dict[str, dict[str, Any]] = {
    "local-sgd": {},
    "diloco": {"outer_learning_rate": 1.0, "outer_momentum": 0.0},
    "post-local-sgd": {"switch_step": 10},
    "adacomm": {},
    "streaming-diloco": {
        **{"fragments": 1, "overlap": 0, "mixing": 0.0},
        **{"outer_learning_rate": 1.0, "outer_momentum": 0.0},
    },
}


run = partial(simulated, strategy="all-reduce")


@pytest.mark.parametrize("worker", [0, 2])
@pytest.mark.parametrize("every", [1, 7, None])
@pytest.mark.parametrize(
    ("on", "crash", "rounds", "samples"),
    [
        # 30 rounds of four; from 3.55 s on 17 of three, in the last of which it is back; 48 of four
        ("continue", CRASH, 95, 30 * 4 + 17 * 3 + 48 * 4),
        ("continue", GONE, 95, 30 * 4 + 65 * 3),
        # from 5.05 s on: what it adds is waited for
        ("wait", CRASH, 30 + 49, 79 * 4),
    ],
)
def test_goodput_of_workers_of_which_one_is_gone_for_a_while(
    worker: int, every: int | None, on: str, crash: dict[str, Any], rounds: int, samples: int
) -> None:
    metrics = run(crash | {"worker": worker}, every=every, on=on).metrics
    assert metrics["updates"] == rounds
    assert metrics["samples"] == 32 * samples
    assert metrics["lost_samples"] == 0
    end = metrics["duration_s"] if "back_after" in crash else 10.04  # the clock's, while one is gone
    assert metrics["goodput"] == pytest.approx(metrics["samples"] / end)
    assert metrics["time_to_detect_s"] == pytest.approx(0.5)
    if "back_after" in crash:
        # where the others go on, it begins with the round after the one that they are at
        assert metrics["time_to_recover_s"] == pytest.approx(2.1 if on == "continue" else 2.0)
        assert metrics["availability"] == pytest.approx(1 - 2 / (4 * metrics["duration_s"]))


@pytest.fixture
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker w's gradients are w + 1."""
    monkeypatch.setattr(
        Quadratic, "gradient", lambda self, parameters, worker, step: torch.full((5,), worker + 1.0)
    )


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize(
    ("faults", "moved"),
    [
        ([], 100 * 2.5),
        ([CRASH], 78 * 2.5 + 17 * 7 / 3),
        ([CRASH | {"worker": 0}], 78 * 2.5 + 17 * 3),
        ([GONE], 30 * 2.5 + 65 * 7 / 3),
        ([GONE | {"worker": 0}], 30 * 2.5 + 65 * 3),
        ([GONE, GONE | {"worker": 0, "at": "5.01 s"}], 30 * 2.5 + 15 * 7 / 3 + 46 * 3),
    ],
)
def test_the_mean_is_over_those_who_are_there(faults: list[Any], moved: float) -> None:
    strategy = {"name": "all-reduce", "learning_rate": RATE}
    result = run(*faults, strategy=strategy, workload=QUADRATIC)
    assert result.parameters is not None
    assert result.parameters / -RATE == pytest.approx(np.full(5, moved), rel=1e-5)


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("name", PERIODIC)
@pytest.mark.parametrize(
    ("faults", "on", "moved"),
    [
        ([], "continue", 20 * 2.5),
        # 6 rounds of four, 5 of three, in the last of which it is back; 8 of four
        ([CRASH], "continue", 14 * 2.5 + 5 * 7 / 3),
        ([GONE | {"worker": 0}], "continue", 6 * 2.5 + 13 * 3),
        ([CRASH], "wait", 15 * 2.5),
    ],
)
def test_of_local_steps_too(name: str, faults: list[Any], on: str, moved: float) -> None:
    local = {"averaging_period": 5, "optimizer": "sgd", "learning_rate": RATE, "weight_decay": 0.0}
    result = run(*faults, on=on, strategy={"name": name, **local, **PERIODIC[name]}, workload=QUADRATIC)
    assert result.parameters is not None
    assert result.parameters / -RATE == pytest.approx(np.full(5, 5 * moved), rel=1e-5)
    assert result.metrics["lost_samples"] == 0


@pytest.mark.parametrize("at", ["50 ms", "3.05 s", "3.002 s"])
@pytest.mark.parametrize(
    "strategy", [{"name": "diloco"}, {"name": "post-local-sgd", "switch_step": 12, "buckets": 2}]
)
def test_local_steps_of_who_is_waited_for_are_made_again(strategy: dict[str, Any], at: str) -> None:
    """With the bits of a run without faults, where the optimizer has no state of its own."""
    more: dict[str, Any] = {
        "strategy": {"averaging_period": 5, "optimizer": "sgd", "weight_decay": 0.0, **strategy},
        "workload": {"dataset": "digits", "model": "mlp", "batch_size": 32},
        "stop": {"steps": 38},
        "cluster": {"network": {"bandwidth": "100 Mbit/s", "latency": "1 ms"}},
    }
    failed = run(CRASH | {"at": at}, on="wait", **more)
    assert failed.metrics["failures"] == 1
    assert failed.metrics["samples"] == 32 * 4 * 38
    assert np.array_equal(failed.parameters, run(on="wait", **more).parameters)


SUMMED: dict[str, Any] = {
    "strategy": {"name": "all-reduce", "optimizer": "adam", "buckets": 3},
    "workload": {"dataset": "digits", "model": "mlp", "batch_size": 32},
    "stop": {"steps": 40},
    "cluster": {"network": {"bandwidth": "100 Mbit/s", "latency": "1 ms"}},
}


@cache
def summed() -> Any:
    """What comes of it without faults."""
    return run(on="wait", **SUMMED).parameters


@pytest.mark.parametrize("at", ["50 ms", "3.05 s", "3.0999 s", "3.101 s", "3.11 s"])
@pytest.mark.parametrize("worker", [0, 3])
def test_with_who_is_waited_for_the_bits_are_those_of_a_run_without_faults(worker: int, at: str) -> None:
    """Also if it fails in a sum, of which some have had the result: its mini-batch is made again, or not."""
    failed = run(CRASH | {"worker": worker, "at": at}, on="wait", **SUMMED)
    assert failed.metrics["failures"] == 1
    assert failed.metrics["samples"] == 32 * 4 * 40
    assert np.array_equal(failed.parameters, summed())


PIPED: dict[str, Any] = {
    "workload": {"dataset": "digits", "model": "mlp", "batch_size": 32},
    "stop": {"steps": 40},
    "cluster": {"network": {"bandwidth": "100 Mbit/s", "latency": "1 ms"}},
}


@pytest.mark.parametrize("delay", [0, 1, 3])
@pytest.mark.parametrize("every", [1, None])
def test_a_pipeline_of_sums_that_could_go_on_learns_the_same(delay: int, every: int | None) -> None:
    """One sum at a time, and the gradients of the same parameters; `delay` rounds old, but for the first."""
    strategy = {"name": "pipe-sgd", "delay": delay, "optimizer": "adam"}
    found = run(strategy=strategy, every=every, **PIPED)
    whole = run(strategy=strategy, on="restart", every=every, **PIPED)
    assert np.array_equal(found.parameters, whole.parameters)
    for result in (found, whole):
        updates = of(result.records, "update", ["version", "staleness"])
        assert updates["staleness"].tolist() == updates["version"].clip(upper=delay).tolist()
    if every is None:  # else the other waits for its sums, to save them
        assert found.metrics["duration_s"] == pytest.approx(whole.metrics["duration_s"], rel=0.02)


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize(
    ("faults", "moved"),
    [
        ([], 100 * 2.5),
        # 30 rounds of four; 18 of three, the first two at once, as all have computed a gradient while they
        # waited, and in the last it is back, and computes for the next
        ([CRASH], 78 * 2.5 + 18 * 7 / 3),
        ([CRASH | {"worker": 0}], 78 * 2.5 + 18 * 3),
        ([GONE], 30 * 2.5 + 66 * 7 / 3),
    ],
)
def test_a_pipeline_of_sums_goes_on_with_those_who_are_there(faults: list[Any], moved: float) -> None:
    """As `all-reduce` does, whose sums take no time here either, and a gradient ahead."""
    result = run(*faults, strategy={"name": "pipe-sgd", "learning_rate": RATE}, workload=QUADRATIC)
    assert result.parameters is not None
    assert result.parameters / -RATE == pytest.approx(np.full(5, moved), rel=1e-5)
    assert result.metrics["lost_samples"] == 0


@pytest.mark.parametrize(("fragments", "overlap"), [(1, 0), (1, 2), (3, 1), (3, 2), (8, 1)])
@pytest.mark.parametrize("every", [2, None])
def test_fragments_that_could_go_on_learn_the_same(fragments: int, overlap: int, every: int | None) -> None:
    """Steps beside a sum and turns are as where nobody may fail, if one sum at a time is enough."""
    strategy = {"name": "streaming-diloco", "averaging_period": 6, "fragments": fragments, "overlap": overlap}
    found, whole = (run(strategy=strategy, on=on, every=every, **PIPED) for on in ("continue", "restart"))
    assert np.array_equal(found.parameters, whole.parameters)
    assert found.metrics["samples"] == whole.metrics["samples"] == 32 * 4 * 40
    if every is None:
        assert found.metrics["duration_s"] == pytest.approx(whole.metrics["duration_s"], rel=0.02)


@pytest.mark.usefixtures("_known")
def test_fragments_go_on_with_those_who_are_there() -> None:
    """A turn at every step: what who is gone has moved since the last turn of each is lost.

    It has made 30 steps; fragment p had its last turn with the step 26 + p. The sum after the others' next
    step is done again at 3.55 s; fragment p has its last turn with the step 91 + p, at 9.95 s at most.
    """
    turns = {"averaging_period": 5, "fragments": 5, "overlap": 0, "mixing": 0.0}
    plain = {"optimizer": "sgd", "learning_rate": RATE, "weight_decay": 0.0}
    outer = {"outer_learning_rate": 1.0, "outer_momentum": 0.0}
    result = run(GONE, strategy={"name": "streaming-diloco", **turns, **plain, **outer}, workload=QUADRATIC)
    assert result.parameters is not None
    moved = [2.5 * (26 + fragment) + 7 / 3 * 65 for fragment in range(5)]
    assert result.parameters / -RATE == pytest.approx(np.array(moved), rel=1e-5)


@pytest.mark.parametrize("at", ["350 ms", "1.55 s", "3.05 s"])
@pytest.mark.parametrize("on", ["continue", "wait"])
def test_all_change_their_period_with_the_same_round(on: str, at: str) -> None:
    """Whose length is that of all, also of those who have made fewer mini-batches."""
    strategy = {"name": "adacomm", "averaging_period": 8, "interval_s": 1.8, "learning_rate": 1e-9}
    decays = {"decay": "inverse-sqrt", "decay_steps": 1}
    result = run(CRASH | {"at": at}, on=on, strategy=strategy | decays, workload=QUADRATIC)
    updates = of(result.records, "update", ["version", "peer", "batches"])
    periods = updates.groupby("version")["batches"].agg(["min", "max"])[:-1]  # the last may be shorter
    assert (periods["min"] == periods["max"]).all()
    assert periods["max"].iloc[0] == 8
    assert periods["max"].nunique() > 2


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize(("every", "left"), [(4, 28), (None, 0)])
def test_if_all_are_gone_in_the_end_their_last_checkpoint_is_left(every: int | None, left: int) -> None:
    faults = [GONE | {"worker": worker} for worker in range(4)]
    result = run(
        *faults, every=every, strategy={"name": "all-reduce", "learning_rate": RATE}, workload=QUADRATIC
    )
    assert result.metrics["samples"] == 32 * 4 * left
    assert (result.parameters is not None) == bool(left)
    if result.parameters is not None:
        assert result.parameters / -RATE == pytest.approx(np.full(5, left * 2.5), rel=1e-5)


def test_the_curve_goes_on_while_the_first_worker_is_gone() -> None:
    digits = {"dataset": "digits", "model": "mlp", "batch_size": 32}
    result = run(GONE | {"worker": 0, "at": "250 ms"}, workload=digits, stop={"updates": 30})
    assert [*result.curve["version"]] == [*range(31)][-len(result.curve) :]
    assert len(result.curve) >= 30


@pytest.mark.parametrize(("every", "rounds"), [(4, 28), (None, 0)])
def test_if_all_are_gone_they_go_on_from_the_last_checkpoint(every: int | None, rounds: int) -> None:
    everyone = [CRASH | {"worker": worker} for worker in range(4)]
    metrics = run(*everyone, every=every, stop={"steps": 60}).metrics
    assert metrics["samples"] == 32 * 4 * 60
    assert metrics["lost_samples"] == 32 * 4 * (30 - rounds)


@pytest.mark.usefixtures("_known")
def test_nobody_goes_on_from_what_the_others_have_given_up() -> None:
    """Each is alone for a while, from the last round of both on; what worker 0 made first is lost."""
    turns = [("1.05 s", 1, "3 s"), ("3.05 s", 0, "3 s"), ("5.05 s", 1, "20 s")]
    faults = [CRASH | {"worker": who, "at": at, "back_after": back} for at, who, back in turns]
    local = {"name": "local-sgd", "averaging_period": 1, "optimizer": "sgd", "weight_decay": 0.0}
    strategy = local | {"learning_rate": RATE}
    result = run(*faults, workers=2, strategy=strategy, workload=QUADRATIC, stop={"time": "8.07 s"})
    assert result.parameters is not None
    assert result.parameters / -RATE == pytest.approx(np.full(5, 10 * 1.5 + 20), rel=1e-5)
    assert result.metrics["samples"] == 32 * (10 * 2 + 20)
    assert result.metrics["lost_samples"] == 32 * (15 + 10)


@pytest.mark.parametrize("stop", [{"steps": 60}, {"updates": 60}, {"epochs": 5}])
@pytest.mark.parametrize("on", ["continue", "wait"])
def test_a_run_ends_when_all_have_made_what_there_is(on: str, stop: dict[str, Any]) -> None:
    """Who is back makes what it has missed, alone in the end; the others hold the same all along."""
    digits = {"dataset": "digits", "learning": False, "batch_size": 32}
    result = run(CRASH, on=on, stop=stop, workload=digits)
    missed = 17 if on == "continue" and "updates" in stop else 0
    assert result.metrics["samples"] == 32 * (4 * (result.plan.quota.each or 60) - missed)


def test_what_a_worker_has_added_counts_whether_it_has_recorded_that_or_not() -> None:
    """Worker 1 fails with round 3 recorded, which the others do again without it, and not with round 2."""
    plan, records = run(stop={"updates": 1}).plan, Recorder()
    for version, at, who in ((0, 1.0, "0 1 2"), (2, 4.0, "0 2"), (3, 6.0, "0 1 2")):
        records.note("group", 0, at, version, int(at), kind=who)
        records.note("group", 2, at + 0.1, version, int(at), kind=who)
    for version, end, workers in ((0, 1.0, (0, 1, 2)), (1, 2.0, (0, 2)), (2, 3.0, (1,)), (2, 5.0, (0, 2))):
        for worker in workers:
            records.update(0, worker, end, version, 0, 1)
    records.update(0, 0, 7.0, 3, 0, 1)
    found = completed(plan, records.frame())
    updates = of(found, "update", ["version", "peer", "end"]).sort_values(["version", "peer"])
    assert updates.to_numpy().tolist() == [
        *([0, worker, 1.0] for worker in range(3)),
        *([1, worker, 2.0] for worker in range(3)),
        *([2, worker, 5.0] for worker in (0, 2)),
        *([3, worker, 7.0] for worker in range(3)),
    ]
    assert of(found, "undone", ["version", "peer"]).to_numpy().tolist() == [[2, 1]]


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"name": "all-reduce", "algorithm": "native"}, "strategy.algorithm: .*own collective cannot go on"),
        ("fsdp", "recovery.on_failure: .*must be stop, restart or spare"),
    ],
)
def test_what_cannot_go_on_is_refused(strategy: Any, message: str) -> None:
    with pytest.raises(lockstep.ScenarioError, match=message):
        run(strategy=strategy)


@pytest.mark.parametrize("strategy", ["all-reduce", "synchronous"])
def test_a_gradient_on_shared_cores_ends_with_who_computes_it(strategy: str) -> None:
    """When it would end is not known: it must not end later, in a process that is no more."""
    cores = {"workers_per_host": 2, "cores_per_host": 1}
    metrics = run(CRASH, strategy=strategy, cluster=cores).metrics
    assert metrics["failures"] == 1
    assert metrics["lost_samples"] == 0


def test_after_a_restart_each_takes_the_mini_batch_after_those_that_are_in_the_model() -> None:
    """Who was away has made fewer than who wrote the checkpoint."""
    taken: list[int] = []
    node: Any = SimpleNamespace(
        rank=1,
        workers=range(3),
        hosts=range(3),
        rejoins=False,
        saved=SimpleNamespace(state=("parameters", (100, 75, 100))),
        go_on_with=taken.append,
        enter=lambda *_: 1 / 0,
    )
    model: Any = SimpleNamespace(version=20)
    with pytest.raises(ZeroDivisionError):
        SharedRounds(node, model).run().send(None)
    assert taken == [75]
