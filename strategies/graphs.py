"""Who talks to whom without a server: graphs over the workers 0, 1, …, and the weights of their averages.

A graph is undirected: the name of one, or its edges as pairs of workers.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import isqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

Edges = Sequence[Sequence[int]]
Neighbours = tuple[tuple[int, ...], ...]  # of each worker, in the order of ranks

NAMES = ("ring", "torus", "exponential", "complete")


def neighbours(graph: str | Edges, workers: int) -> Neighbours:
    """Of each worker the others that it shares an edge with.

    torus: a grid as square as the number of workers allows, a ring for a prime one. exponential: the workers
    1, 2, 4, … before and after (the directed graph of Assran et al. 2019, both ways).
    """
    return _neighbours(_hashable(graph), workers)


def _hashable(graph: str | Edges) -> str | Edges:
    return graph if isinstance(graph, str) else tuple(map(tuple, graph))


@lru_cache(maxsize=8)  # all workers of a run ask for the same one
def _neighbours(graph: str | Edges, workers: int) -> Neighbours:
    found: list[set[int]] = [set() for _ in range(workers)]
    for one, other in _edges(graph, workers):
        found[one].add(other)
        found[other].add(one)
    return tuple(tuple(sorted(others - {rank})) for rank, others in enumerate(found))


def _edges(graph: str | Edges, workers: int) -> Iterator[Sequence[int]]:
    if not isinstance(graph, str):
        yield from graph
        return
    columns = workers // next(rows for rows in range(isqrt(workers), 0, -1) if workers % rows == 0)
    for rank in range(workers):
        row = rank - rank % columns
        hops = [2**power for power in range((workers - 1).bit_length())]
        following: dict[str, list[int]] = {
            "ring": [rank + 1],
            "torus": [row + (rank + 1) % columns, rank + columns],
            "exponential": [rank + hop for hop in hops],
            "complete": list(range(rank)),
        }
        for other in following[graph]:
            yield rank, other % workers


def mismatch(edges: Edges, workers: int) -> str | None:
    """What is wrong with edges among so many workers; None if nothing is."""
    for one, other in edges:
        if max(one, other) >= workers:
            return f"[{one}, {other}]: there is no worker {max(one, other)}; they are 0 to {workers - 1}"
    away = distances(neighbours(edges, workers))
    if None not in away:
        return None
    return (
        f"worker {away.index(None)} cannot be reached from worker 0; add the edges that connect all workers"
    )


def distances(links: Neighbours) -> list[int | None]:
    """How many edges each worker is away from worker 0; None: it cannot be reached."""
    away: list[int | None] = [None] * len(links)
    away[0], found, length = 0, [0], 0
    while found:
        length += 1
        found = sorted({other for rank in found for other in links[rank] if away[other] is None})
        for rank in found:
            away[rank] = length
    return away


def weights(graph: str | Edges, workers: int, rank: int) -> dict[int, "Fraction"]:
    """Row `rank` of a symmetric, doubly stochastic matrix: worker → weight, in the order of ranks.

    Metropolis–Hastings: 1/(1 + the larger of the two degrees) for a neighbour, the rest for oneself (Xiao,
    Boyd and Lall 2006, "Distributed average consensus with time-varying Metropolis weights"). On the
    complete graph they are 1/n for all.
    """
    from fractions import Fraction  # here, because a list of strategies has no use for it

    links = neighbours(graph, workers)
    row = {other: Fraction(1, 1 + max(len(links[rank]), len(links[other]))) for other in links[rank]}
    row[rank] = 1 - sum(row.values(), Fraction(0))
    return dict(sorted(row.items()))


def bipartite(graph: str | Edges, workers: int) -> tuple[Neighbours, tuple[bool, ...]]:
    """The graph without its edges inside two sides, still connected; and who is on the side of worker 0.

    The sides are the even and the odd workers, or those an even and an odd number of edges away from worker
    0, whichever leaves more edges: all of them, if there are sides that do.
    """
    return _bipartite(_hashable(graph), workers)


@lru_cache(maxsize=8)
def _bipartite(graph: str | Edges, workers: int) -> tuple[Neighbours, tuple[bool, ...]]:
    links = neighbours(graph, workers)
    parted = []
    for numbers in (list(range(workers)), distances(links)):
        side = tuple(number is not None and number % 2 == 0 for number in numbers)
        across = tuple(tuple(o for o in links[r] if side[o] != side[r]) for r in range(workers))
        if None not in distances(across):
            parted.append((sum(map(len, across)), across, side))
    _, across, side = max(parted, key=lambda found: found[0])  # the first of equals
    return across, side


def exchange(graph: str | Edges, workers: int, step: int) -> tuple[tuple[int, ...], Neighbours]:
    """Of each of at least two workers the one that it sends to at a step, and those that it hears from.

    exponential: the worker 1, 2, 4, …, and again 1, … ahead (Assran et al. 2019, appendix A); complete: 1, 2,
    3, … ahead; ring: the next one; otherwise each of its neighbours in turn.
    """
    return _exchange(_hashable(graph), workers, step)


@lru_cache(maxsize=64)  # all workers of a run ask for the same ones, at about the same time
def _exchange(graph: str | Edges, workers: int, step: int) -> tuple[tuple[int, ...], Neighbours]:
    ahead = {
        "ring": 1,
        "exponential": 2 ** (step % (workers - 1).bit_length()),
        "complete": 1 + step % (workers - 1),
    }
    if isinstance(graph, str) and graph in ahead:
        to = [(rank + ahead[graph]) % workers for rank in range(workers)]
    else:
        to = [links[step % len(links)] for links in _neighbours(graph, workers)]
    heard: list[list[int]] = [[] for _ in range(workers)]
    for rank, other in enumerate(to):
        heard[other].append(rank)
    return tuple(to), tuple(map(tuple, heard))
