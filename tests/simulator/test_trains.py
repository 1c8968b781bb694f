"""Cards that send trains of frames and owe their tokens: against frames that wait for tokens one by one."""

from math import ceil

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


@pytest.mark.parametrize(
    ("strategy", "nbytes", "most"),
    [
        ({"name": "all-reduce", "algorithm": "ring"}, 4_000, 0.015),  # each host sends and receives at once
        ({"name": "all-reduce", "algorithm": "ring"}, 20_000, 0.015),
        # everyone to one server, whose links are full
        pytest.param({"name": "asynchronous"}, 40_000, 0.03, marks=pytest.mark.slow),
    ],
)
def test_twelve_workers_get_on_as_over_cards_that_send_trains(
    strategy: dict[str, str], nbytes: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of a ring has so many bytes, or all parameters do. `most`: what turns of trains change."""
    ring = strategy["name"] == "all-reduce"
    of = scenario(
        cluster__workers=12, cluster__network=TESTBED, strategy=strategy, stop={"steps": 6 if ring else 40},
        cluster__compute={"time": {"distribution": "gamma", "mean": "20 ms", "cv": 0.2}},
        workload={"parameters": nbytes // 4 * (12 if ring else 1)},
    )  # fmt: skip
    fluid = lockstep.simulate(of).metrics["throughput"]
    carried_in_trains(monkeypatch, of.cluster.network)
    assert fluid == pytest.approx(lockstep.simulate(of).metrics["throughput"], rel=most)
