"""Where parameters lie, and what stands between workers and servers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import ScenarioError
from lockstep.strategies import STRATEGIES
from lockstep.strategies.parts import cut
from lockstep.strategies.placement import hosts, roles
from tests.support.scenarios import scenario

B = 1e6  # bytes/s
M = 4e6  # bytes: a million float32
NO_COMPUTE = {"time": {"distribution": "constant", "value": "0 s"}}
NETWORK = {"bandwidth": "1 MB/s"}
RACKS = {"kind": "racks", "hosts_per_rack": 4, "uplink": "1 MB/s"}


def round_s(run: lockstep.Result) -> float:
    """Seconds from one update of the first server to its next."""
    updates = run.records[run.records["event"] == "update"]
    updates = np.unique(updates.loc[updates["node"] == run.plan.owners.ranks[0], "end"])
    assert np.diff(updates) == pytest.approx(updates[1] - updates[0])
    return updates[1] - updates[0]


@given(st.integers(0, 10**9), st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_shards_follow_one_another_and_are_as_large_as_their_shares(n: int, shares: list[float]) -> None:
    parts = cut(n, shares)
    assert [part.start for part in parts] == [0] + [part.stop for part in parts[:-1]]
    assert parts[-1].stop == n
    sizes = [part.stop - part.start for part in parts]
    assert sizes == pytest.approx([n * share / sum(shares) for share in shares], abs=1.001)


@given(st.integers(1, 30), st.integers(1, 3), st.integers(0, 8), st.integers(1, 4), st.booleans())
def test_every_worker_has_one_way_up_to_every_shard(
    workers: int, shards: int, groups: int, fan_out: int, colocated: bool
) -> None:
    groups = min(groups, workers)
    everyone = roles(workers, shards, groups, fan_out)
    assert len(everyone) == workers + shards * (1 + groups)
    for worker in range(workers):
        for shard, above in enumerate(everyone[worker].parents):
            child, rank = worker, above
            while everyone[rank].kind == "relay":
                assert child in everyone[rank].children
                assert everyone[rank].shard == shard
                child, (rank,) = rank, everyone[rank].parents
            assert rank == workers + shard
    for role in everyone[workers:]:
        assert len([child for child in role.children if child >= workers]) <= (fan_out if groups else 0)
    place = hosts(workers, 2, everyone, colocated)
    own = (workers + 1) // 2
    assert place[:workers] == [worker // 2 for worker in range(workers)]
    assert (
        max(place) == own - 1
        if colocated
        else place[workers:] == list(range(own, own + shards * (1 + groups)))
    )


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_two_levels_relieve_the_root(groups: int) -> None:
    """N workers in G groups: N/G pushes into each relay, then G into the server, and the same way down."""
    n = 8
    run = lockstep.simulate(
        scenario(
            cluster__workers=n, cluster__servers={"hierarchy": {"groups": groups}}, cluster__network=NETWORK,
            cluster__compute=NO_COMPUTE, workload={"parameters": 1_000_000}, strategy="synchronous",
            stop={"updates": 3},
        )
    )  # fmt: skip
    assert round_s(run) == pytest.approx(2 * (n / groups + groups) * M / B)


def test_a_chain_takes_a_hop_for_every_relay() -> None:
    """Up, N/G pushes into every relay at once, then G hops.

    Down, the server's answer, then G − 1 relays that answer N/G workers and a relay each, then the last one.
    """
    n, groups = 8, 4
    run = lockstep.simulate(
        scenario(
            cluster__workers=n, cluster__servers={"hierarchy": {"groups": groups, "fan_out": 1}},
            cluster__network=NETWORK, cluster__compute=NO_COMPUTE, workload={"parameters": 1_000_000},
            strategy="synchronous", stop={"updates": 3},
        )
    )  # fmt: skip
    up, down = n / groups + groups, 1 + (groups - 1) * (n / groups + 1) + n / groups
    assert round_s(run) == pytest.approx((up + down) * M / B)


@pytest.mark.slow
@pytest.mark.parametrize("fan_out", [1, 2, 4])
@pytest.mark.parametrize("strategy", ["synchronous", "model-averaging"])
def test_a_hierarchy_learns_what_the_server_alone_does(strategy: str, fan_out: int) -> None:
    """5 workers in 3 groups of unequal size: still the mean over the workers, up to the order of sums."""
    common = {
        "cluster__workers": 5, "workload": {"dataset": "digits", "model": "mlp"}, "strategy": strategy,
        "stop": {"steps": 20},
    }  # fmt: skip
    flat = lockstep.simulate(scenario(**common))
    tree = lockstep.simulate(
        scenario(cluster__servers={"count": 2, "hierarchy": {"groups": 3, "fan_out": fan_out}}, **common)
    )
    assert tree.parameters == pytest.approx(flat.parameters, abs=1e-6)
    assert tree.metrics["samples"] == flat.metrics["samples"]


def test_relays_do_not_heed_another_strategy_s_parameters() -> None:
    changes = {"cluster__servers": {"hierarchy": {"groups": 2}}, "stop": {"steps": 20}}
    plain = lockstep.simulate(scenario(strategy="model-averaging", **changes))
    other = lockstep.simulate(scenario(strategy={"name": "model-averaging", "chunks": 3}, **changes))
    assert other.records.equals(plain.records)
    assert "chunks means nothing to model-averaging" in other.warnings[0]


def test_a_relay_combines_what_comes_while_it_waits() -> None:
    """Asynchronous: all mini-batches are applied, in fewer updates, with less staleness than n − 1."""
    run = lockstep.simulate(
        scenario(
            cluster__workers=8, cluster__servers={"hierarchy": {"groups": 2}}, strategy="asynchronous",
            cluster__network={"bandwidth": "1 MB/s", "latency": "5 ms"}, stop={"steps": 50},
        )
    )  # fmt: skip
    metrics = run.metrics
    assert metrics["samples"] == 8 * 50 * 32
    assert metrics["updates"] < 8 * 50
    assert 0 < metrics["staleness"]["mean"] < 7


@pytest.mark.real
def test_both_engines_have_relays() -> None:
    config = scenario(
        cluster__servers={"count": 2, "hierarchy": {"groups": 2}}, strategy="synchronous",
        workload={"dataset": "digits", "model": "mlp"}, stop={"steps": 4},
    )  # fmt: skip
    predicted, measured = lockstep.simulate(config), lockstep.run(config)
    assert np.array_equal(predicted.parameters, measured.parameters)
    assert predicted.metrics["bytes_sent"] == measured.metrics["bytes_sent"]


def test_uneven_shards() -> None:
    """Three quarters of the parameters on one of two servers: its link carries ¾·N·M each way."""
    run = lockstep.simulate(
        scenario(
            cluster__servers={"count": 2, "shares": [3, 1]}, cluster__network=NETWORK, strategy="synchronous",
            cluster__compute=NO_COMPUTE, workload={"parameters": 1_000_000}, stop={"updates": 2},
        )
    )  # fmt: skip
    pushes = run.records[run.records["kind"] == "push"].groupby("peer")["nbytes"].first()
    assert pushes.tolist() == [3e6, 1e6]
    assert round_s(run) == pytest.approx(2 * 4 * 0.75 * M / B)


@pytest.mark.parametrize("chunks", [1, 2, 5])
@pytest.mark.parametrize("servers", [1, 2])
def test_chunks_fill_both_directions_of_the_link(chunks: int, servers: int) -> None:
    """(1 + 1/c)·max(M/B, N·M/(S·B)): a chunk comes back while the next is pushed."""
    n = 4
    run = lockstep.simulate(
        scenario(
            cluster__servers=servers, cluster__network=NETWORK, cluster__compute=NO_COMPUTE,
            workload={"parameters": 1_000_000}, strategy={"name": "synchronous", "chunks": chunks},
            stop={"updates": 3},
        )
    )  # fmt: skip
    assert round_s(run) == pytest.approx((1 + 1 / chunks) * max(M / B, n * M / (servers * B)))


def test_an_update_costs_the_bytes_it_touches_and_is_serialised_at_its_shard() -> None:
    """Synchronous: N additions of 3 passes; asynchronous: one. They scale as they add."""
    memory = {"cluster__memory_bandwidth": "1 GB/s", "cluster__apply_overhead": "1 ms"}
    common = {"workload": {"parameters": 1_000_000}, "stop": {"updates": 4}, **memory}
    run = lockstep.simulate(scenario(strategy="synchronous", cluster__compute=NO_COMPUTE, **common))
    assert round_s(run) == pytest.approx(1e-3 + 4 * 3 * M / 1e9)
    run = lockstep.simulate(scenario(strategy="asynchronous", **common))
    updates = run.records.loc[run.records["event"] == "update", "end"]
    assert updates.to_numpy() == pytest.approx(10e-3 + (1e-3 + 3 * M / 1e9) * np.arange(1, 5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": {"name": "k-sync", "k": 5}}, "strategy.k: must be at most 4, with 4 workers, not 5"),
        ({"strategy": {"name": "backup-workers", "backups": 4}}, "strategy.backups: must be at most 3"),
        ({"strategy": {"name": "gossip", "peers": 4}}, "strategy.peers: must be at most 3, with 4 workers"),
        ({"strategy": {"name": "synchronous", "chunks": 10_001}}, "chunks: 10001 is not .* ≤ 10000"),
        ({"strategy": {"name": "all-reduce", "buckets": 10_001}}, "buckets: 10001 is not .* ≤ 10000"),
        ({"strategy": "k-async", "cluster__servers": 2}, "cluster.servers.count: k-async must have one"),
        ({"strategy": "backup-workers", "cluster__servers": 2}, "count: backup-workers must have one"),
        (
            {"strategy": "ssp", "cluster__servers": {"hierarchy": {"groups": 2}}},
            "cluster.servers.hierarchy: ssp cannot have relays .* one of synchronous",
        ),
    ],
)
def test_what_does_not_fit_the_cluster_is_said(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        lockstep.simulate(scenario(**changes))


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_name_alone_will_do_for_one_worker(name: str) -> None:
    run = lockstep.simulate(scenario(cluster__workers=1, strategy=name, stop={"steps": 4}))
    assert run.metrics["samples"] > 0


def test_a_relay_stands_in_the_rack_of_its_workers() -> None:
    """Two racks of four workers, a relay for each: only the second one's sums go between the racks."""
    run = lockstep.simulate(
        scenario(
            cluster__workers=8, cluster__servers={"hierarchy": {"groups": 2}}, cluster__compute=NO_COMPUTE,
            cluster__network={"bandwidth": "1 MB/s", "topology": RACKS},
            workload={"parameters": 1_000_000}, strategy="synchronous", stop={"updates": 3},
        )
    )  # fmt: skip
    assert run.scenario.cluster.server_groups == (0, 0, 1)
    carried = run.utilisation.groupby("resource", observed=True)["bytes"].sum()
    assert carried["rack 1's up-link"] == 3 * M  # a sum a round, not a push of each worker
    assert round_s(run) == pytest.approx(2 * (4 + 2) * M / B)


