"""Whether this machine can have a testbed, and the shapes of network that are tried on one."""

from typing import Any

import pytest

from lockstep.executor import testbed
from lockstep.scenarios import Cluster, ScenarioError
from lockstep.strategies.placement import hosts, roles_of
from tests.support.scenarios import scenario


def reason() -> str:
    try:
        testbed.require()
    except ScenarioError as error:
        return error.problem
    return ""


REASON = reason()
needs_testbed = pytest.mark.skipif(bool(REASON), reason=REASON)

NETWORK = {"bandwidth": "50 Mbit/s"}
RACKS = {"kind": "racks", "hosts_per_rack": 2, "uplink": "30 Mbit/s"}
TREE = {"kind": "fat-tree", "hosts_per_leaf": 2, "spines": 2, "link": "20 Mbit/s"}
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "star": ({}, {}),
    "cards": ({}, {"server_bandwidth": "1 Gbit/s", "cards": [{"hosts": [1, 5], "bandwidth": "10 Mbit/s"}]}),
    "co-located": ({"servers": {"count": 2, "colocated": True}, "workers_per_host": 2}, {}),
    "racks": ({}, {"topology": RACKS}),
    "oversubscribed": ({}, {"topology": {"kind": "racks", "hosts_per_rack": 3, "oversubscription": 4}}),
    "relays": ({"servers": {"count": 1, "hierarchy": {"groups": 2}}}, {"topology": RACKS}),
    "fat tree": ({}, {"topology": TREE}),
    "sites": (
        {},
        {
            "topology": {
                "kind": "sites", "hosts": [1, 2, 1], "bandwidth": "20 Mbit/s",
                "pairs": [{"between": [0, 2], "bandwidth": "10 Mbit/s"}],
            }
        },
    ),
}  # fmt: skip


def cluster(changes: dict[str, Any], network: dict[str, Any]) -> Cluster:
    keys = {f"cluster__{key}": value for key, value in changes.items()}
    keys = {"cluster__servers": 2, **keys, "cluster__network": {**NETWORK, **network}}
    return scenario(**keys).cluster


def hosts_of(described: Cluster) -> list[int]:
    """Of every rank, servers and relays included."""
    everyone = roles_of(described, has_servers=True)
    return hosts(described.workers, described.workers_per_host, everyone, described.servers.colocated)
