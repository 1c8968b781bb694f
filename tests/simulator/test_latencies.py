"""Latencies that vary: their distribution, their order, and what waiting for the slowest of several costs."""

from functools import partial
from itertools import islice

import numpy as np
import pytest
import simpy

import lockstep
from lockstep.scenarios.network import Jitter, Network
from lockstep.simulator.latencies import latencies
from lockstep.simulator.network import Network as Simulated
from lockstep.simulator.topology import topology
from tests.support.delivery import deliver
from tests.support.scenarios import scenario

MEAN, DEVIATION = 4e-4, 1.5e-4
JITTER = Jitter.model_construct(deviation=DEVIATION, draw=0)
MANY = 20_000


def draws(jitter: Jitter = JITTER, seed: int = 1, sender: int = 0, to: int = 1) -> np.ndarray:
    return np.array(list(islice(latencies(jitter, seed, (), MEAN, sender, to), MANY)))


def test_they_have_the_mean_and_the_deviation() -> None:
    found = draws()
    assert found.mean() == pytest.approx(MEAN, abs=4 * DEVIATION / MANY**0.5)
    assert found.std() == pytest.approx(DEVIATION, rel=0.05)  # of 20,000 exponential draws: 1% is a deviation
    assert found.min() >= MEAN - DEVIATION


def test_none_is_negative() -> None:
    found = draws(Jitter.model_construct(deviation=10 * MEAN, draw=0))
    assert found.min() >= 0
    assert found.mean() == pytest.approx(MEAN, rel=0.03)


def test_each_connection_seed_and_draw_has_its_own() -> None:
    other = Jitter.model_construct(deviation=DEVIATION, draw=1)
    found = [draws(), draws(other), draws(seed=2), draws(sender=1, to=0)]
    assert len({tuple(each[:5]) for each in found}) == 4
    assert (draws() == found[0]).all()


def network(workers: int, **cluster: object) -> Simulated:
    described = scenario(cluster__workers=workers, cluster__network={"latency": "400 us"}, **cluster).cluster
    drawn = partial(latencies, JITTER, 1, ())
    per_host = described.workers_per_host
    hosts = [worker // per_host for worker in range(workers)]
    return Simulated(simpy.Environment(), topology(described), hosts, drawn=drawn)


def test_no_message_overtakes_another() -> None:
    sends = [(number * 1e-5, 0, 1, 0) for number in range(500)]
    assert [number for _, number in deliver(network(2), sends)] == list(range(500))


def test_inside_a_host_latencies_do_not_vary() -> None:
    inside = network(2, cluster__workers_per_host=2, cluster__network__intra_host={"latency": "1 ms"})
    assert [at for at, _ in deliver(inside, [(0.0, 0, 1, 0)])] == [1e-3]


def test_the_slowest_of_several_takes_what_theory_says() -> None:
    """The greatest of p shifted exponentials is mean - d + d·H(p) on average."""
    p, rounds = 8, 2000
    sends = [(float(turn), rank, (rank + 1) % p, 0) for turn in range(rounds) for rank in range(p)]
    ends: dict[int, float] = {}
    for at, number in deliver(network(p), sends):
        turn = number // p
        ends[turn] = max(ends.get(turn, 0.0), at - turn)
    harmonic = sum(1 / k for k in range(1, p + 1))
    expected = MEAN - DEVIATION + DEVIATION * harmonic
    deviation = DEVIATION * sum(1 / k**2 for k in range(1, p + 1)) ** 0.5 / rounds**0.5
    assert np.mean(list(ends.values())) == pytest.approx(expected, abs=4 * deviation)


def test_a_ring_goes_on_with_what_its_draws_say() -> None:
    workers, steps, compute_s = 8, 5, 0.01
    network = Network.model_construct(latency=MEAN, jitter=JITTER)
    some = scenario(
        cluster__workers=workers,
        cluster__compute={"time": {"distribution": "constant", "value": f"{compute_s} s"}},
        strategy={"name": "all-reduce", "algorithm": "ring"},
        stop={"steps": steps},
        seed=1,
    )
    there = some.model_copy(update={"cluster": some.cluster.model_copy(update={"network": network})})
    draws = [latencies(JITTER, 1, (), MEAN, rank, (rank + 1) % workers) for rank in range(workers)]
    now, last = np.zeros(workers), np.zeros(workers)
    for _ in range(steps):
        now += compute_s
        for _ in range(2 * (workers - 1)):
            last = np.maximum(last, now + [next(each) for each in draws])
            now = np.maximum(now, np.roll(last, 1))
    assert lockstep.simulate(there).metrics["duration_s"] == pytest.approx(now.max(), rel=1e-9)
