"""Devices that share layers, on several hosts: the warning says what the simulated messages come to."""

import re
from typing import Any

import pytest

import lockstep
from lockstep import Scenario
from lockstep.job.plan import Plan


def job(workers: int, per_host: int, workload: dict[str, Any] | None = None, **split: Any) -> Scenario:
    document = {
        "name": "test",
        "cluster": {
            "workers": workers,
            "workers_per_host": per_host,
            "network": {"bandwidth": "1 GB/s", "goodput": 0.5},
            "compute": {"time": {"distribution": "constant", "value": "1 s"}},
        },
        "workload": workload
        or {"parameters": 1000, "layers": 4, "batch_size": 4, "activation": "8 MB", "learning": False},
        "parallelism": split,
        "strategy": "all-reduce",
        "stop": {"steps": 1},
    }
    return Scenario.model_validate(document)


def test_a_group_in_one_host_warns_of_nothing() -> None:
    assert not Plan.of(job(8, 4, tensor=4, pipeline=2)).warnings
    assert not Plan.of(
        job(
            *(8, 1),
            {"parameters": 1000, "batch_size": 4, "activation": "0 B"},
            pipeline=8,
            micro_batches=4,
        )
    ).warnings
    assert not Plan.of(job(8, 4, tensor=8, redundancy=2)).warnings  # two groups, a host each


def test_one_sentence_says_who_and_what_it_costs() -> None:
    """4 layers' 4 all-reduces of 8 MB by 4 devices: 192 MB each; two cards, each the way out of one ring."""
    (warning,) = Plan.of(job(4, 2, tensor=4)).warnings
    assert warning == (
        "workers 0 to 3 share layers but are on 2 hosts: each of them sends 192 MB for a mini-batch, and a "
        "card is busy with that for at least 0.384 s of it (cluster.workers_per_host, parallelism.axes)"
    )


def test_what_split_sizes_do_not_say_costs_nothing_and_is_told() -> None:
    sizes = {"parameters": 1000, "batch_size": 4}
    for split in ({"tensor": 4}, {"pipeline": 4}):
        (warning,) = Plan.of(job(4, 4, sizes, **split)).warnings
        assert warning.startswith("workload.activation is not given: ")
    assert not Plan.of(job(4, 4, sizes, micro_batches=2)).warnings
    assert not Plan.of(job(4, 4, sizes, tensor=4, redundancy=4)).warnings


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_how_convolutions_are_cut_means_nothing_where_none_is(model: str) -> None:
    tensor = 1 if model == "cnn" else 2
    plan = Plan.of(job(2, 2, DIGITS | {"model": model}, tensor=tensor, convolutions="all-gather"))
    assert plan.warnings == ["parallelism.convolutions means nothing where no convolutions are cut: ignored"]


def test_groups_whose_devices_are_far_apart_are_counted() -> None:
    (warning,) = Plan.of(job(8, 4, tensor=2, pipeline=4, axes=["pipeline", "tensor", "data"])).warnings
    assert warning.startswith(
        "workers 0 and 4 share layers but are on 2 hosts, and so are 3 more such groups: "
    )


DIGITS = {"dataset": "digits", "batch_size": 4, "learning": False}
SENTENCES = DIGITS | {
    "dataset": "sentences",
    "model": "transformer",
    "sequence": 16,
    "hidden": 32,
    "heads": 4,
}
SPLITS: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "sizes": (None, {"tensor": 4, "micro_batches": 2}),
    "sizes by position, recomputed": (None, {"tensor": 4, "sequence": True, "recompute": True}),
    "redundant": (None, {"tensor": 4, "redundancy": 2, "axes": ["data", "tensor", "pipeline"]}),
    "rows": (DIGITS | {"model": "cnn"}, {"tensor": 2, "convolutions": "halo", "micro_batches": 2}),
    "many rows": (DIGITS | {"model": "cnn", "dataset": "mnist"}, {"tensor": 4, "convolutions": "halo"}),
    "positions": (SENTENCES, {"tensor": 4, "sequence": True, "recompute": True}),
    "heads": (SENTENCES, {"tensor": 2}),
}


@pytest.mark.parametrize("case", SPLITS)
@pytest.mark.parametrize("per_host", [1, 2, 3])
def test_it_is_what_the_simulated_messages_come_to(case: str, per_host: int) -> None:
    workload, split = SPLITS[case]
    scenario = job(split["tensor"], per_host, workload, **split)
    plan, result = Plan.of(scenario), lockstep.simulate(scenario)
    messages = result.records[result.records["event"] == "message"]
    hosts = {rank: plan.hosts[rank] for rank in plan.workers}
    far = messages[messages["node"].map(hosts) != messages["peer"].map(hosts)]
    if not len(far):
        assert not plan.warnings
        return
    (warning,) = plan.warnings
    found = re.search(r"sends ([\d.e+]+) (\w+) for .* at least ([\d.e+-]+) s", warning)
    assert found is not None
    most = float(found[1]) * {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[found[2]]
    seconds = far["nbytes"].groupby(far["node"].map(hosts)).sum().max() / 0.5e9
    assert messages["nbytes"].groupby(messages["node"]).sum().max() == pytest.approx(most, rel=0.006)
    assert seconds == pytest.approx(float(found[3]), rel=0.006)
    assert result.metrics["duration_s"] >= 0.99 * seconds
