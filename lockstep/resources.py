"""What a cluster is made of, each as something that could be faster; and what that would gain, tried.

The largest share of a run's time is an estimate of what limits it: of what overlaps, or waits in a queue, it
may be wrong. So each resource is made a tenth faster, and the run is simulated again, by sizes only and with
the same seed. Where one thing comes after the other the gains add up to 1 − 1/1.1 = 9.1%.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from lockstep.analysis.gains import Gain
from lockstep.job.plan import Plan
from lockstep.scenarios import Cluster, Racks, Scenario
from lockstep.scenarios.network import Background
from lockstep.scenarios.stragglers import Persistent

FASTER = 1.1
_LEAST = 4000  # mini-batches, of all workers together
_LATENCIES = ("latency",)
_OVERHEADS = ("message_overhead", "receive_overhead")
_FABRIC = {
    "racks": "the racks' links",
    "fat-tree": "the leaves' links",
    "sites": "the links between the sites",
}


def in_cluster(scenario: Scenario, **changes: Any) -> Scenario:
    """The scenario with other sections in its cluster."""
    return scenario.model_copy(update={"cluster": scenario.cluster.model_copy(update=changes)})


def scaled(
    section: Any, names: Iterable[str], factor: float, besides: tuple[type, ...] = (Background,)
) -> Any:
    """A section, and those in it, with the numbers of these names times a factor; not inside `besides`."""
    if isinstance(section, tuple):
        return tuple(scaled(each, names, factor, besides) for each in section)
    if isinstance(section, dict):
        return {key: scaled(each, names, factor, besides) for key, each in section.items()}
    if not isinstance(section, BaseModel) or isinstance(section, besides):
        return section
    changes = {
        name: value * factor
        if name in names and isinstance(value, float)
        else scaled(value, names, factor, besides)
        for name, value in section
    }
    return section.model_copy(update=changes)


@dataclass(frozen=True)
class Resource:
    """Something of a cluster: what it is called there, and the cluster with it so many times as fast."""

    name: Callable[[Scenario], str]
    faster: Callable[[Scenario, float], Scenario]


def _computing(scenario: Scenario, factor: float) -> Scenario:
    # as a slowdown of everybody, which is the same for any distribution of times
    workers = range(scenario.cluster.workers)
    less = [Persistent.model_construct(worker=worker, slowdown=1 / factor) for worker in workers]
    return in_cluster(scenario, stragglers=(*scenario.cluster.stragglers, *less))


def _stragglers(scenario: Scenario, factor: float) -> Scenario:
    def eased(item: Any) -> Any:
        slowdown = getattr(item, "slowdown", 1.0)
        return item.model_copy(update={"slowdown": max(1.0, slowdown / factor)}) if slowdown > 1 else item

    return in_cluster(scenario, stragglers=tuple(map(eased, scenario.cluster.stragglers)))


def _cards(scenario: Scenario, workers: float, servers: float) -> Scenario:
    """The cards of the workers' hosts and of the servers' own so many times as fast; the fabric as it is."""
    cluster, network = scenario.cluster, scenario.cluster.network
    if network.bandwidth is None and not network.cards:
        return scenario

    def times(rate: float | None, factor: float) -> float | None:
        return None if rate is None else rate * factor

    cards = [
        card.model_copy(update={"hosts": (host,), "bandwidth": card.bandwidth * factor})
        for card in network.cards
        for host in card.hosts
        for factor in [workers if host < cluster.hosts else servers]
    ]
    changes: dict[str, Any] = {
        "bandwidth": times(network.bandwidth, workers),
        "server_bandwidth": times(network.server_bandwidth or network.bandwidth, servers),
        "cards": tuple(cards),
    }
    if isinstance(network.topology, Racks):
        capacity = network.topology.capacity(network.bandwidth)
        changes["topology"] = network.topology.model_copy(
            update={"uplink": capacity, "oversubscription": None}
        )
    if network.burst is not None:
        rates = [rate for rate in (changes["bandwidth"], changes["server_bandwidth"]) if rate is not None]
        line_rate = max([network.burst.line_rate, *rates, *(card.bandwidth for card in cards)])
        changes["burst"] = network.burst.model_copy(update={"line_rate": line_rate})
    return in_cluster(scenario, network=network.model_copy(update=changes))


def _workers_links(scenario: Scenario, factor: float) -> Scenario:
    return _cards(scenario, factor, 1.0)


def _servers_links(scenario: Scenario, factor: float) -> Scenario:
    return _cards(scenario, 1.0, factor) if _own_hosts(scenario) else scenario


def _fabric(scenario: Scenario, factor: float) -> Scenario:
    shape = scaled(scenario.cluster.network.topology, ("uplink", "link", "bandwidth"), factor)
    shape = scaled(shape, ("oversubscription",), 1 / factor)
    return _network(scenario, topology=shape)


def _inner(scenario: Scenario, factor: float) -> Scenario:
    return _network(scenario, intra_host=scaled(scenario.cluster.network.intra_host, ("bandwidth",), factor))


def _network(scenario: Scenario, **changes: Any) -> Scenario:
    return in_cluster(scenario, network=scenario.cluster.network.model_copy(update=changes))


def _latency(scenario: Scenario, factor: float) -> Scenario:
    return in_cluster(scenario, network=scaled(scenario.cluster.network, _LATENCIES, 1 / factor))


def _overheads(scenario: Scenario, factor: float) -> Scenario:
    return in_cluster(scenario, network=scaled(scenario.cluster.network, _OVERHEADS, 1 / factor))


def _servers_updates(scenario: Scenario, factor: float) -> Scenario:
    cluster = scenario.cluster
    if not _has_servers(scenario) or not _costs(cluster):
        return scenario
    servers = cluster.servers.model_copy(update={"speed": cluster.servers.speed * factor})
    return in_cluster(scenario, servers=servers)


def _own_updates(scenario: Scenario, factor: float) -> Scenario:
    cluster = scenario.cluster
    if not _costs(cluster):
        return scenario
    return in_cluster(
        scenario,
        memory_bandwidth=cluster.memory_bandwidth and cluster.memory_bandwidth * factor,
        apply_overhead=cluster.apply_overhead / factor,
        codecs=scaled(cluster.codecs, ("encode", "decode"), factor),
        servers=cluster.servers.model_copy(update={"speed": cluster.servers.speed / factor}),
    )


def _costs(cluster: Cluster) -> bool:
    return bool(cluster.memory_bandwidth or cluster.apply_overhead or cluster.codecs)


def _has_servers(scenario: Scenario) -> bool:
    return Plan.of(scenario).has_servers


def _own_hosts(scenario: Scenario) -> bool:
    return _has_servers(scenario) and not scenario.cluster.servers.colocated


def _called(name: str) -> Callable[[Scenario], str]:
    return lambda _: name


RESOURCES: Mapping[str, Resource] = {
    "computing": Resource(_called("the workers' computing"), _computing),
    "stragglers": Resource(_called("the stragglers"), _stragglers),
    "own updates": Resource(_called("the workers' own updates"), _own_updates),
    "workers' links": Resource(
        lambda scenario: "the hosts' links" if scenario.cluster.servers.colocated and _has_servers(scenario)
        else "the workers' links",
        _workers_links,
    ),
    "servers' links": Resource(_called("the servers' links"), _servers_links),
    "fabric": Resource(lambda scenario: _FABRIC.get(scenario.cluster.network.topology.kind, ""), _fabric),
    "inner links": Resource(_called("the links inside hosts"), _inner),
    "servers' updates": Resource(_called("the servers' updates"), _servers_updates),
    "latency": Resource(_called("latency"), _latency),
    "overheads": Resource(_called("per-message overheads"), _overheads),
}  # fmt: skip
"""What could be faster, by kind."""


def experiments(scenario: Scenario, before: Mapping[str, Any]) -> dict[str, Scenario]:
    """The scenario by sizes only, as it is (key ""), and with each resource a tenth faster.

    `before`: the metrics of a run of it. If workers meet in every round, all make as many mini-batches as
    there, with the same times. Otherwise those would end with the slowest worker alone: all have equal time.
    """
    plain = by_sizes(scenario, before)
    changed = {kind: resource.faster(plain, FASTER) for kind, resource in RESOURCES.items()}
    return {"": plain} | {kind: other for kind, other in changed.items() if other != plain}


def by_sizes(scenario: Scenario, before: Mapping[str, Any]) -> Scenario:
    """The scenario with nothing learned, and bounds that do not favour what is faster: see `experiments`."""
    plain = scenario.sizes_only
    return plain.model_copy(update={"sweep": {}, "stop": _stop(scenario, before)})


def _stop(scenario: Scenario, before: Mapping[str, Any]) -> Any:
    made = before["samples"] / scenario.workload.batch_size
    if Plan.of(scenario).strategy.equal_steps:
        bounds: dict[str, Any] = {"steps": max(1, round(made / scenario.replicas))}
    else:  # how the order of pushes changes is chance: no fewer than _LEAST
        bounds = {"time": before["duration_s"] * max(1.0, _LEAST / max(1, made))}
    return type(scenario.stop).model_construct(**bounds)


def gains(scenario: Scenario, throughputs: Mapping[str, float | None]) -> list[Gain]:
    """What each experiment with a scenario gained, the most first; nothing where nothing was applied."""
    before = throughputs[""]
    if not before:
        return []
    found = [
        Gain(kind, RESOURCES[kind].name(scenario), 1 - before / after)
        for kind, after in throughputs.items()
        if kind and after
    ]
    return sorted(found, key=lambda each: -each.gain)


def why(scenario: Scenario, progress: Callable[[float], None] | None = None) -> list[Gain]:
    """Try what would shorten a run most: see `lockstep.why`."""
    import lockstep

    before = lockstep.simulate(scenario.sizes_only).metrics
    if not before["duration_s"]:
        return []
    throughputs, tried = {}, experiments(scenario, before)
    for done, (kind, each) in enumerate(tried.items(), 1):
        throughputs[kind] = lockstep.simulate(each).metrics["throughput"]
        if progress is not None:
            progress(done / len(tried))
    return gains(scenario, throughputs)
