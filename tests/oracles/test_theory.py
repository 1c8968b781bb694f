"""The simulator against closed forms (Lockstep's reference: parameter servers, rings, staleness)."""

from math import ceil, log

import numpy as np
import pandas as pd
import pytest

import lockstep
from tests.support.scenarios import scenario

B = 1e6  # bytes/s
M = 4e6  # bytes: a million float32
SIZES = {"parameters": 1_000_000}
NO_COMPUTE = {"time": {"distribution": "constant", "value": "0 s"}}


def network(latency: str = "0 s", **more: object) -> dict[str, object]:
    return {"bandwidth": "1 MB/s", "latency": latency, **more}


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("servers", [1, 2, 4])
def test_push_and_pull_share_the_servers_links(workers: int, servers: int) -> None:
    """Fan-in of N pushes of M bytes over S shards takes max(M, N·M/S)/B; push then pull twice that."""
    run = lockstep.simulate(
        scenario(
            cluster__workers=workers, cluster__servers=servers, cluster__network=network(),
            cluster__compute=NO_COMPUTE, workload=SIZES, strategy="synchronous", stop={"updates": 3},
        )
    )  # fmt: skip
    one_way = max(M / B, workers * M / (servers * B))
    messages = run.records[run.records["event"] == "message"]
    pushes = messages[messages["kind"] == "push"]
    first = pushes[pushes["start"] == pushes["start"].min()]
    assert (first["end"] - first["start"]).to_numpy() == pytest.approx(one_way, rel=1e-9)
    updates = np.unique(run.records.loc[run.records["event"] == "update", "end"])
    assert np.diff(updates) == pytest.approx(2 * one_way, rel=1e-9)


def test_uneven_shards_share_first_the_worker_s_link_and_then_the_server_s() -> None:
    """10 parameters over 3 servers are 12, 12 and 16 bytes.

    For 36 us each way the three flows of a worker share its 1 MB/s; the 4 bytes left of the last one then
    share the server's link with the other worker's: 8 us more.
    """
    run = lockstep.simulate(
        scenario(
            cluster__workers=2, cluster__servers=3, cluster__network=network(), cluster__compute=NO_COMPUTE,
            workload={"parameters": 10}, strategy="synchronous", stop={"updates": 1},
        )
    )  # fmt: skip
    ends = run.records[run.records["event"] == "update"].groupby("node")["end"].max()
    assert ends.tolist() == pytest.approx([44e-6 + 36e-6, 44e-6 + 36e-6, 44e-6 + 44e-6])


@pytest.mark.parametrize("algorithm", ["ring", "native"])
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_ring_all_reduce(workers: int, algorithm: str) -> None:
    """2(p−1)/p·M/B + 2(p−1)·latency for each round."""
    run = lockstep.simulate(
        scenario(
            cluster__workers=workers, cluster__network=network("3 ms"), cluster__compute=NO_COMPUTE,
            workload={"parameters": 840_000}, stop={"steps": 2},
            strategy={"name": "all-reduce", "algorithm": algorithm},
        )
    )  # fmt: skip
    m, p = 4 * 840_000, workers
    assert run.metrics["duration_s"] == pytest.approx(2 * (2 * (p - 1) / p * m / B + 2 * (p - 1) * 3e-3))
    assert run.metrics["bytes_sent"] == 2 * 2 * (p - 1) * m


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_an_exchange_costs_something_once_besides_its_ring(workers: int) -> None:
    """A step: the gradient, 200 ms if there is anybody to exchange it with, and the ring's time."""
    run = lockstep.simulate(
        scenario(
            cluster__workers=workers, cluster__network=network("3 ms"), cluster__exchange_overhead="200 ms",
            cluster__compute={"time": {"distribution": "constant", "value": "1 s"}},
            workload={"parameters": 840_000}, strategy="all-reduce", stop={"steps": 2},
        )
    )  # fmt: skip
    m, p = 4 * 840_000, workers
    step = 1.0 + 0.2 * (p > 1) + 2 * (p - 1) / p * m / B + 2 * (p - 1) * 3e-3
    assert run.metrics["duration_s"] == pytest.approx(2 * step)
    batch = run.scenario.workload.batch_size
    assert run.metrics["speedup"] == pytest.approx(p / step)  # over one worker, who exchanges nothing
    assert run.metrics["throughput"] == pytest.approx(p * batch / step)


