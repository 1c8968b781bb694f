"""What a run costs: the price of all hosts, the servers' too, for as long as it lasts.

Hosts are paid from the first mini-batch to the last update, also while their processes are down. What
start-up, evaluation and a provider's least time cost is not in it, nor what an interrupted host saves.
"""

from lockstep.scenarios import Cluster


def usd_per_hour(cluster: Cluster, has_servers: bool) -> float | None:
    """What all hosts of a job cost in an hour, in USD; None if the price of one is not known.

    A host of devices whose kinds all have a price costs the sum of these, any other the cluster's price.
    """
    per_device = [kind.price for kind in cluster.kinds for _ in range(kind.count)]
    prices: list[float | None] = [cluster.price] * cluster.hosts
    if per_device:
        for host, workers in cluster.workers_by("host").items():
            known = [price for worker in workers if (price := per_device[worker]) is not None]
            prices[host] = sum(known) if len(known) == len(workers) else cluster.price
    if has_servers:
        servers = cluster.servers
        prices += [cluster.price if servers.price is None else servers.price] * servers.hosts
    found = [price for price in prices if price is not None]
    return sum(found) if len(found) == len(prices) else None


def cost(
    rate: float | None, duration_s: float, goodput: float | None, to_target_s: float | None
) -> dict[str, float | None]:
    """The metrics of cost in USD, from the USD an hour of all hosts; none of them if that is not known.

    `goodput` in samples/s: what was lost again is paid, and does not count. None where there is none, or the
    target was not reached.
    """
    if rate is None:
        return {}
    a_second = rate / 3600
    return {
        "cost": a_second * duration_s,
        "cost_of_million": a_second * 1e6 / goodput if goodput else None,
        "cost_to_target": None if to_target_s is None else a_second * to_target_s,
    }
