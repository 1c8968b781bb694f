"""Max-min fairness, and what the network does with it over time."""

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from lockstep import scenarios
from lockstep.simulator.max_min import max_min
from lockstep.simulator.network import Network
from lockstep.simulator.topology import Topology
from lockstep.strategies.placement import Role
from lockstep.studies.verification.links import water_filling
from tests.support.delivery import messages
from tests.support.nightly import examples


@st.composite
def loads(draw: st.DrawFn) -> tuple[dict[int, list[int]], dict[int, float]]:
    links = draw(st.integers(1, 6))
    capacity = {link: draw(st.floats(0.1, 100)) for link in range(links)}
    path = st.lists(st.integers(0, links - 1), min_size=1, max_size=links, unique=True)
    return dict(enumerate(draw(st.lists(path, min_size=1, max_size=12)))), capacity


@given(loads())
def test_every_flow_has_a_full_link_on_which_none_is_faster(load) -> None:
    paths, capacity = load
    rates = {flow: rate for flow, (rate, _) in max_min(paths, capacity).items()}
    used = {link: sum(rates[f] for f, path in paths.items() if link in path) for link in capacity}
    assert all(used[link] <= capacity[link] * (1 + 1e-9) for link in capacity)
    for flow, path in paths.items():
        bottlenecks = [
            link
            for link in path
            if used[link] >= capacity[link] * (1 - 1e-9)
            and all(rates[other] <= rates[flow] * (1 + 1e-9) for other, p in paths.items() if link in p)
        ]
        assert bottlenecks


@given(loads())
def test_rates_equal_those_of_an_independent_solver(load) -> None:
    paths, capacity = load
    rates = {flow: rate for flow, (rate, _) in max_min(paths, capacity).items()}
    assert [rates[flow] for flow in paths] == pytest.approx(list(water_filling(paths, capacity)), rel=1e-6)


def deliver(hosts: list[int], sends, **network) -> tuple[list[tuple[float, int]], Network]:
    """What `messages` returns, between ranks on the given hosts, with cards of 100 B/s."""
    residents = [
        [Role("worker", rank) for rank, h in enumerate(hosts) if h == host] for host in sorted(set(hosts))
    ]
    described = scenarios.Network.model_construct(**{"bandwidth": 100.0, **network})
    overheads = {key: value for key, value in network.items() if key.endswith("overhead")}
    return messages(Topology(described, residents), hosts, sends, **overheads)


def test_flows_speed_up_when_others_leave() -> None:
    """300 and 100 bytes into one link of 100 B/s: at 50 each until 2 s, then 100: done at 2 and 4 s."""
    assert deliver([0, 1, 2], [(0, 0, 2, 300), (0, 1, 2, 100)])[0] == [(2.0, 1), (4.0, 0)]


def test_a_later_flow_takes_its_share() -> None:
    """200 bytes alone for 1 s, then half the link: 100 left at 50 B/s, done at 3 s; the other at 4 s."""
    assert deliver([0, 1, 2], [(0, 0, 2, 200), (1, 1, 2, 200)])[0] == [(3.0, 0), (4.0, 1)]


def test_a_narrow_neighbour_leaves_its_share_to_others() -> None:
    """Three flows out of host 0, two of them into host 1: its down-link and the up-link both bind."""
    arrivals, _ = deliver([0, 1, 2, 3], [(0, 0, 1, 100), (0, 3, 1, 100), (0, 0, 2, 100)])
    assert sorted(arrivals) == [(2.0, 0), (2.0, 1), (2.0, 2)]


def test_messages_between_two_nodes_keep_their_order() -> None:
    """A small message does not overtake a large one on the same connection."""
    arrivals, _ = deliver([0, 1], [(0, 0, 1, 1000), (0, 0, 1, 0), (0, 0, 1, 10)], latency=0.5)
    assert [number for _, number in arrivals] == [0, 1, 2]
    assert [time for time, _ in arrivals] == pytest.approx([10.5, 10.5, 10.6])