def test_colocated_shards_send_nothing_to_their_own_host() -> None:
    """A shard on every host: 2(n−1)M/(nB) for push then pull."""
    n = 4
    run = lockstep.simulate(
        scenario(
            cluster__servers={"count": n, "colocated": True}, cluster__network=network("2 ms"),
            cluster__compute=NO_COMPUTE, workload=SIZES, strategy="synchronous", stop={"updates": 2},
        )
    )  # fmt: skip
    updates = np.unique(run.records.loc[run.records["event"] == "update", "end"])
    assert np.diff(updates) == pytest.approx(2 * (n - 1) * M / (n * B) + 2 * 2e-3)


def test_latency_goodput_and_overhead() -> None:
    """A push of M bytes: overhead + M/(g·B) + latency; a second message waits for the first's overhead."""
    run = lockstep.simulate(
        scenario(
            cluster__workers=1, cluster__servers=2, workload={"parameters": 2}, stop={"steps": 1},
            cluster__network=network("5 ms", message_overhead="7 ms", goodput=0.5),
        )
    )  # fmt: skip
    messages = run.records[run.records["event"] == "message"]
    pushes = messages[messages["kind"] == "push"]
    took = sorted(pushes["end"] - pushes["start"])
    assert took == pytest.approx([7e-3 + 4 / (0.5 * B) + 5e-3, 14e-3 + 4 / (0.5 * B) + 5e-3])


def test_a_full_duplex_link_carries_both_ways_at_once() -> None:
    """Two workers out of step: one pushes while the other pulls, and neither is slowed down."""
    slow = [{"worker": 1, "slowdown": 2}]
    run = lockstep.simulate(
        scenario(
            cluster__workers=2, cluster__network=network(), cluster__stragglers=slow, stop={"steps": 1},
            cluster__compute={"time": {"distribution": "constant", "value": "4 s"}}, workload=SIZES,
        )
    )  # fmt: skip
    messages = run.records[(run.records["nbytes"] > 0) & (run.records["start"] > 1)]
    assert (messages["end"] - messages["start"]).to_numpy() == pytest.approx(M / B)


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize(
    "time",
    [
        {"distribution": "exponential", "mean": "20 ms"},
        {"distribution": "pareto", "mean": "20 ms", "shape": 1.5},
        {"distribution": "constant", "value": "20 ms"},
    ],
    ids=lambda time: time["distribution"],
)
def test_mean_staleness_of_the_closed_loop_is_n_minus_1(time: dict[str, object], servers: int) -> None:
    """Conservation: each cycle every other worker's gradients land in between, whatever the distribution.

    Counted from the moment every worker has pushed once; a run of U updates then misses the mean by less
    than n/U times the largest staleness, which is what the first and the last cycles can be off by.
    """
    n, slow = 6, [{"worker": 0, "slowdown": 4}]
    run = lockstep.simulate(
        scenario(
            cluster__workers=n, cluster__servers=servers, cluster__compute={"time": time},
            cluster__stragglers=slow, cluster__network=network(), stop={"updates": 3000},
        )
    )  # fmt: skip
    updates = run.records[(run.records["event"] == "update")]
    for _, shard in updates.groupby("node"):
        warm = shard[shard["version"] > shard.groupby("peer")["version"].min().max()]
        bound = n * warm["staleness"].max() / len(warm)
        assert warm["staleness"].mean() == pytest.approx(n - 1, abs=bound)


@pytest.mark.slow
def test_staleness_is_geometric_when_compute_is_exponential() -> None:
    """P(τ=k) = (1/n)(1−1/n)^k with i.i.d. exponential compute and a negligible network."""
    n, updates = 5, 40_000
    run = lockstep.simulate(
        scenario(
            cluster__workers=n, stop={"updates": updates},
            cluster__compute={"time": {"distribution": "exponential", "mean": "1 s"}},
        )
    )  # fmt: skip
    counts = pd.Series(run.metrics["staleness"]["histogram"]).rename(int)
    k = np.arange(counts.index.max() + 1)
    expected = (1 / n) * (1 - 1 / n) ** k
    found = counts.reindex(k, fill_value=0).to_numpy() / counts.sum()
    # Dvoretzky–Kiefer–Wolfowitz: the distance exceeds this once in a million for independent draws; the
    # draws of one loop depend on each other over about n updates, so they count for 1/n of their number.
    bound = np.sqrt(log(2 / 1e-6) / (2 * updates / n))
    assert np.abs((found - expected).cumsum()).max() < bound


