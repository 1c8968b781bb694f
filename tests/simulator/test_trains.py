"""Cards that send trains of frames and owe their tokens: against frames that wait for tokens one by one."""

from math import ceil

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from lockstep.simulator.bucket import Bucket
from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Link
from lockstep.strategies.resource import ResourceId
from tests.support.delivery import arrivals

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
