"""Every topology against its closed forms, and what is true of all paths."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.simulator.topology import Topology, topology
from tests.support.delivery import arrivals
from tests.support.nightly import examples
from tests.support.scenarios import scenario

RACKS = {"kind": "racks", "hosts_per_rack": 4}
TREE = {"kind": "fat-tree", "hosts_per_leaf": 4, "spines": 2, "link": "100 B/s", "latency": "2 s"}
SITES = {
    "kind": "sites", "hosts": [2, 2, 4], "bandwidth": "10 B/s", "latency": "3 s",
    "pairs": [{"between": [2, 0], "bandwidth": "5 B/s", "latency": "8 s"}],
}  # fmt: skip
S0, S1 = 8, 9  # the ranks of the two servers


def built(cluster: dict[str, Any] | None = None, **network: Any) -> Topology:
    keys = {f"cluster__{key}": value for key, value in (cluster or {}).items()}
    network = {"bandwidth": "100 B/s", **network}
    keys = {"cluster__workers": 8, "cluster__servers": 2, **keys, "cluster__network": network}
    return topology(scenario(**keys).cluster)


def names(links: Topology) -> list[str]:
    return [link.id.name for link in links.links]


def path(links: Topology, source: int, target: int) -> list[str]:
    return [link.id.name for link in links.path(source, target)[0]]


def test_a_star_has_two_links_for_each_host() -> None:
    links = built({"workers": 2})
    assert names(links) == [
        f"{who}'s {way}-link"
        for who in ("worker 0", "worker 1", "server 0", "server 1")
        for way in ("up", "down")
    ]
    assert path(links, 1, 3) == ["worker 1's up-link", "server 1's down-link"]
    assert links.path(1, 1) == ((), 0.0)


def test_a_host_with_several_processes_is_called_by_its_number() -> None:
    links = built({"workers": 5, "workers_per_host": 2, "servers": {"count": 1}}, duplex="half")
    assert names(links) == ["host 0's link", "host 1's link", "worker 4's link", "server 0's link"]
    links = built({"workers": 2, "servers": {"count": 1, "colocated": True}})
    assert names(links)[:3] == ["host 0's up-link", "host 0's down-link", "worker 1's up-link"]


def test_no_bandwidth_no_link() -> None:
    links = built(bandwidth=None, latency="1 s", cards=[{"hosts": [3], "bandwidth": "10 B/s"}])
    assert names(links) == ["worker 3's up-link", "worker 3's down-link"]
    assert links.path(0, 1) == ((), 1.0)
    assert path(links, 0, 3) == ["worker 3's down-link"]


@pytest.mark.parametrize("oversubscription", [1, 2, 4, 8])
def test_flows_that_leave_a_rack_take_its_oversubscription_times_as_long(oversubscription: int) -> None:
    shape = {**RACKS, "oversubscription": oversubscription}
    assert arrivals([(0, w, 4 + w, 1000) for w in range(4)], topology=shape) == pytest.approx(
        [10 * oversubscription] * 4
    )
    inside = [(0, 0, 1, 1000), (0, 1, 2, 1000), (0, 2, 3, 1000)]
    assert arrivals(inside, topology=shape) == pytest.approx([10] * 3)


def test_a_rack_s_latency_is_for_messages_that_leave_it() -> None:
    shape = {**RACKS, "uplink": "50 B/s", "latency": "5 s"}
    times = arrivals([(0, 0, 1, 1000), (0, 2, 7, 1000)], topology=shape, latency="1 s")
    assert times == pytest.approx([10 + 1, 20 + 1 + 5])
    assert path(built(topology=shape), 2, 7) == [
        "worker 2's up-link", "rack 0's up-link", "rack 1's down-link", "worker 7's down-link",
    ]  # fmt: skip


def test_servers_stand_in_the_groups_in_turn() -> None:
    links = built(topology={**RACKS, "uplink": "50 B/s"})
    assert "rack 0's up-link" not in path(links, 0, S0)
    assert path(links, 0, S1)[1:3] == ["rack 0's up-link", "rack 1's down-link"]


def test_servers_and_relays_stand_where_they_are_placed() -> None:
    """A server in rack 1; of its two relays one in each rack."""
    servers = {"count": 1, "hierarchy": {"groups": 2}, "places": [1, 0, 1]}
    links = built({"servers": servers}, topology={**RACKS, "uplink": "50 B/s"}, server_bandwidth="7 B/s")
    assert path(links, 0, 8)[1:3] == ["rack 0's up-link", "rack 1's down-link"]
    assert path(links, 8, 10) == ["server 0's up-link", "relay 1's down-link"]
    assert path(links, 9, 0) == ["relay 0's up-link", "worker 0's down-link"]
    assert [link.sustained for link in links.path(8, 10)[0]] == [7, 7]


def test_two_flows_of_a_fat_tree_share_the_spine_they_have_in_common() -> None:
    """Hosts 4 and 6 are reached over spine 0, host 5 over spine 1."""
    sends = [(0, 0, 4, 1000), (0, 1, 6, 1000), (0, 2, 5, 1000), (0, 3, 0, 1000)]
    times = arrivals(sends, topology=TREE, latency="1 s")
    assert times == pytest.approx([20 + 3, 20 + 3, 10 + 3, 10 + 1])
    assert path(built(topology=TREE), 2, 5) == [
        "worker 2's up-link", "leaf 0's link up to spine 1", "leaf 1's link down from spine 1",
        "worker 5's down-link",
    ]  # fmt: skip


def test_a_pair_of_sites_has_its_own_bandwidth_and_latency() -> None:
    sends = [(0, 0, 1, 100), (0, 0, 2, 100), (0, 2, 4, 100), (0, 1, 5, 100), (0, 4, 0, 100)]
    times = arrivals(sends, topology=SITES, latency="1 s")
    # the first one has what the second, which the WAN holds back, leaves of its card
    assert times == pytest.approx([100 / 90 + 1, 10 + 4, 10 + 4, 20 + 9, 20 + 9])
    assert path(built(topology=SITES), 4, 0)[1] == "the link from site 2 to site 0"
    assert [name for name in names(built(topology=SITES)) if "site" in name] == [
        f"the link from site {a} to site {b}" for a, b in product(range(3), repeat=2) if a != b
    ]


def test_half_duplex_halves_a_push_and_a_pull_at_once() -> None:
    both = [(0, 0, S0, 1000), (0, S0, 0, 1000)]
    assert arrivals(both) == pytest.approx([10, 10])
    assert arrivals(both, duplex="half") == pytest.approx([20, 20])


def test_cards_of_their_own() -> None:
    """Four pushes into a server with a card of four times the bandwidth; one of them from a slow card."""
    pushes = [(0, w, S0, 1000) for w in range(4)]
    assert arrivals(pushes) == pytest.approx([40] * 4)
    assert arrivals(pushes, server_bandwidth="400 B/s") == pytest.approx([10] * 4)
    slow = [{"hosts": [3], "bandwidth": "10 B/s"}]
    times = arrivals(pushes, server_bandwidth="400 B/s", cards=slow)
    assert times == pytest.approx([10, 10, 10, 100])
    one_slow_server = [{"hosts": [9], "bandwidth": "10 B/s"}]
    times = arrivals([(0, 0, S0, 1000), (0, 1, S1, 1000)], server_bandwidth="400 B/s", cards=one_slow_server)
    assert times == pytest.approx([10, 100])


def test_messages_inside_a_host_share_its_inner_link() -> None:
    """Workers 0 and 1 live on host 0, 2 and 3 on host 1; goodput is not for what leaves no host."""
    inside, outside = [(0, 0, 1, 1000), (0, 1, 0, 1000), (0, 2, 3, 1000)], (0, 4, 0, 1000)
    hosts = {"workers_per_host": 2}
    network = {"latency": "1 s", "goodput": 0.5}
    assert arrivals([*inside, outside], cluster=hosts, **network) == pytest.approx([0, 0, 0, 21])
    network["intra_host"] = {"bandwidth": "1000 B/s", "latency": "3 s"}
    assert arrivals([*inside, outside], cluster=hosts, **network) == pytest.approx([2 + 3, 2 + 3, 1 + 3, 21])
    links = built(hosts, **network)
    assert path(links, 0, 0) == ["host 0's inner link"]
    assert sum("inner" in name for name in names(links)) == 4  # a server is alone on its host


def test_co_located_shards_use_the_inner_link_of_their_worker() -> None:
    servers = {"workers_per_host": 4, "servers": {"count": 2, "colocated": True}}
    inner = {"bandwidth": "1000 B/s", "latency": "1 s"}
    times = arrivals(
        [(0, 0, S0, 1000), (0, 5, S1, 1000), (0, 1, S1, 1000)], cluster=servers, intra_host=inner
    )
    assert times == pytest.approx([1 + 1, 1 + 1, 10])


@pytest.mark.parametrize("goodput", [0.5, 0.95])
def test_goodput_scales_every_cable(goodput: float) -> None:
    for shape in ({**RACKS, "oversubscription": 2}, TREE, SITES):
        whole = built(topology=shape).links
        scaled = built(topology=shape, goodput=goodput).links
        assert [link.sustained for link in scaled] == pytest.approx(
            [link.sustained * goodput for link in whole]
        )


def test_a_card_s_burst() -> None:
    """(M - s)/C for more than the burst of s tokens, M/L for less than s·L/(L - C); see bucket.py."""
    burst = {"size": "500 B", "line_rate": "600 B/s"}
    assert arrivals([(0, 0, 1, 1000)], burst=burst) == pytest.approx([(1000 - 500) / 100])
    assert arrivals([(0, 0, 1, 300)], burst=burst) == pytest.approx([300 / 600])
    # the tokens are back after 5 s of rest
    times = arrivals([(0, 0, 1, 1000), (20, 0, 1, 1000)], burst=burst)
    assert times == pytest.approx([5, 25])
    # and goodput scales the whole bucket
    assert arrivals([(0, 0, 1, 500)], burst=burst, goodput=0.5) == pytest.approx([5])


def mirrored(name: str) -> str:
    for ways in (("up-link", "down-link"), ("link up to", "link down from")):
        for one, other in (ways, ways[::-1]):
            if one in name:
                return name.replace(one, other)
    words = name.split()  # the link from site 0 to site 1
    words[4], words[7] = words[7], words[4]
    return " ".join(words)


SHAPES = st.one_of(
    st.just("star"),
    st.builds(lambda n: {"kind": "racks", "hosts_per_rack": n, "oversubscription": 3}, st.integers(1, 9)),
    st.builds(
        lambda n, s: {"kind": "fat-tree", "hosts_per_leaf": n, "spines": s, "link": "7 B/s"},
        st.integers(1, 9), st.integers(1, 3),
    ),
    st.lists(st.integers(1, 3), min_size=4, max_size=4)
    .filter(lambda hosts: sum(hosts) == 8)
    .map(lambda hosts: {"kind": "sites", "hosts": hosts, "bandwidth": "7 B/s", "latency": "2 s"}),
)  # fmt: skip


@pytest.mark.slow
@given(SHAPES, st.sampled_from(["full", "half"]))
def test_every_path_is_of_links_that_exist_and_mirrors_the_way_back(shape: Any, duplex: str) -> None:
    links = built(topology=shape, duplex=duplex, latency="1 s")
    assert len(set(names(links))) == len(links.links)
    known = set(links.links)
    for source, target in product(range(10), repeat=2):
        there, latency = links.path(source, target)
        back, latency_back = links.path(target, source)
        assert set(there) <= known
        assert len(set(there)) == len(there)  # none twice
        assert latency == latency_back
        assert [link.sustained for link in reversed(there)] == [link.sustained for link in back]
        if duplex == "full" and shape != "star" and shape.get("spines", 1) == 1:
            assert [mirrored(link.id.name) for link in reversed(there)] == [link.id.name for link in back]


@examples(0.5)
@given(
    SHAPES,
    st.lists(
        st.tuples(st.floats(0, 20), st.integers(0, 9), st.integers(0, 9), st.integers(0, 500)),
        min_size=1, max_size=12,
    ).map(sorted),
    st.booleans(),
)  # fmt: skip
def test_whatever_is_sent_arrives_and_not_too_early(shape: Any, sends: Any, busy: bool) -> None:
    """Not before the narrowest link alone would have carried it, whatever else goes on."""
    others = [{"from": 0, "to": 7, "on": "1 s", "off": "1 s"}, {"from": 3, "to": 9, "bandwidth": "3 B/s"}]
    times = arrivals(sends, topology=shape, latency="1 s", background=others if busy else [])
    links = built(topology=shape, latency="1 s")
    for (at, source, target, nbytes), time in zip(sends, times, strict=True):
        crossed, latency = links.path(source, target)
        narrowest = min((link.sustained for link in crossed), default=float("inf"))
        assert time >= at + nbytes / narrowest + latency - 1e-9


@pytest.mark.parametrize("spines", [1, 2, 3])
def test_a_fat_tree_deals_the_destinations_out_to_the_spines(spines: int) -> None:
    links = built({"workers": 12, "servers": 1}, topology={**TREE, "spines": spines})
    ways = [path(links, 0, host)[1] for host in range(4, 12)]
    assert ways == [f"leaf 0's link up to spine {host % spines}" for host in range(4, 12)]


def test_groups() -> None:
    keys = {"cluster__workers": 16, "cluster__workers_per_host": 2}
    shapes = [
        ("star", [0] * 8),
        ({"kind": "racks", "hosts_per_rack": 3}, [0, 0, 0, 1, 1, 1, 2, 2]),
        ({"kind": "fat-tree", "hosts_per_leaf": 5}, [0] * 5 + [1] * 3),
        ({"kind": "sites", "hosts": [1, 5, 2]}, [0] + [1] * 5 + [2] * 2),
    ]
    for shape, groups in shapes:
        cluster = scenario(**keys, cluster__network={"topology": shape}).cluster
        assert cluster.hosts == 8
        assert [cluster.host_of(worker) for worker in range(16)] == [w // 2 for w in range(16)]
        assert [cluster.group_of(worker) for worker in range(16)] == [groups[w // 2] for w in range(16)]
        free = cluster.network.topology.unlimited()
        assert [free.group_of(host) for host in range(8)] == groups
        assert free.groups(8) == cluster.network.topology.groups(8) == groups[-1] + 1


def test_a_prediction_for_the_loopback_keeps_the_groups_and_pays_inside_hosts() -> None:
    from lockstep.loopback import Loopback
    from lockstep.validation import on_loopback

    network = {"bandwidth": "1 B/s", "topology": {**RACKS, "oversubscription": 8}}
    given_ = scenario(cluster__workers=8, cluster__workers_per_host=2, cluster__network=network)
    cluster = on_loopback(given_, Loopback(1e-4, 1e9)).cluster
    assert [cluster.group_of(worker) for worker in range(8)] == [given_.cluster.group_of(w) for w in range(8)]
    links = topology(cluster)
    assert not [name for name in names(links) if "rack" in name]
    assert all(links.path(a, b)[1] == 1e-4 for a, b in product(range(4), repeat=2))