def test_gradients_that_nobody_wants_any_more_do_not_pile_up() -> None:
    """k-batch-sync on a network ten times slower than the workers: at most two a worker are under way.

    A version comes after the answers, 0.4 s for 4 workers of 0.1 s each, two old gradients and a new one.
    """
    run = lockstep.simulate(
        scenario(
            cluster__network={"bandwidth": "1 MB/s"}, workload={"parameters": 25_000},
            cluster__compute={"time": {"distribution": "lognormal", "mean": "10 ms", "cv": 0.5}},
            strategy={"name": "k-batch-sync", "k": 1}, stop={"updates": 2},
        )
    )  # fmt: skip
    assert run.metrics["duration_s"] <= 2 * (0.4 + 3 * 0.4)


@pytest.mark.parametrize("seed", range(20))
def test_shards_whose_relays_sum_differently_all_make_their_updates(seed: int) -> None:
    """A relay on a slow card has more pushes in a sum: its shard needs more of them for as many updates."""
    run = lockstep.simulate(
        scenario(
            cluster__workers=7, cluster__servers={"count": 2, "hierarchy": {"groups": 1}},
            cluster__network={
                "bandwidth": "1 MB/s", "latency": "1 ms", "cards": [{"hosts": [7], "bandwidth": "20 kB/s"}]
            },
            cluster__compute={"time": {"distribution": "exponential", "mean": "10 ms"}},
            strategy="downpour", stop={"updates": 5}, seed=seed,
        )
    )  # fmt: skip
    assert run.metrics["updates"] == 5
