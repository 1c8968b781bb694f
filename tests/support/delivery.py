"""Messages between nodes, without strategies: when does each arrive?"""

from collections.abc import Sequence
from typing import Any

import simpy

from lockstep.simulator.network import Network
from lockstep.simulator.topology import Topology, topology
from lockstep.simulator.traffic import compete, vary
from lockstep.strategies.placement import hosts, roles_of
from tests.support.scenarios import scenario

Sends = Sequence[tuple[float, int, int, int]]


def messages(links: Topology, host_of: Sequence[int], sends: Sends, **options: Any):
    """(arrival, number) of messages sent as (time, sender, receiver, bytes), in the order they arrive."""
    environment = simpy.Environment()
    network = Network(environment, links, host_of, **options)
    return deliver(network, sends), network


def deliver(network: Network, sends: Sends) -> list[tuple[float, int]]:
    environment = network.environment
    arrivals: list[tuple[float, int]] = []

    def run():
        for number, (at, sender, to, nbytes) in enumerate(sends):
            yield environment.timeout(max(0.0, at - environment.now))
            network.send(sender, to, nbytes, number, lambda t: arrivals.append((environment.now, t.message)))

    environment.process(run())
    environment.run()
    return arrivals


def arrivals(sends: Sends, seed: int = 0, cluster: dict[str, Any] | None = None, **network: Any):
    """When each message arrives on a cluster of 8 workers and 2 servers with cards of 100 B/s."""
    keys = {f"cluster__{key}": value for key, value in (cluster or {}).items()}
    described = scenario(**{
        "cluster__workers": 8, "cluster__servers": 2, **keys,
        "cluster__network": {"bandwidth": "100 B/s", **network},
    }).cluster  # fmt: skip
    net = described.network
    everyone = roles_of(described, has_servers=True)
    host_of = hosts(described.workers, described.workers_per_host, everyone, described.servers.colocated)
    overheads = net.message_overhead, net.receive_overhead
    network_ = Network(simpy.Environment(), topology(described), host_of, *overheads, net.queue, tcp=net.tcp)
    vary(network_, net.varying)
    compete(network_, net.background, net.goodput, seed)
    times = {number: time for time, number in deliver(network_, sends)}
    return [times[number] for number in range(len(sends))]