def test_asynchronous_throughput_of_unequal_workers_is_the_sum_of_theirs() -> None:
    """Heterogeneous constant times h_i: asynchronous Σ1/h_i updates a second, synchronous n/max h."""
    slow = [{"worker": 2, "slowdown": 2}, {"worker": 3, "slowdown": 5}]
    common = {"cluster__stragglers": slow, "stop": {"time": "1000 s"}, "workload": {"parameters": 1}}
    second = {"time": {"distribution": "constant", "value": "1 s"}}
    for strategy, rate in (("asynchronous", 1 + 1 + 1 / 2 + 1 / 5), ("synchronous", 1 / 5)):
        run = lockstep.simulate(scenario(strategy=strategy, cluster__compute=second, **common))
        # the event at 1000 s itself is not in: at most one update of each worker is missing
        assert run.metrics["updates"] == pytest.approx(1000 * rate, abs=4)


def test_ideal_speedup_is_the_number_of_workers() -> None:
    metrics = lockstep.simulate(scenario(stop={"steps": 50})).metrics
    assert metrics["speedup"] == pytest.approx(4)
    assert metrics["efficiency"] == pytest.approx(1)
    assert metrics["breakdown"]["compute"] == pytest.approx(1)


@pytest.mark.parametrize("window", [1, 3, 5])
def test_downpour_sends_once_a_window(window: int) -> None:
    steps = 11
    run = lockstep.simulate(
        scenario(strategy={"name": "downpour", "communication_window": window}, stop={"steps": steps})
    )
    pushes = run.records[run.records["kind"] == "push"].groupby("node").size()
    assert (pushes == ceil(steps / window)).all()
    assert run.metrics["samples"] == 4 * steps * 32
    assert run.metrics["updates"] == 4 * ceil(steps / window)


@pytest.mark.parametrize("stop", [{"updates": 12}, {"time": "1 s"}], ids=str)
def test_computing_when_the_run_ends_is_computing(stop: dict[str, object]) -> None:
    run = lockstep.simulate(
        scenario(
            cluster__workers=6, stop=stop,
            cluster__compute={"time": {"distribution": "exponential", "mean": "300 ms"}},
        )
    )  # fmt: skip
    assert run.metrics["breakdown"]["compute"] == pytest.approx(1)


@pytest.mark.parametrize("bound", ["steps", "updates"])
def test_a_target_ends_a_run_without_servers_when_all_workers_are_there(bound: str) -> None:
    run = lockstep.simulate(
        scenario(
            workload={"dataset": "digits", "model": "mlp"}, stop={"target_accuracy": 0.5, bound: 100},
            strategy={"name": "all-reduce", "learning_rate": 0.3}, cluster__network={"latency": "1 ms"},
        )
    )  # fmt: skip
    metrics = run.metrics
    assert metrics["accuracy"] >= 0.5
    assert metrics["updates"] == run.curve["version"].max() < 100
    assert metrics["samples"] == 4 * 32 * metrics["updates"]


@pytest.mark.real
def test_native_all_reduce_of_uneven_chunks_sends_as_many_bytes_in_both_engines() -> None:
    config = scenario(
        cluster__workers=5, workload={"parameters": 2}, stop={"steps": 2},
        strategy={"name": "all-reduce", "algorithm": "native"},
    )  # fmt: skip
    expected = 2 * 2 * (5 - 1) * 8  # 2(p−1)M a round
    assert lockstep.simulate(config).metrics["bytes_sent"] == expected
    assert lockstep.run(config).metrics["bytes_sent"] == expected


@pytest.mark.parametrize("name", ["k-sync", "k-batch-sync"])
def test_gradients_that_were_given_up_are_not_counted_as_applied(name: str, engine) -> None:
    config = scenario(
        cluster__compute={"time": {"distribution": "exponential", "mean": "10 ms"}},
        strategy={"name": name, "k": 2}, stop={"updates": 10},
    )  # fmt: skip
    assert engine(config).metrics["samples"] == 10 * 2 * 32
