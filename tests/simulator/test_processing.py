"""What messages take of cores: closed forms."""

from typing import Any

import pytest
import simpy
from pydantic import ValidationError

import lockstep
from lockstep import Scenario
from lockstep.scenarios.network import Processing
from lockstep.simulator.cores import Cores
from lockstep.simulator.network import Network
from lockstep.simulator.topology import topology
from tests.support.delivery import deliver
from tests.support.scenarios import scenario

WORKERS, STEPS = 8, 14  # of a ring


def ring(parameters: int = WORKERS, **network: Any) -> Scenario:
    return scenario(
        cluster__workers=WORKERS, cluster__network=network, workload={"parameters": parameters},
        strategy={"name": "all-reduce", "algorithm": "ring"}, stop={"steps": 1},
    )  # fmt: skip


def exchange_s(of: Scenario) -> float:
    return lockstep.simulate(of).metrics["duration_s"] - 0.01


@pytest.mark.parametrize("cores", [1, 1.9, 2, 3, 8, 20])
def test_overheads_of_all_take_turns_on_the_cores(cores: float) -> None:
    found = exchange_s(ring(latency="1 ms", message_overhead="2 ms", processing={"cores": cores}))
    assert found == pytest.approx(STEPS * (max(1.0, WORKERS / cores) * 2e-3 + 1e-3), rel=1e-9)


@pytest.mark.parametrize(("per_message", "per_byte"), [(2e-3, 0.0), (0.0, 5e-6), (3e-4, 1e-6), (1e-5, 1e-7)])
@pytest.mark.parametrize("cores", [1, 2, 5])
def test_a_message_is_there_when_the_network_and_both_its_ends_are_done(
    cores: int, per_message: float, per_byte: float
) -> None:
    """A step: 16 ends on c cores, beside 400 bytes at 1 MB/s and a latency of 1 ms."""
    costs = {"per_message": f"{per_message} s", "per_byte": f"{per_byte} s", "cores": cores}
    found = exchange_s(ring(100 * WORKERS, bandwidth="1 MB/s", latency="1 ms", processing=costs))
    work = per_message + 400 * per_byte
    assert found == pytest.approx(STEPS * max(400e-6 + 1e-3, work * max(1, 2 * WORKERS / cores)), rel=1e-9)


@pytest.mark.parametrize(("nbytes", "more"), [(4, 0.0), (400, 0.0), (404, 3e-3)])
def test_a_large_message_takes_more_at_each_end(nbytes: int, more: float) -> None:
    """16 ends on one core, as above."""
    costs = {"per_message": "1 ms", "per_large_message": "3 ms", "large": "400 B", "cores": 1}
    found = exchange_s(ring(nbytes // 4 * WORKERS, latency="1 ms", processing=costs))
    assert found == pytest.approx(STEPS * (1e-3 + more) * 2 * WORKERS, rel=1e-9)


def test_an_end_that_had_no_message_for_a_while_takes_longer() -> None:
    """An answer begins 1 ms after the start, a gradient takes 10 ms; the push has both ends on one core."""
    costs = {"cold": "2 ms", "cold_after": "10 ms", "cores": 1}
    found = lockstep.simulate(
        scenario(
            cluster__workers=1, cluster__network={"latency": "1 ms", "processing": costs}, stop={"steps": 1},
            strategy={"name": "asynchronous"},
        )
    ).records  # fmt: skip
    (push,) = found[(found["event"] == "message") & (found["kind"] == "push")].itertuples()
    assert push.start == pytest.approx(0.012)
    assert push.end - push.start == pytest.approx(2 * 2e-3 * 11 / (11 + 10), rel=1e-9)


def test_idle_cores_change_nothing() -> None:
    """Each end is done before the network is, and a receiver takes in one message at a time."""
    overheads = {"message_overhead": "1 ms", "receive_overhead": "1 ms"}
    network = {"bandwidth": "1 MB/s", "latency": "2 ms", **overheads}
    costs = {"per_message": "10 us", "per_byte": "100 ns", "cores": 100}
    for strategy in ({"name": "synchronous"}, {"name": "asynchronous"}, {"name": "all-reduce"}):
        plain = scenario(cluster__network=network, strategy=strategy)
        shared = scenario(cluster__network={**network, "processing": costs}, strategy=strategy)
        times = lockstep.simulate(plain).records, lockstep.simulate(shared).records
        assert len(times[0]) == len(times[1])
        columns = ["node", "event", "kind", "start", "end"]
        first, second = (table[columns].sort_values(columns[:4], ignore_index=True) for table in times)
        assert second["end"].to_numpy() == pytest.approx(first["end"].to_numpy(), rel=1e-9)


def test_messages_slow_the_gradients_of_their_host() -> None:
    """On one core: both compute for 20 ms; then a push takes 4 core-ms, and the slow one lacks 10."""
    found = lockstep.simulate(
        scenario(
            cluster__workers=2, cluster__workers_per_host=2, cluster__cores_per_host=1, stop={"steps": 1},
            cluster__stragglers=[{"worker": 1, "slowdown": 2}], strategy={"name": "synchronous"},
            cluster__network={"processing": {"per_message": "4 ms"}},
        )
    ).records  # fmt: skip
    rows = found[found["event"] == "gradient"].sort_values("node")
    assert (rows["end"] - rows["start"]).tolist() == pytest.approx([0.02, 0.034], rel=1e-9)


def test_costs_that_lack_something_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"needs cores; give cluster\.cores_per_host, or cores here"):
        ring(processing={"per_byte": "1 ns"})
    with pytest.raises(ValidationError, match="needs large: the size that such a message exceeds"):
        ring(processing={"per_large_message": "1 us", "cores": 2})


def test_bytes_are_dealt_with_as_they_come() -> None:
    """Two ends take a tenth of the core each as long as 100 kB flow: an overhead of 1 ms has the rest."""
    described = scenario(cluster__workers=4, cluster__network={"bandwidth": "1 MB/s"}).cluster
    environment, hosts = simpy.Environment(), [0, 1, 2, 3, 4]
    network = Network(environment, topology(described), hosts, message_overhead=1e-3)
    network.share(Cores(environment, [0] * 5, 1, always=True), Processing.model_construct(per_byte=1e-7))
    found = {number: at for at, number in deliver(network, [(0.0, 0, 1, 100_000), (5e-3, 2, 3, 0)])}
    assert found == pytest.approx({0: 0.101, 1: 5e-3 + 1e-3 / 0.8}, rel=1e-9)


def test_no_message_overtakes_another_on_its_connection() -> None:
    """The second has nothing to be dealt with, and is there while the first still is."""
    described = scenario(cluster__workers=2, cluster__network={"bandwidth": "1 MB/s"}).cluster
    environment = simpy.Environment()
    network = Network(environment, topology(described), [0, 1, 2])
    network.share(Cores(environment, [0] * 3, 1, always=True), Processing.model_construct(per_byte=1e-3))
    assert deliver(network, [(0.0, 0, 1, 1000), (0.0, 0, 1, 0)]) == [
        (pytest.approx(2.0), 0),
        (pytest.approx(2.0), 1),
    ]
