"""TCP's windows, and cards that send in order: against closed forms, and against a queue of one server.

Cards have 100 B/s; a send is (time, sender, receiver, bytes).
"""

import numpy as np
import pytest

import lockstep
from tests.support.delivery import Sends, arrivals
from tests.support.scenarios import scenario

OPEN = {"window": "1 MB", "initial_window": "1 MB"}
SLOW = {"window": "1 MB", "initial_window": "100 B", "idle": "50 s"}


def test_a_card_sends_first_what_it_was_given_first() -> None:
    sends: Sends = [(0, 0, 1, 500), (0, 0, 2, 500), (1, 0, 3, 100)]
    assert arrivals(sends, tcp=OPEN) == pytest.approx([5, 10, 11])
    assert arrivals(sends) == pytest.approx([11, 11, 4])  # the fluid: the last has a third of the card


def test_a_message_of_no_bytes_waits_as_well() -> None:
    assert arrivals([(0, 0, 1, 500), (0, 0, 2, 0)], tcp=OPEN) == pytest.approx([5, 5])


def test_others_wait_for_no_more_than_a_window() -> None:
    # 100 B of the first are handed over, then the second, and the rest as it is acknowledged.
    tcp = {"window": "100 B", "initial_window": "100 B"}
    assert arrivals([(0, 0, 1, 1000), (0, 0, 2, 100)], tcp=tcp) == pytest.approx([11, 2])


def test_random_messages_leave_a_card_as_a_queue_with_one_server() -> None:
    rng = np.random.default_rng(5)
    sends = [
        (t, 0, 1 + k % 9, int(rng.integers(1, 400))) for k, t in enumerate(np.sort(rng.uniform(0, 99, 60)))
    ]
    free, expected = 0.0, []
    for time, _, _, nbytes in sends:
        free = max(free, time) + nbytes / 100
        expected.append(free)
    assert arrivals(sends, tcp=OPEN) == pytest.approx(expected)


def test_a_slow_receiver_does_not_hold_the_card() -> None:
    # What its card of 20 B/s has not taken waits in the switch.
    slow = {"cards": [{"hosts": [1], "bandwidth": "20 B/s"}]}
    assert arrivals([(0, 0, 1, 100), (0, 0, 2, 100)], tcp=OPEN, **slow) == pytest.approx([5, 2])


def test_a_window_grows_by_what_is_acknowledged() -> None:
    # 100, 200 and 400 B, each a round trip after the last has left: 7 s of sending, and five latencies.
    assert arrivals([(0, 0, 1, 700)], tcp=SLOW, latency="10 s") == pytest.approx([7 + 5 * 10])


def test_after_a_pause_it_is_small_again() -> None:
    # The first is acknowledged at 67 s: a window of 800 B, halved each 70 s from 43 s on, until it has 100.
    for pause, took in ((80, 2 + 10), (200, 2 + 10), (400, 1 + 20 + 1 + 10)):
        sends: Sends = [(0, 0, 1, 700), (pause, 0, 1, 200)]
        assert arrivals(sends, tcp=SLOW, latency="10 s") == pytest.approx([57, pause + took])


def test_over_a_long_latency_a_window_goes_each_round_trip() -> None:
    tcp = {"window": "100 B", "initial_window": "100 B"}
    assert arrivals([(0, 0, 1, 500)], tcp=tcp, latency="10 s") == pytest.approx([4 * 21 + 1 + 10])


def test_messages_of_a_connection_keep_their_order() -> None:
    # The last bytes of the first, and then the second, wait in the switch beside what another sends there.
    sends: Sends = [(0, 0, 1, 100_000), (0, 0, 1, 1), (0, 2, 1, 100_000)]
    first, second, _ = arrivals(sends, tcp=OPEN)
    assert second >= first


# ms on AWS, Gloo: delay (s) and bandwidth that netem sets, 64 and 128 MiB. Pauses of a second between them.
# Source: github.com/BinhangYuan/tc_cluster_setting, results/p2p.md, pytorch_send_recv_test.py.
MESSAGES = [
    (1e-3, None, 110, 222), (5e-3, None, 274, 512), (10e-3, None, 532, 972),
    (0.0, "5 Gbit/s", 110, 218), (0.0, "2 Gbit/s", 271, 542), (0.0, "1 Gbit/s", 541, 1082),
    (1e-3, "5 Gbit/s", 115, 224), (5e-3, "2 Gbit/s", 311, 581), (10e-3, "1 Gbit/s", 620, 1160),
]  # fmt: skip


def test_messages_over_delays_take_as_long_as_was_measured_on_aws() -> None:
    """Frames of 9,001 B. The goodput is that of 128 MiB at 1 Gbit/s, without a limit 216 ms without delay."""
    errors = []
    for delay, limit, *measured in MESSAGES:
        for mib, ms in zip((64, 128), measured, strict=True):
            size, latency = mib * 2**20, delay + 50e-6
            goodput = 0.992 if limit else 1.0
            network = {"bandwidth": limit or "4.97 Gbit/s", "goodput": goodput, "latency": f"{latency} s"}
            tcp = {"initial_window": "89490 B"}
            (first,) = arrivals([(0, 0, 1, size)], tcp=tcp, **network)
            begins = first + latency + 1
            second = arrivals([(0, 0, 1, size), (begins, 0, 1, size)], tcp=tcp, **network)[1] - begins
            errors.append(abs(1e3 * second / ms - 1))
    assert np.median(errors) < 0.015
    assert max(errors) < 0.085


def trained(tcp: dict[str, str] | None, **strategy: object) -> float:
    """Seconds of three steps of two workers with 4 kB over cards of 1 kB/s and a latency of 1 s."""
    network = {"bandwidth": "1 kB/s", "latency": "1 s", "tcp": tcp}
    job = scenario(
        cluster__workers=2, cluster__network=network, workload={"parameters": 1000},
        cluster__compute={"time": {"distribution": "constant", "value": "30 s"}},
        strategy=strategy, stop={"steps": 3},
    )  # fmt: skip
    return lockstep.simulate(job).metrics["duration_s"]


def test_a_ring_whose_windows_are_open_takes_what_it_takes_in_the_fluid() -> None:
    expected = 3 * (30 + 2 * (1 + 2))
    for tcp in (None, OPEN):
        assert trained(tcp, name="all-reduce", algorithm="ring") == pytest.approx(expected)


def test_each_step_of_a_ring_that_comes_after_a_pause_starts_slowly() -> None:
    # Chunks of 2 kB, of which 1 kB goes at once: a round trip more. The second chunk's window is open.
    tcp = {"window": "1 MB", "initial_window": "1 kB", "idle": "3 s"}
    expected = 3 * (30 + 2 * (1 + 2) + 2)
    assert trained(tcp, name="all-reduce", algorithm="ring") == pytest.approx(expected)
