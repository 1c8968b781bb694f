"""Cards that send trains of frames and owe their tokens: against frames that wait for tokens one by one."""

from math import ceil

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep.simulator.bucket import Bucket
from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Link
from lockstep.strategies.resource import ResourceId
from tests.support.delivery import arrivals
from tests.support.scenarios import scenario
from tests.support.trains import carried_in_trains

RATE, TOKENS, TRAIN = 100.0, 20.0, 60.0
LINE = 1e7  # takes no time, within ABOUT
ABOUT = 1e-4


def in_trains(sends: list[tuple[float, float]]) -> list[float]:
    """When the last train of each message (instant, bytes) has left, each after the one before it."""
    free, tokens, since, ends = 0.0, TOKENS, 0.0, []
    for at, nbytes in sends:
        now, left = max(at, free), nbytes
        while left > 0:
            tokens = min(TOKENS, tokens + RATE * (now - since))
            since = now
            if tokens < 0:  # paid by then
                now, tokens = now - tokens / RATE, 0.0
                since = now
            train = min(left, TRAIN)
            left, tokens = left - train, tokens - train
        free = now
        ends.append(now)
    return ends


def as_fluid(sends: list[tuple[float, float]]) -> list[float]:
    environment = simpy.Environment()
    flows, ends = Flows(environment), []
    link = Link(ResourceId("other", "link", 0), RATE, Bucket(TOKENS, LINE, TRAIN))

    def run():
        for at, nbytes in sends:
            yield environment.timeout(max(0.0, at - environment.now))
            done = environment.event()
            flows.start((link,), nbytes, done.succeed)
            yield done
            ends.append(environment.now)

    environment.process(run())
    environment.run()
    return ends


@pytest.mark.parametrize("nbytes", [1, 20, 59, 60, 61, 100, 120, 121, 1000])
def test_a_message_alone_waits_for_all_but_its_last_train(nbytes: int) -> None:
    before = TRAIN * (ceil(nbytes / TRAIN) - 1)
    assert as_fluid([(3.0, nbytes)]) == pytest.approx([3 + max(0.0, before - TOKENS) / RATE], abs=ABOUT)
    assert in_trains([(3.0, nbytes)]) == pytest.approx(as_fluid([(3.0, nbytes)]), abs=ABOUT)


@given(st.integers(1, 400), st.lists(st.floats(0, 8), min_size=1, max_size=8))
def test_messages_of_one_size_take_as_long_as_in_trains(nbytes: int, pauses: list[float]) -> None:
    sends, now = [], 0.0
    for pause in pauses:
        now += pause
        sends.append((now, float(nbytes)))
    assert as_fluid(sends) == pytest.approx(in_trains(sends), abs=ABOUT)


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 400)), min_size=1, max_size=8))
def test_messages_of_several_sizes_are_at_most_a_train_early(turns: list[tuple[float, int]]) -> None:
    """What a message owes is forgiven the next one if that could owe less, and counts again later."""
    sends, now = [], 0.0
    for pause, nbytes in turns:
        now += pause
        sends.append((now, float(nbytes)))
    for fluid, exact in zip(as_fluid(sends), in_trains(sends), strict=True):
        assert exact - TRAIN / RATE - ABOUT <= fluid <= exact + ABOUT


@pytest.mark.parametrize("queue", ["0 B", "1 kB"])
def test_so_it_is_over_two_cards(queue: str) -> None:
    burst = {"size": "20 B", "line_rate": "1 GB/s", "train": "60 B"}
    found = arrivals([(0.0, 0, 1, 100), (4.0, 0, 1, 130)], queue=queue, burst=burst)
    assert found == pytest.approx([0.4, 5.0], abs=1e-5)


def test_on_average_half_a_train_is_early() -> None:
    """What a bucket without trains has to be to say the same of messages of all sizes."""
    early = [nbytes / RATE - as_fluid([(0.0, nbytes)])[0] for nbytes in range(601, 1201)]
    assert sum(early) / len(early) * RATE == pytest.approx(TOKENS + TRAIN / 2, abs=1)


TESTBED = {
    "bandwidth": "50 Mbit/s", "goodput": 0.956, "latency": "300 us", "jitter": {"deviation": "80 us"},
    "message_overhead": "120 us", "queue": "64 kB",
    "burst": {"size": "1514 B", "line_rate": "10 Gbit/s", "train": "5792 B", "first": "8128 B"},
}  # fmt: skip


