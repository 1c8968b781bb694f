"""What devices computed, where gradients are computed in passes: the time of passes, without waiting."""

from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep import Scenario
from lockstep.analysis.bottleneck_words import sentence
from lockstep.analysis.computations import whole_gradient_seconds
from lockstep.job.plan import Plan
from lockstep.replaying import Run, _with_times
from tests.support.scenarios import scenario

GRADIENT_S = 0.2


def split(**changes: Any) -> Scenario:
    """Two replicas of two stages."""
    return scenario(
        **{
            "cluster__compute": {"time": {"distribution": "constant", "value": f"{GRADIENT_S} s"}},
            "cluster__network": {"bandwidth": "1 Gbit/s", "latency": "5 ms"},
            "workload": {"parameters": 1000, "batch_size": 16, "activation": "8 MB"},
            "parallelism": {"pipeline": 2, "micro_batches": 4},
            "strategy": "all-reduce",
            "stop": {"steps": 3},
            **changes,
        }
    )


def times_of(result: lockstep.Result) -> Any:
    """The compute times of a run, were it a measured one, with which it is replayed."""
    cluster = result.scenario.cluster.model_copy(update={"compute": "measured"})
    plan = Plan.of(result.scenario.model_copy(update={"cluster": cluster}))
    run = Run(Path(), plan, {}, result.records, result.records)
    return _with_times(run).cluster.compute.time  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cluster__pass_overhead": "10 ms"},
        {"parallelism": {"pipeline": 2, "micro_batches": 4, "recompute": True}},
        {"parallelism": {"pipeline": 4, "order": "interleaved", "chunks": 2}},
        {"parallelism": {"pipeline": 4, "order": "zero-bubble"}, "cluster__pass_overhead": "10 ms"},
        {"parallelism": {"micro_batches": 4}},
        {"strategy": "pipedream", "parallelism": {"pipeline": 2}},
        {"parallelism": None},
    ],
    ids=str,
)
def test_a_split_run_is_replayed_with_the_time_of_its_passes(changes: dict[str, Any]) -> None:
    result = lockstep.simulate(split(**changes))
    assert times_of(result).value == pytest.approx(GRADIENT_S)


def test_the_shortest_stage_is_not_slow_because_it_waits() -> None:
    """Stage 0's gradients last longest: it has the first pass and the last one."""
    even = lockstep.simulate(split(cluster__workers=2))
    gradients = even.records[even.records["event"] == "gradient"]
    spans = (gradients["end"] - gradients["start"]).groupby(gradients["node"]).mean()
    assert spans[0] > 1.2 * spans[1]
    assert even.bottleneck is not None
    assert even.bottleneck.slowest_times == pytest.approx(1)
    uneven = lockstep.simulate(split(cluster__workers=2, cluster__stragglers=[{"worker": 1, "slowdown": 3}]))
    assert uneven.bottleneck is not None
    assert uneven.bottleneck.slowest == 1
    assert uneven.bottleneck.slowest_times == pytest.approx(3 / 2)  # times the median of 1 and 3
    assert uneven.bottleneck.largest == -1  # the device is slow, its stage is as large as the other


@pytest.mark.parametrize("overhead", ["0 s", "1 ms"])
def test_a_stage_with_most_work_is_named_and_no_device(overhead: str) -> None:
    workload = {"parameters": 1000, "batch_size": 16, "layers": 8}
    cut = {"parallelism": {"pipeline": 2, "cut": [6]}, "workload": workload, "cluster__workers": 2}
    found = lockstep.simulate(split(**cut, cluster__pass_overhead=overhead)).bottleneck
    assert found is not None
    assert (found.slowest, found.largest) == (0, 0)
    said = sentence(found)
    assert said is not None
    assert "stage 0 has the most work (1.5 times the median stage's)" in said
    slow = lockstep.simulate(split(**cut, cluster__stragglers=[{"worker": 0, "slowdown": 5}])).bottleneck
    assert slow is not None
    assert slow.largest == -1


@pytest.mark.real
def test_speedup_of_a_measured_split_run_is_against_the_time_of_its_passes() -> None:
    workload = {"dataset": "digits", "model": "mlp", "batch_size": 32}
    measured = lockstep.run(
        split(cluster__workers=2, cluster__compute="measured", cluster__network={}, workload=workload)
    )
    records = measured.records
    passes = records[records["event"] == "pass"]
    each = (passes["end"] - passes["start"]).groupby(passes["version"]).sum()
    assert measured.gradient_s == pytest.approx(each.mean())
    assert whole_gradient_seconds(measured.plan, records).tolist() == pytest.approx(each.tolist())
