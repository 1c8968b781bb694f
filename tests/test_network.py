"""Max-min fairness, and what the network does with it over time."""

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.max_min import max_min
from simulator.network import Network


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


def water_filling(paths: dict[int, list[int]], capacity: dict[int, float]) -> np.ndarray:
    """An independent solver: raise all rates that can still rise by the same amount, with matrices."""
    crosses = np.array([[link in path for link in capacity] for path in paths.values()], dtype=float)
    room = np.array(list(capacity.values()))
    rates, rising = np.zeros(len(paths)), np.ones(len(paths), dtype=bool)
    while rising.any():
        load = rising @ crosses
        raise_by = np.min(np.where(load > 0, (room - rates @ crosses) / np.maximum(load, 1), np.inf))
        rates[rising] += raise_by
        full = room - rates @ crosses <= 1e-9 * room
        rising &= ~(crosses @ full > 0)
    return rates


@given(loads())
def test_rates_equal_those_of_an_independent_solver(load) -> None:
    paths, capacity = load
    rates = {flow: rate for flow, (rate, _) in max_min(paths, capacity).items()}
    assert [rates[flow] for flow in paths] == pytest.approx(list(water_filling(paths, capacity)), rel=1e-6)


def deliver(hosts: list[int], sends, **network) -> tuple[list[tuple[float, int]], Network]:
    """(arrival, number) of messages sent as (time, sender, receiver, bytes), in the order they arrive."""
    environment = simpy.Environment()
    net = Network(environment, hosts, **{"bandwidth": 100.0, "latency": 0.0, "overhead": 0.0, **network})
    arrivals: list[tuple[float, int]] = []

    def run():
        for number, (at, sender, to, nbytes) in enumerate(sends):
            yield environment.timeout(max(0.0, at - environment.now))
            net.send(sender, to, nbytes, number, lambda t: arrivals.append((environment.now, t.message)))

    environment.process(run())
    environment.run()
    return arrivals, net


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


@settings(max_examples=60)
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