@pytest.mark.parametrize("senders", [2, 3, 8])
@pytest.mark.parametrize("queue", ["0 B", "64 kB"])
def test_the_first_of_some_messages_keeps_no_head_start(
    senders: int, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cards send in turns: whoever finds the link idle is no train ahead of the others for that.

    The senders come within two trains' time, in any order; their messages have as many bytes.
    """
    of = scenario(cluster__network={**TESTBED, "queue": queue, "bandwidth": "1 MB/s"}).cluster.network
    rng, early, network = np.random.default_rng(senders), [], of.model_dump(exclude_unset=True)
    train = of.burst.train / (of.bandwidth * of.goodput)
    for _ in range(60):
        at = np.sort(rng.uniform(0, 2 * train, senders))
        nbytes = int(rng.integers(100_000, 140_000))
        sends = [(a, int(who), 8, nbytes) for a, who in zip(at, rng.permutation(senders), strict=True)]
        fluid = arrivals(sends, **network)
        with monkeypatch.context() as patched:
            carried_in_trains(patched, of)
            early.append(arrivals(sends, **network)[0] - fluid[0])
    assert abs(np.mean(early)) < 4 * np.std(early) / np.sqrt(len(early)) + 0.05 * train


@pytest.mark.parametrize(("count", "nbytes"), [(200, 1_448), (50, 5_792), (25, 11_584), (8, 40_000)])
@pytest.mark.parametrize("queue", ["0 B", "64 kB"])
def test_a_series_of_small_messages_gets_no_more_than_a_large_one_beside_it(
    count: int, nbytes: int, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They follow one another without a pause: none takes a place anew. (A train is 1% here.)"""
    sends = [(0.0, 0, 8, 1_000_000), *[(0.0, 1, 8, nbytes)] * count]
    of = scenario(cluster__network={**TESTBED, "queue": queue}).cluster.network
    network = of.model_dump(exclude_unset=True)
    fluid = arrivals(sends, **network)[-1]
    carried_in_trains(monkeypatch, of)
    assert fluid == pytest.approx(arrivals(sends, **network)[-1], rel=0.015)


def test_background_has_half_of_a_link_beside_a_series_of_messages() -> None:
    environment = simpy.Environment()
    flows, ends = Flows(environment), []
    link = Link(ResourceId("other", "link", 0), RATE, Bucket(TOKENS, LINE, TRAIN))
    flows.start((link,), float("inf"), lambda: None)

    def run():
        for _ in range(100):
            done = environment.event()
            flows.start((link,), TRAIN, done.succeed)
            yield done
            ends.append(environment.now)

    environment.process(run())
    environment.run(until=1000)
    assert ends[-1] == pytest.approx(100 * TRAIN / (RATE / 2), rel=0.01)


@pytest.mark.parametrize("after", [-1e-9, 0.0, 1e-9])
def test_who_is_done_gives_nothing_to_who_comes(after: float) -> None:
    """The order of what happens at one instant does not matter."""
    environment = simpy.Environment()
    flows, ends = Flows(environment), []
    link = Link(ResourceId("other", "link", 0), RATE, Bucket(TOKENS, LINE, TRAIN))
    alone = (10 * TRAIN - TRAIN - TOKENS) / RATE

    def run():
        flows.start((link,), 10 * TRAIN, lambda: ends.append(environment.now))
        yield environment.timeout(alone + after)
        flows.start((link,), 10 * TRAIN, lambda: None)

    environment.process(run())
    environment.run()
    assert ends == pytest.approx([alone], abs=1e-3)


@pytest.mark.parametrize("nbytes", [4_000, 20_000])
def test_rings_of_twelve_get_on_as_over_cards_that_send_trains(
    nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each host sends and receives at once. Turns of trains change 1.5% at most."""
    of = scenario(
        cluster__workers=12, cluster__network=TESTBED, stop={"steps": 6},
        strategy={"name": "all-reduce", "algorithm": "ring"},
        cluster__compute={"time": {"distribution": "gamma", "mean": "20 ms", "cv": 0.2}},
        workload={"parameters": nbytes // 4 * 12},
    )  # fmt: skip
    fluid = lockstep.simulate(of).metrics["throughput"]
    carried_in_trains(monkeypatch, of.cluster.network)
    assert fluid == pytest.approx(lockstep.simulate(of).metrics["throughput"], rel=0.015)


def test_two_asynchronous_workers_stay_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As over cards that send trains (419), and as on the testbed: 418 samples/s (docs/limits.md)."""
    of = scenario(
        cluster__workers=2, cluster__network=TESTBED, strategy={"name": "asynchronous"}, stop={"steps": 60},
        cluster__compute={"time": {"distribution": "constant", "value": "20 ms"}},
        workload={"parameters": 50_000}, cluster__apply_overhead="145 us",
    )  # fmt: skip
    fluid = lockstep.simulate(of).metrics["throughput"]
    carried_in_trains(monkeypatch, of.cluster.network)
    assert fluid == pytest.approx(lockstep.simulate(of).metrics["throughput"], rel=0.01)


@given(
    st.floats(0, 1),
    st.lists(st.tuples(st.sampled_from([0.0, 0.01]), st.sampled_from([2, 100])), min_size=3, max_size=5),
)
def test_a_small_message_among_large_ones_comes_to_its_end(
    begin: float, sends: list[tuple[float, int]]
) -> None:
    """What is due changes while entries of before are still in the heap."""
    environment = simpy.Environment(begin)
    flows, ends = Flows(environment), []
    link = Link(ResourceId("other", "link", 0), RATE, Bucket(TOKENS, LINE, TRAIN))

    def run():
        for pause, nbytes in sends:
            flows.start((link,), nbytes, lambda: ends.append(environment.now))
            yield environment.timeout(pause)

    environment.process(run())
    for _ in range(200):
        if environment._queue:
            environment.step()
    assert len(ends) == len(sends)
    total = sum(nbytes for _, nbytes in sends)
    assert max(ends) <= begin + max(sum(pause for pause, _ in sends), total / RATE) + 1e-9
