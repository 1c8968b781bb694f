"""Closed forms of communication: parameter servers and collectives on a network of equal links.

Bytes, seconds, bytes/s; all links are full duplex. They know nothing of the simulator.
"""

from collections.abc import Sequence
from math import ceil, log2


def one_way(nbytes: float, workers: int, servers: int, bandwidth: float) -> float:
    """Seconds in which N workers push M bytes each to S shards, or pull them: max(M/B, N·M/(S·B))."""
    return max(nbytes / bandwidth, workers * nbytes / (servers * bandwidth))


def push_then_pull(nbytes: float, workers: int, servers: int, bandwidth: float) -> float:
    """Seconds of a push of everybody, then a pull of everybody: 2·max(M/B, N·M/(S·B))."""
    return 2 * one_way(nbytes, workers, servers, bandwidth)


def pipelined_push_pull(nbytes: float, workers: int, servers: int, bandwidth: float, chunks: int) -> float:
    """Seconds of a push and pull in `chunks` equal parts, where the pull of one overlaps the next one's push.

    (1 + 1/c)·max(M/B, N·M/(S·B)): the pull of the last chunk is all that overlaps with nothing. c = 1 is push
    then pull, and half of it is the limit.
    """
    return (1 + 1 / chunks) * one_way(nbytes, workers, servers, bandwidth)


def pipeline(stages: Sequence[float], chunks: int) -> float:
    """Seconds in which c equal chunks go through stages one after another; a stage has one chunk at a time.

    `stages` are the seconds that all chunks together spend in each: (Σ + (c−1)·max)/c, as of any flow shop
    with identical jobs. Backward pass, push and pull are such stages (Zhang et al. 2017, "Poseidon"), and so
    are backward pass and all-reduce (Li et al. 2020, "PyTorch distributed").
    """
    return (sum(stages) + (chunks - 1) * max(stages)) / chunks


def colocated_push_pull(nbytes: float, workers: int, bandwidth: float) -> float:
    """Seconds of a push and pull with a shard on every worker's host: 2(n−1)/n·M/B."""
    return 2 * (workers - 1) / workers * nbytes / bandwidth


def largest_share_push_pull(nbytes: float, workers: int, largest: float, bandwidth: float) -> float:
    """Seconds of a push and pull when the largest of uneven shards, a fraction of M, is where all wait.

    2·N·M·max share/B, if there are no more shards than workers: with more, a worker's own link, divided among
    its shards, holds back what it sends to the largest.
    """
    return 2 * workers * nbytes * largest / bandwidth


def narrow_push_pull(nbytes: float, workers: int, servers: int, workers_b: float, servers_b: float) -> float:
    """Seconds of a push and pull when servers have cards of their own: 2·max(M/B_w, N·M/(S·B_s))."""
    return 2 * max(nbytes / workers_b, workers * nbytes / (servers * servers_b))


def hierarchical_push_pull(nbytes: float, group: int, groups: int, bandwidth: float) -> float:
    """Seconds of a push and pull over relays, one for each group: 2(g + G)·M/B instead of 2·g·G·M/B.

    A relay passes on one sum of its group's g pushes; the root gets G of these (Gupta, Zhang and Wang 2016,
    "Model accuracy and runtime tradeoff in distributed deep learning": Rudra-adv).
    """
    return 2 * (group + groups) * nbytes / bandwidth


def update_time(nbytes: float, pushes: int, servers: int, memory_bandwidth: float) -> float:
    """Seconds in which a server takes the mean of pushes and steps along it: 3N·M/S bytes touched.

    N − 1 additions and the one to the parameters touch three vectors each; that one also multiplies by the
    learning rate ÷ N.
    """
    return 3 * pushes * nbytes / servers / memory_bandwidth


# Collectives: p ranks sum M bytes; alpha is the latency of a message in s, beta the seconds a byte takes on
# the wire (1/B), gamma those that adding one to another takes (Thakur, Rabenseifner and Gropp 2005).


