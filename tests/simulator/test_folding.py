"""Devices that are alike simulated once against all of them simulated: the same records, the same links."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Result, Scenario
from lockstep.job.plan import Plan
from lockstep.simulator.engine import Simulation
from lockstep.simulator.folding import fold
from lockstep.simulator.ring import Disturbed
from tests.support.pipelines import sized

CONSTANT = {"time": {"distribution": "constant", "value": "90 ms"}}
NETWORKS: list[dict[str, Any]] = [
    {},
    {"bandwidth": "100 Mbit/s", "latency": "1 ms"},
    {"bandwidth": "10 Mbit/s", "message_overhead": "100 us", "receive_overhead": "30 us"},
    {"bandwidth": "20 Mbit/s", "queue": "64 kB"},
    {"bandwidth": "20 Mbit/s", "burst": {"size": "30 kB", "line_rate": "1 Gbit/s"}},
    {"bandwidth": "30 Mbit/s", "intra_host": {"bandwidth": "1 Gbit/s", "latency": "10 us"}},
]
STRATEGIES: list[Any] = [
    "all-reduce",
    {"name": "all-reduce", "algorithm": "native", "buckets": 3},
    {"name": "all-reduce", "algorithm": "two-level"},
    {"name": "local-sgd", "averaging_period": 2},
    "diloco",
    "pipedream-2bw",
]


def simulated(scenario: Scenario, shortcuts: bool) -> Result:
    simulation = Simulation(Plan.of(scenario), shortcuts)
    simulation.run()
    return simulation.result()


def alike(stages: int, replicas: int, **changes: Any) -> Scenario:
    """Slices of the parameters that replicas divide, and constant times."""
    split = {"pipeline": stages, "micro_batches": stages} | changes.pop("parallelism", {})
    workload = {"parameters": 6000 * stages * replicas, "layers": 6 * stages, "batch_size": 4 * stages}
    cluster = {"compute": CONSTANT} | changes.pop("cluster", {})
    return sized(stages * replicas, cluster=cluster, workload=workload, parallelism=split, **changes)


@st.composite
def jobs(draw: st.DrawFn) -> Scenario:
    stages, replicas = draw(st.integers(2, 4)), draw(st.integers(2, 5))
    strategy = draw(st.sampled_from(STRATEGIES))
    order = draw(st.sampled_from(["gpipe", "1f1b", "interleaved", "zero-bubble"]))
    own = strategy == "pipedream-2bw"
    split = {} if own else {"order": order, "micro_batches": stages * draw(st.integers(1, 3))}
    if order == "interleaved" and not own:
        split["chunks"] = draw(st.integers(1, 3))
    cluster = {
        "network": draw(st.sampled_from(NETWORKS)),
        "workers_per_host": draw(st.sampled_from([1, 1, stages, 2])),
        "pass_overhead": draw(st.sampled_from(["0 s", "1 ms"])),
        "memory_bandwidth": draw(st.sampled_from([None, "1 GB/s"])),
    }
    stop = draw(st.sampled_from([{"steps": 3}, {"steps": 5, "time": "0.4 s"}]))
    workload = {"batch_size": 12 * stages}
    found = alike(stages, replicas, strategy=strategy, cluster=cluster, parallelism=split, stop=stop)
    return found.model_copy(update={"workload": found.workload.model_copy(update=workload)})


def test_replicas_that_normalise_batches_together_are_all_simulated() -> None:
    names = {"dataset": "fake", "model": "shufflenet_v2_x0_5", "batch_norm": "synchronised"}
    scenario = alike(2, 3).model_dump() | {"workload": {**names, "batch_size": 4, "learning": False}}
    scenario["cluster"]["network"] = NETWORKS[0]
    assert fold(Plan.of(Scenario.model_validate(scenario))) is None


@pytest.mark.slow
@given(jobs())
def test_all_replicas_do_what_one_does(scenario: Scenario) -> None:
    same(scenario)


def same(scenario: Scenario) -> None:
    once, all_of_them = simulated(scenario, True), simulated(scenario, False)
    pd.testing.assert_frame_equal(once.records, all_of_them.records, rtol=1e-12, atol=1e-12)
    if scenario.stop.time is not None:  # links are read at other instants, and not just at the end
        return
    both = [result.utilisation for result in (once, all_of_them)]
    assert both[0] is not None
    assert both[1] is not None
    totals = [each.groupby("resource", observed=True)["bytes"].sum() for each in both]
    pd.testing.assert_series_equal(*totals, rtol=1e-9)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_one_of_the_replicas_has_nodes(strategy: Any) -> None:
    scenario = alike(3, 4, strategy=strategy, cluster={"network": NETWORKS[1]})
    simulation = Simulation(Plan.of(scenario))
    assert len(simulation.nodes) == 3
    simulation.run()
    same(scenario)


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": {"stragglers": [{"worker": 3, "slowdown": 2.0}]}},
        {"cluster": {"compute": {"time": {"distribution": "exponential", "mean": "1 s"}}}},
        {"cluster": {"network": {"bandwidth": "1 GB/s", "cards": [{"hosts": [5], "bandwidth": "1 MB/s"}]}}},
        {"cluster": {"network": {"bandwidth": "1 Gbit/s", "duplex": "half"}}},
        {"cluster": {"workers_per_host": 4}},  # hosts with stages of two replicas
        {"cluster": {"workers_per_host": 3}, "parallelism": {"axes": ["data", "pipeline", "tensor"]}},
        {"strategy": "synchronous"},
        {"strategy": "d-psgd"},
        {"stop": {"updates": 3}},
    ],
    ids=str,
)  # fmt: skip
def test_replicas_that_may_differ_are_simulated_each(changes: dict[str, Any]) -> None:
    scenario = alike(2, 3, **changes)
    assert fold(Plan.of(scenario)) is None
    assert fold(Plan.of(alike(2, 3))) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": {"name": "all-reduce", "algorithm": algorithm}}
        for algorithm in ("recursive-doubling", "binomial", "parameter-server", "halving-doubling")
    ],
    ids=str,
)
def test_what_is_no_ring_is_found_out(changes: dict[str, Any]) -> None:
    scenario = alike(2, 4, **changes)
    with pytest.raises(Disturbed):
        simulated(scenario, True)
    assert lockstep.simulate(scenario).records.equals(simulated(scenario, False).records)


@pytest.mark.parametrize("codec", ["none", "fp16"])
def test_chunks_that_differ_by_an_element_count_as_equal_only_if_they_are_large(codec: str) -> None:
    def of(parameters: int) -> Scenario:
        strategy = {"name": "all-reduce", "codec": codec}
        scenario = alike(2, 3, cluster={"network": NETWORKS[1]}, strategy=strategy)
        workload = scenario.workload.model_copy(update={"parameters": parameters})
        return scenario.model_copy(update={"workload": workload})

    with pytest.raises(Disturbed):
        simulated(of(610), True)
    large = of(1_200_010)
    assert [group.length % 3 for group in Plan.of(large).groups] != [0, 0]
    once, all_of_them = simulated(large, True).metrics, simulated(large, False).metrics
    assert once["duration_s"] == pytest.approx(all_of_them["duration_s"], rel=1e-5)
    assert once["bytes_sent"] == pytest.approx(all_of_them["bytes_sent"], rel=1e-5)


def shared(stages: int, places: int, replicas: int, micro: int, per_host: int, **more: Any) -> Scenario:
    """Layers that several devices share, on a host with others or alone."""
    workers = stages * places * replicas
    network = {
        **{"bandwidth": "100 Mbit/s", "latency": "1 ms", "message_overhead": more.pop("overhead", "0 s")},
        "intra_host": {"bandwidth": "1 Gbit/s", "latency": "10 us"},
    }
    cluster = {"compute": CONSTANT, "workers_per_host": per_host, "network": network}
    cluster |= {"memory_bandwidth": more.pop("memory_bandwidth", None)}
    workload = {"parameters": 6000 * workers, "layers": 2 * stages, "batch_size": 4 * micro}
    workload |= {"activation": f"{96 * micro * places} kB"}
    stop = {"steps": 2, **more.pop("stop", {})}
    split = {"pipeline": stages, "tensor": places, "micro_batches": micro, **more}
    return sized(workers, cluster=cluster, workload=workload, parallelism=split, stop=stop)


SHARED = {
    "a host for each group": shared(2, 2, 2, 2, 2),
    "one replica": shared(2, 4, 1, 4, 4, sequence=True),
    "one stage": shared(1, 2, 3, 1, 2),
    "additions and overheads take time": shared(3, 2, 2, 3, 2, overhead="50 us", memory_bandwidth="1 GB/s"),
    "two groups on a host": shared(2, 2, 2, 2, 4),
    "two groups on a host, overheads": shared(2, 2, 2, 2, 4, overhead="20 us"),
    "recomputed": shared(2, 3, 2, 2, 3, sequence=True, recompute=True),
    "interleaved": shared(2, 2, 2, 4, 2, order="interleaved", chunks=2),
    "zero-bubble": shared(2, 2, 2, 4, 2, order="zero-bubble"),
    "a time that is up within an exchange": shared(2, 4, 1, 4, 4, stop={"time": "11.3 ms"}),
}


@pytest.mark.parametrize("name", SHARED)
def test_all_that_share_layers_do_what_one_does(name: str) -> None:
    """Their exchanges are one record where they are known without their messages; the bytes are the same."""
    scenario = SHARED[name]
    assert fold(Plan.of(scenario)) is not None
    once, all_of_them = simulated(scenario, True), simulated(scenario, False)
    for event in ("pass", "update", "gradient"):
        columns = ["node", "peer", "start", "end", "version", "batches", "nbytes"]
        one, other = (
            result.records[result.records["event"] == event][columns].sort_values(
                columns[:3], ignore_index=True
            )
            for result in (once, all_of_them)
        )
        pd.testing.assert_frame_equal(one, other, rtol=1e-12, atol=1e-12)
    assert once.metrics["bytes_sent"] == all_of_them.metrics["bytes_sent"]
    assert once.metrics["breakdown"]["compute"] == pytest.approx(all_of_them.metrics["breakdown"]["compute"])
    carried = [
        result.utilisation.groupby("resource", observed=True)["bytes"].sum()  # type: ignore[union-attr]
        for result in (once, all_of_them)
    ]
    pd.testing.assert_series_equal(*carried)


def test_devices_that_share_layers_on_several_hosts_are_all_simulated() -> None:
    assert fold(Plan.of(shared(2, 4, 2, 2, 2))) is None


def shared_out(
    name: str, per_host: int, *, workers: int = 8, parameters: int = 8 * 6000, **more: Any
) -> Scenario:
    """A model of which each worker owns a share."""
    network = {
        **{"bandwidth": "10 Mbit/s", "latency": "1 ms", "message_overhead": more.pop("overhead", "0 s")},
        "intra_host": {"bandwidth": "1 Gbit/s", "latency": more.pop("near", "10 us")},
        **more.pop("network", {}),
    }
    cluster = {"compute": CONSTANT, "workers_per_host": per_host, "network": network}
    cluster |= {"memory_bandwidth": more.pop("memory_bandwidth", None)}
    workload = {"parameters": parameters, "layers": 6, "batch_size": 4}
    split, stop = more.pop("parallelism", {}), {"steps": 3, **more.pop("stop", {})}
    strategy = {"name": name, **more}
    return sized(workers, cluster=cluster, workload=workload, parallelism=split, strategy=strategy, stop=stop)


SHARED_OUT: dict[str, tuple[Scenario, int]] = {
    "a host each": (shared_out("fsdp", 1, units=3), 1),
    "hosts of two": (shared_out("fsdp", 2, units=3, prefetch=2), 2),
    "hosts of four, micro-batches": (shared_out("fsdp", 4, units=2, parallelism={"micro_batches": 2}), 4),
    "one host": (shared_out("fsdp", 8, units=3, reshard=False), 1),
    "all that takes time": (shared_out("fsdp", 4, overhead="50 us", memory_bandwidth="1 GB/s"), 4),
    "until a time": (shared_out("fsdp", 2, units=3, stop={"time": "203 ms"}), 2),
    "gradients in buckets": (shared_out("fsdp", 2, zero=2, buckets=2), 2),
    "a group a host": (shared_out("hsdp", 2, units=3), 1),
    "a group a host, overheads": (shared_out("hsdp", 4, units=3, overhead="50 us"), 1),
    "two groups a host": (shared_out("hsdp", 4, group_size=2, units=2), 4),
    "stages": (shared_out("fsdp", 1, zero=1, parallelism={"pipeline": 2, "micro_batches": 2}), 2),
}


@pytest.mark.parametrize("name", SHARED_OUT)
def test_workers_that_own_shares_turn_with_their_hosts(name: str) -> None:
    scenario, nodes = SHARED_OUT[name]
    simulation = Simulation(Plan.of(scenario))
    assert len(simulation.nodes) == nodes
    simulation.run()
    same(scenario)


@pytest.mark.parametrize(
    "scenario",
    [
        shared_out("hsdp", 2, group_size=4),  # groups of two hosts, which only turn by two
        shared_out("fsdp", 3, workers=8),
        shared_out("fsdp", 2, parameters=8 * 6000 + 1),
        shared_out("hsdp", 4, network={"queue": "64 kB"}),
        shared_out("hsdp", 1, group_size=2, zero=1, parallelism={"pipeline": 2, "micro_batches": 2}),
    ],
)
def test_workers_that_own_shares_and_may_differ_are_simulated_each(scenario: Scenario) -> None:
    assert fold(Plan.of(scenario)) is None


@pytest.mark.parametrize(("name", "per_host"), [("fsdp", 2), ("hsdp", 2), ("fsdp", 8)])
def test_shares_that_differ_by_an_element_count_as_equal_if_they_are_large(name: str, per_host: int) -> None:
    """Where a link is shared, and they differ, latencies hide behind others' bytes: here there are none."""
    scenario = shared_out(name, per_host, parameters=10_000_003, units=3, near="0 s")
    once, all_of_them = simulated(scenario, True).metrics, simulated(scenario, False).metrics
    assert once["duration_s"] == pytest.approx(all_of_them["duration_s"], rel=1e-5)
    assert once["bytes_sent"] == pytest.approx(all_of_them["bytes_sent"], rel=1e-5)