def test_many_empty_messages_wait_behind_a_long_one() -> None:
    arrivals, _ = deliver([0, 1], [(0, 0, 1, 1000)] + [(0, 0, 1, 0)] * 3000)
    assert [number for _, number in arrivals] == list(range(3001))


def test_nodes_of_one_host_do_not_use_the_network() -> None:
    arrivals, net = deliver([0, 0, 1], [(1, 0, 1, 1000), (1, 0, 2, 100)], latency=0.5)
    assert arrivals == [(1.0, 0), (2.5, 1)]
    assert net.bytes_arrived == net.bytes_sent == 1100


def test_unlimited_bandwidth_leaves_the_latency() -> None:
    assert deliver([0, 1], [(0, 0, 1, 10**12)], bandwidth=None, latency=0.25)[0] == [(0.25, 0)]


@pytest.mark.parametrize("senders", [1, 2, 5])
def test_a_receiver_takes_in_one_message_after_another(senders: int) -> None:
    """Fan-in of N empty messages takes N times the overhead; messages elsewhere do not wait."""
    sends = [(0, sender, 6, 0) for sender in range(senders)] + [(0, 5, 7, 0)]
    arrived, _ = deliver(list(range(8)), sends, latency=1.0, receive_overhead=0.5)
    assert sorted(arrived)[0] == (1.5, 0)
    times = {number: time for time, number in arrived}
    assert [times[n] for n in range(senders)] == pytest.approx([1 + 0.5 * (n + 1) for n in range(senders)])
    assert times[senders] == 1.5


def test_a_receiver_is_idle_between_messages_far_apart() -> None:
    sends = [(0, 0, 1, 100), (0, 2, 1, 0), (10, 0, 1, 100)]
    arrived, _ = deliver([0, 1, 2], sends, receive_overhead=2.0)
    assert arrived == [(2.0, 1), (4.0, 0), (13.0, 2)]


def test_overheads_of_both_ends_add_up() -> None:
    sends = [(0, 0, 1, 100), (0, 0, 2, 100)]
    arrived, _ = deliver([0, 1, 2], sends, latency=1.0, message_overhead=2.0, receive_overhead=4.0)
    # the second leaves a second after the first has gone
    assert arrived == [(2.0 + 1 + 1 + 4, 0), (4.0 + 1 + 1 + 4, 1)]


def test_a_transfer_knows_when_its_last_byte_left() -> None:
    environment = simpy.Environment()
    star = Topology(
        scenarios.Network.model_construct(bandwidth=100.0, latency=3.0),
        [[Role("worker", 0)], [Role("worker", 1)]],
    )
    network = Network(environment, star, [0, 1], receive_overhead=4.0)
    ends = []
    transfer = network.send(0, 1, 200, None, lambda t: ends.append((t.left_at, environment.now)))
    assert transfer.left_at == float("inf")
    environment.run()
    assert ends == [(2.0, 9.0)]


@examples(0.6)
@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.integers(0, 4), st.integers(0, 4), st.integers(0, 5000)),
        min_size=1, max_size=25,
    ).map(sorted)
)  # fmt: skip
def test_whatever_is_sent_arrives_and_not_too_early(sends) -> None:
    arrivals, net = deliver([0, 1, 2, 3, 3], sends, latency=0.1)
    assert sorted(number for _, number in arrivals) == list(range(len(sends)))
    assert net.bytes_arrived == sum(nbytes for *_, nbytes in sends)
    for time, number in arrivals:
        at, sender, to, nbytes = sends[number]
        local = net.host_of[sender] == net.host_of[to]
        assert time >= at + (0 if local else nbytes / 100 + 0.1) - 1e-9
    # no host receives faster than its link
    for host in range(4):
        into = [n for n, (_, s, t, _) in enumerate(sends) if net.host_of[t] == host != net.host_of[s]]
        if into:
            last = max(time for time, number in arrivals if number in into)
            first = min(sends[number][0] for number in into)
            assert last - first >= sum(sends[number][3] for number in into) / 100 - 1e-6
