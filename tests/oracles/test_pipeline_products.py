"""Any strategy over any split: nobody waits for ever, nothing is lost, all passes are made."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import lockstep
from lockstep import Result, Scenario
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.section import divisors
from lockstep.strategies import STRATEGIES
from tests.support.nightly import so_many
from tests.support.pipelines import sized

NAMES = sorted(set(STRATEGIES) - {"hogwild"})  # whose workers share one memory
ALONE = ("backup-workers", "k-async", "k-batch-async", "fedavg", "fedprox")  # one server


@st.composite
def jobs(draw: st.DrawFn) -> Scenario:
    name = draw(st.sampled_from(NAMES))
    stages, replicas = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    places = draw(st.sampled_from([1, 1, 2, 3, 4]))
    if name == "p3":  # in units of its own
        stages = 1
    order = draw(st.sampled_from(["gpipe", "1f1b", "interleaved", "zero-bubble"]))
    split: dict[str, Any] = {"pipeline": stages, "order": order, "recompute": draw(st.booleans())}
    split["micro_batches"] = stages * draw(st.integers(1, 3))
    if name == "pipedream":
        split["micro_batches"] = 1
    if STRATEGIES[name].own_passes or name == "p3":
        split["order"] = order = "1f1b"
    strategy: dict[str, Any] = {"name": name}
    if name in ("fsdp", "hsdp"):
        strategy["zero"] = draw(st.integers(1, 3 if stages == 1 else 2))
        if strategy["zero"] == 3:
            split["order"] = order = "1f1b"
            strategy |= {"units": draw(st.integers(1, 4)), "prefetch": draw(st.integers(0, 3))}
            strategy["reshard"] = draw(st.booleans())
        if name == "hsdp":
            strategy["group_size"] = draw(st.sampled_from(divisors(replicas)))
    if name == "k-async":  # with any other number stages would wait for different workers
        strategy["k"] = draw(st.sampled_from([1, replicas]))
    if name == "backup-workers":
        strategy["backups"] = draw(st.sampled_from([0, replicas - 1]))
    if order == "interleaved":
        split["chunks"] = draw(st.integers(1, 3))
    if places > 1:
        split |= {"tensor": places, "redundancy": draw(st.sampled_from(divisors(places)))}
        split["sequence"] = split["redundancy"] < places and draw(st.booleans())
    split["axes"] = draw(st.permutations(["tensor", "pipeline", "data"]))
    stop = draw(st.sampled_from([{"steps": 5}, {"updates": 6}, {"steps": 9, "time": "1 s"}]))
    servers = 1 if name in ALONE else draw(st.integers(1, 3))
    return sized(
        stages * replicas * places,
        strategy,
        cluster={
            "servers": servers,
            "workers_per_host": draw(st.integers(1, 4)),
            "network": draw(
                st.sampled_from(
                    [{}, {"bandwidth": "100 Mbit/s", "latency": "1 ms"}, {"message_overhead": "100 us"}]
                )
            ),
        },
        workload={"batch_size": split["micro_batches"] * 2},
        parallelism=split,
        stop=stop,
        seed=draw(st.integers(0, 9)),
    )


@pytest.mark.parametrize(
    ("strategy", "key"),
    [({"name": "k-async", "k": 3}, "k"), ("k-async", "k"), ("backup-workers", "backups")],
)
def test_servers_of_stages_that_would_wait_for_different_workers_are_refused(strategy: Any, key: str) -> None:
    """Each of four replicas waits at one stage, and three are needed at each: found by the test below."""
    split = {"pipeline": 2, "micro_batches": 2}
    with pytest.raises(ScenarioError, match="would wait for other workers each, for ever") as caught:
        lockstep.check(sized(8, strategy, workload={"batch_size": 4}, parallelism=split))
    assert caught.value.key == f"strategy.{key}"


@so_many(25, 1500)
@given(jobs())
def test_a_split_job_ends_and_keeps_its_books(scenario: Scenario) -> None:
    keeps_its_books(lockstep.simulate(scenario))


@pytest.mark.parametrize("split", [{"pipeline": 2, "order": "zero-bubble"}, {"pipeline": 2, "tensor": 2}])
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"p3", "pipedream", "pipedream-2bw"}))
def test_a_strategy_takes_no_message_of_its_own_passes(name: str, split: dict[str, Any]) -> None:
    """Devices of a replica are as far as they like when those of another send them something."""
    strategy: dict[str, Any] = {"name": name}
    if name in ("fsdp", "hsdp"):
        strategy["zero"] = 2
    scenario = sized(
        2 * split.get("pipeline", 1) * split.get("tensor", 1),
        strategy,
        cluster={
            "network": {"latency": "1 ms"},
            "compute": {"time": {"distribution": "exponential", "mean": "100 ms"}},
        },
        workload={"batch_size": 4},
        parallelism={"micro_batches": 2, **split},
        stop={"steps": 12},
    )
    keeps_its_books(lockstep.simulate(scenario))


@pytest.mark.real
@pytest.mark.slow
@so_many(3, 60, suppress_health_check=[HealthCheck.too_slow])
@given(jobs())
def test_so_does_a_real_one(scenario: Scenario) -> None:
    keeps_its_books(lockstep.run(scenario))


def keeps_its_books(result: Result) -> None:
    """Each gradient has all its passes, and no worker makes more or fewer mini-batches than it should."""
    scenario, plan, records = result.scenario, result.plan, result.records
    metrics, batch = result.metrics, scenario.workload.batch_size
    passes = records[records["event"] == "pass"]
    if not plan.stages:
        assert not len(passes)
        return
    segments = passes.groupby(["node", "kind", "peer", "version", "batches"], observed=True).size()
    (piece, *_) = plan.groups[0].pieces
    all_of = [len(piece.segments(kind)) for kind in segments.index.get_level_values("kind")]
    kinds = (segments == all_of).groupby(level=["node", "kind"], observed=True).sum().unstack(fill_value=0)
    gradients = records[records["event"] == "gradient"].groupby("node").size()
    whole = plan.micro_batches * plan.chunks
    for worker in plan.workers:
        done = int(gradients.get(worker, 0))
        back = sum(int(kinds[k].get(worker, 0)) for k in ("backward", "backward-weights") if k in kinds)
        assert done * whole <= back < (done + scenario.split.pipeline) * whole
    assert (passes["nbytes"] >= 0).all()
    steps = scenario.stop.steps
    if steps is not None and scenario.stop.time is None:
        assert metrics["samples"] <= steps * plan.replicas * batch
        assert (gradients == gradients.max()).all() or plan.strategy.pooled
