"""What does not fit into the memory of a device is one message, before anything is run; devices of kinds."""

from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep import Scenario, ScenarioError, room
from lockstep.job.plan import Plan
from lockstep.recommendation.space import with_workers
from tests.support.command_line import Lockstep
from tests.support.scenarios import scenario

WORK = {"parameters": 10**9, "layers": 16, "activation": "4 GB"}
FITS = """\
name: fits
cluster: {workers: 4, memory: 1 GB, compute: {time: {distribution: constant, value: 1 s}}}
workload: {parameters: 100e6}
strategy: all-reduce
stop: {steps: 2}
"""
A100 = {"name": "a100", "count": 2, "memory": "40 GB", "price": 2.5}
T4 = {"name": "t4", "count": 2, "speed": 0.25, "memory": "16 GB"}


def large(memory: str, split: dict[str, Any] | None = None, **changes: Any) -> Scenario:
    given: dict[str, Any] = {"cluster__memory": memory, "workload": WORK, "strategy": "all-reduce"}
    return scenario(**given, **({"parallelism": split} if split else {}), **changes)


def refused(config: Scenario) -> str:
    with pytest.raises(ScenarioError) as caught:
        lockstep.check(config)
    assert caught.value.key == "cluster.memory"
    return str(caught.value)


@pytest.mark.parametrize(
    ("memory", "split", "change"),
    [
        ("40 GB", None, {"micro_batches": 2}),
        ("16 GB", None, {"micro_batches": 8}),
        ("8 GB", None, {"micro_batches": 8, "pipeline": 4}),
        ("37.9 GB", {"order": "gpipe", "pipeline": 2}, {"micro_batches": 4}),  # which makes buffers smaller
        ("10 GB", {"order": "gpipe", "pipeline": 4, "micro_batches": 8}, {"recompute": True}),
    ],
)
def test_the_smallest_change_that_would_fit_is_named_and_fits(memory: str, split: Any, change: Any) -> None:
    said = refused(large(memory, split))
    written = ", ".join(f"{key}: {str(value).lower()}" for key, value in change.items())
    assert said.endswith(f"it would fit with parallelism: {{{written}}}")
    plan = lockstep.check(large(memory, {**(split or {}), **change}))
    assert room.short(plan) is None
    for key, value in change.items():  # what is smaller does not fit
        if type(value) is int and value > 2:
            smaller = {**(split or {}), **change, key: value // 2}
            refused(large(memory, smaller))


def test_as_much_as_there_is_fits() -> None:
    assert lockstep.check(large("38 GB", {"order": "gpipe", "pipeline": 2}))


def test_the_message_says_how_much_is_needed_where_and_of_what() -> None:
    said = refused(large("10 GB", {"order": "gpipe", "pipeline": 4, "micro_batches": 8}))
    assert said.startswith(
        "cluster.memory: stage 1 of 4 (worker 1) needs 19 GB, 16 GB of it activations, "
        "1 GB of it parameters, 1 GB of it gradient, 1 GB of it buffers; its device has 10 GB: "
    )
    assert refused(large("100 MB")).endswith(
        "its device has 100 MB. It would not fit with more stages of so many workers, recomputation or "
        "smaller micro-batches either; take more workers, or a smaller model"
    )


def test_servers_on_devices_count_and_are_told_to_leave() -> None:
    servers = {"count": 4, "colocated": True, "device": "cuda"}
    given: dict[str, Any] = {"cluster__servers": servers, "strategy": "synchronous"}
    said = refused(scenario(cluster__memory="20 MB", workload={"parameters": 10**6}, **given))
    assert "needs 24 MB, 16 MB of it servers' vectors, " in said
    assert said.endswith("its device has 20 MB: it would fit with cluster.servers.device: cpu")
    assert "it would fit with" not in refused(
        scenario(cluster__memory="7 MB", workload={"parameters": 10**6}, **given)
    )


@pytest.mark.parametrize("words", [["simulate"], ["run"], ["validate"], ["sweep"]])
def test_every_command_refuses_it_with_exit_2(words: list[str], tmp_path: Path, command: Lockstep) -> None:
    file = tmp_path / "fits.yaml"
    file.write_text(FITS, encoding="utf-8")
    assert lockstep.simulate(lockstep.load(file)).metrics["memory_bytes"] == 800_000_000
    sweep = "sweep.workload.parameters=[100e6, 200e6]"
    done = command(*words, file, "--set", sweep if words == ["sweep"] else "workload.parameters=200e6")
    assert done.status == 2
    assert "worker 0 needs 1.6 GB" in done.err
    assert "it would fit with parallelism: {pipeline: 2}" in done.err


def uneven(*kinds: dict[str, Any], **changes: Any) -> Scenario:
    return scenario(cluster__kinds=[*kinds], strategy="all-reduce", **changes)


def test_kinds_are_of_all_workers_and_have_all_a_limit_or_none() -> None:
    with pytest.raises(ValueError, match=r"must add up to cluster.workers \(4\), not to 5"):
        uneven(A100, {**T4, "count": 3})
    without = {"name": "cpu", "count": 2}
    with pytest.raises(ValueError, match=r"give it for every kind, or cluster\.memory for the others"):
        uneven(A100, without)
    with pytest.raises(ValueError, match="'a100' is the name of another kind too; give each its own"):
        uneven(A100, A100)
    config = uneven(A100, without, cluster__memory="8 GB")
    assert [config.cluster.memory_of(worker) for worker in range(4)] == [40e9, 40e9, 8e9, 8e9]


def test_a_speed_is_a_slowdown_that_multiplies() -> None:
    straggler = {"worker": 3, "slowdown": 3}
    result = lockstep.simulate(uneven(A100, T4, cluster__stragglers=[straggler], stop={"steps": 1}))
    gradients = result.records[result.records["event"] == "gradient"].set_index("node")
    assert (gradients["end"] - gradients["start"]).sort_index().tolist() == pytest.approx(
        [0.01, 0.01, 0.04, 0.12]
    )
    same = scenario(
        cluster__stragglers=[
            {"worker": 2, "slowdown": 4}, {"worker": 3, "slowdown": 4}, {"slowdown": 3, "probability": 1},
        ],
        strategy="all-reduce",
    )  # fmt: skip
    kinds = uneven({**A100, "memory": None}, {**T4, "memory": None}, cluster__stragglers=[
        {"slowdown": 3, "probability": 1},
    ])  # fmt: skip
    assert lockstep.simulate(same).records.equals(lockstep.simulate(kinds).records)


def test_a_limit_is_the_kinds_own() -> None:
    with pytest.raises(ScenarioError, match="worker 2 needs 20 GB") as caught:
        lockstep.check(uneven(A100, T4, cluster__memory="1 GB", workload={"parameters": 2.5e9}))
    assert caught.value.key == "cluster.kinds[1].memory"
    assert lockstep.check(uneven(A100, T4, workload={"parameters": 2e9}))


def layers(plan: Plan) -> list[int]:
    return [piece.layers.stop - piece.layers.start for piece in plan.pieces]


def test_cuts_take_speeds_and_limits_into_account() -> None:
    small = {"parameters": 1600, "layers": 16}
    split = {"pipeline": 4, "cut": {"by": "time"}}
    assert layers(Plan.of(uneven(A100, T4, workload=small, parallelism=split))) == [7, 7, 1, 1]
    assert layers(Plan.of(uneven(A100, T4, workload=small, parallelism={"pipeline": 4}))) == [4, 4, 4, 4]
    # a straggler that always is one counts as a kind does, and both multiply
    slow = [{"worker": worker, "slowdown": 4} for worker in (2, 3)]
    alike = scenario(cluster__stragglers=slow, workload=small, parallelism=split, strategy="all-reduce")
    assert layers(Plan.of(alike)) == [7, 7, 1, 1]
    undone = [{"worker": worker, "slowdown": 0.25} for worker in (2, 3)]
    both = uneven(A100, T4, cluster__stragglers=undone, workload=small, parallelism=split)
    assert layers(Plan.of(both)) == [4, 4, 4, 4]
    sometimes = [{**each, "probability": 0.5} for each in slow]
    by_chance = scenario(
        cluster__stragglers=sometimes, workload=small, parallelism=split, strategy="all-reduce"
    )
    assert layers(Plan.of(by_chance)) == [4, 4, 4, 4]
    # by work alone each has four; the last two have no room for four
    tight = [A100, {**T4, "memory": "1.6 GB"}]
    config = uneven(*tight, workload={"parameters": 1e9, "layers": 16}, parallelism={"pipeline": 4})
    assert max(layers(lockstep.check(config))[2:]) == 3
    # each stage has devices of both kinds, and is as slow as its slowest
    assert layers(
        Plan.of(uneven(A100, T4, workload=small, parallelism={"pipeline": 2, "cut": {"by": "time"}}))
    ) == [8, 8]


def test_where_no_cut_fits_it_is_memory_that_is_spoken_of() -> None:
    assert "stage 0 of 4 (worker 0) needs" in refused(large("3 GB", {"pipeline": 4, "micro_batches": 4}))


def test_fewer_workers_are_the_first_of_the_kinds() -> None:
    found = with_workers(uneven(A100, T4), 3)
    assert [kind.count for kind in found.cluster.kinds] == [2, 1]
    assert with_workers(uneven(A100, T4), 2).cluster.kinds[0].name == "a100"