def ring(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Seconds of a reduce-scatter and an all-gather around a ring: 2(p−1)α + (p−1)/p·M(2β + γ)."""
    return 2 * (p - 1) * alpha + (p - 1) / p * nbytes * (2 * beta + gamma)


def nccl_ring(p: int, nbytes: float, alpha: float, beta: float) -> float:
    """Seconds of a ring whose chunks go in slices of 1 MiB, four at least, of which four are under way.

    Each leaves after the one before it, and after the fourth before it has arrived.
    """
    count = max(4, ceil(nbytes / p / 2**20))
    number, each = 2 * (p - 1) * count, nbytes / p / count * beta
    if alpha <= 3 * each:
        return number * each + alpha
    fours, more = divmod(number - 1, 4)
    return fours * (alpha + each) + (more + 1) * each + alpha


def gloo_ring(p: int, nbytes: float, alpha: float, beta: float) -> float:
    """Seconds of a ring whose chunks go in segments of 1 MiB, two at least, each when its receiver has asked.

    A segment is there 2α + s after it was asked for, when the one two before it had come; or s after
    the one before it, if that is later. The second half of the ring begins when the first is over.
    """
    count = max(2, ceil(nbytes / p / 2**20))
    number, each = (p - 1) * count, nbytes / p / count * beta
    if each >= 2 * alpha:
        return 2 * (2 * alpha + number * each)
    pairs, more = divmod(number, 2)
    return 2 * ((pairs + more) * (2 * alpha + each) + (0 if more else each))


def halving_doubling(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Seconds of recursive halving, then doubling; p a power of two: 2 lg p·α + (p−1)/p·M(2β + γ)."""
    return 2 * log2(p) * alpha + (p - 1) / p * nbytes * (2 * beta + gamma)


def recursive_doubling(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Seconds of lg p exchanges of the whole vector; p a power of two: lg p·(α + M(β + γ))."""
    return log2(p) * (alpha + nbytes * (beta + gamma))


def binomial(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Seconds of a reduction to one rank and a broadcast, over binomial trees: ⌈lg p⌉(2(α + Mβ) + Mγ)."""
    return ceil(log2(p)) * (2 * (alpha + nbytes * beta) + nbytes * gamma)


def owners(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Seconds of a reduction in which everybody owns 1/p, gets it from all and sends the sum to all.

    The p−1 messages each way share the links at once: 2α + (p−1)/p·M(2β + γ).
    """
    return 2 * alpha + (p - 1) / p * nbytes * (2 * beta + gamma)


def recursive_doubling_over_racks(
    racks: int, per_rack: int, nbytes: float, beta: float, oversubscription: float
) -> float:
    """Seconds of recursive doubling without latency when a rack's up-link carries its hosts' sum ÷ o.

    Exchanges inside a rack take Mβ; in those with another rack all its hosts share the up-link: o·Mβ.
    """
    return (log2(per_rack) + log2(racks) * max(1.0, oversubscription)) * nbytes * beta


def two_level(
    hosts: int, per_host: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """Seconds of a sum inside each host, where messages are free, a ring of the hosts, and a broadcast."""
    return (per_host - 1) * nbytes * gamma + ring(hosts, nbytes, alpha, beta, gamma)


def hierarchical(hosts: int, per_host: int, nbytes: float, alpha: float, beta: float, inner: float) -> float:
    """Seconds of a reduce-scatter and an all-gather inside hosts, and between them a ring for each part.

    inner: seconds that a byte takes on the link that a host's workers share, which has no latency. The rings
    of all parts share the cards.
    """
    return 2 * (per_host - 1) * nbytes * inner + ring(hosts, nbytes, alpha, beta)


def least_all_reduce(p: int, nbytes: float, beta: float) -> float:
    """Seconds that no all-reduce can beat on full-duplex links: 2(p−1)/p·Mβ."""
    return 2 * (p - 1) / p * nbytes * beta
