"""Switches' queues: against closed forms, and against a network of packets.

Cards have 100 B/s; a send is (time, sender, receiver, bytes).
"""

import numpy as np
import pytest
import simpy

import lockstep
from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Link
from lockstep.simulator.queues import Queues
from lockstep.strategies.resource import ResourceId
from tests.support.delivery import Sends, arrivals
from tests.support.packets import Packets
from tests.support.scenarios import scenario

# Two send to 1, whose card is the bottleneck; later the first of them sends to 3 too.
BEHIND: Sends = [(0.0, 0, 1, 1000), (0.0, 2, 1, 1000), (5.0, 0, 3, 1000)]


def test_without_queues_a_card_sends_no_faster_than_the_bottleneck_takes_it() -> None:
    # The last has half of the card until 20 s, then all of it.
    assert arrivals(BEHIND) == pytest.approx([20, 20, 22.5])


def test_what_waits_in_a_switch_has_left_the_card() -> None:
    # 500 B to 1 have left by 5 s, half of them queue; from 15 s on, when all have, the last has the card.
    assert arrivals(BEHIND, queue="1 kB") == pytest.approx([20, 20, 20])


def test_a_full_queue_holds_the_sender_back() -> None:
    # 50 B/s more come than go, until 100 B wait at 2 s. From 5 s on the card gives each 50 B/s; the first has
    # 650 B to send, which it has done by 18 s, and the last goes on alone, with 350 B left.
    assert arrivals(BEHIND, queue="100 B") == pytest.approx([20, 20, 21.5])


def test_a_queue_runs_dry_and_the_card_is_the_bottleneck_again() -> None:
    # By 2 s 100 B from 0 wait at 1's card, and 2 has done. 0 then shares its card with what it sends to 3:
    # 50 B/s come and 100 go until 4 s, when 100 B have come more; then 1 gets what 0 sends, to the end.
    sends = [(0.0, 0, 1, 500), (0.0, 2, 1, 100), (2.0, 0, 3, 1000)]
    assert arrivals(sends, queue="1 kB") == pytest.approx([8, 2, 15])


def test_a_message_alone_takes_what_it_takes_without_queues() -> None:
    slow = {"cards": [{"hosts": [1], "bandwidth": "20 B/s"}]}
    for queue in ("10 B", "1 kB"):
        assert arrivals([(0, 0, 1, 100)], queue=queue, **slow) == pytest.approx([5])


def test_queues_are_before_links_between_racks_too() -> None:
    # Cards of 100 B/s, a rack's up-link of 50. The first has left its card after 2 s, the second has it then.
    racks = {"topology": {"kind": "racks", "hosts_per_rack": 4, "uplink": "50 B/s"}}
    sends = [(0.0, 0, 4, 200), (2.0, 0, 1, 200)]
    assert arrivals(sends, queue="1 kB", **racks) == pytest.approx([4, 4])
    assert arrivals(sends, **racks) == pytest.approx([4, 5])


@pytest.mark.parametrize("window", [20, 100, 400, 1e9])
@pytest.mark.parametrize("together", [True, False])
def test_messages_take_as_long_as_in_packets(window: float, together: bool) -> None:
    rng, packet = np.random.default_rng(3), 0.5
    for _ in range(6):
        pairs = {tuple(rng.choice(8, 2, replace=False).tolist()) for _ in range(rng.integers(2, 25))}
        sends = sorted(
            (0.0 if together else float(rng.integers(6)), sender, to, int(rng.choice([100, 300, 500])))
            for sender, to in pairs
        )
        expected = Packets(100.0, window, packet).deliver(sends)
        assert arrivals(sends, queue=f"{window} B") == pytest.approx(expected, abs=10 * packet / 100)


def test_links_carry_what_is_sent_and_no_more() -> None:
    environment = simpy.Environment()
    flows = Flows(environment)
    first, other, last = (Link(ResourceId("other", "link", n), 100.0) for n in range(3))
    queues, told = Queues(flows, 100.0), list[tuple[str, float]]()

    def heard(what: str):
        return lambda: told.append((what, environment.now))

    queues.start((first, last), 600.0, heard("sent"), heard("there"))
    queues.start((other, last), 600.0, heard("sent"), heard("there"))
    environment.run()
    assert [flows.carried(link) for link in (first, other, last)] == pytest.approx([600, 600, 1200])
    # 100 B of each wait from 2 s on, to the end
    assert [what for what, _ in told] == ["sent", "sent", "there", "there"]
    assert [at for _, at in told] == pytest.approx([10, 10, 12, 12])
    assert not first.listeners
    assert not last.listeners


def test_a_run_has_queues() -> None:
    described = {
        "cluster__servers": 2, "cluster__network": {"bandwidth": "1 MB/s"}, "stop": {"updates": 40},
        "cluster__compute__time": {"distribution": "gamma", "mean": "20 ms", "cv": 0.5},
        "workload": {"parameters": 10_000},
    }  # fmt: skip
    without = lockstep.simulate(scenario(**described))
    network = {"bandwidth": "1 MB/s", "queue": "64 KiB"}
    queued = lockstep.simulate(scenario(**{**described, "cluster__network": network}))
    assert queued.span != without.span
    sent = queued.records[queued.records.event == "message"]
    assert (sent.left <= sent.end).all()
    again = lockstep.simulate(scenario(**{**described, "cluster__network": network}))
    assert again.to_json() == queued.to_json()


def test_a_burst_that_is_too_fast_for_the_clock_ends() -> None:
    """At 100 GB/s a byte takes less than the clock can tell: it was planned again in the same instant."""
    network = {
        "bandwidth": "5600 B/s", "burst": {"size": "28 B", "line_rate": "100 GB/s"}, "queue": "10 B",
    }  # fmt: skip
    slower = {**network, "burst": {"size": "28 B", "line_rate": "1 GB/s"}}
    ends = [
        lockstep.simulate(
            scenario(cluster__workers=2, cluster__network=each, workload={"parameters": 7}, stop={"steps": 3})
        ).metrics["duration_s"]
        for each in (network, slower)
    ]
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)
