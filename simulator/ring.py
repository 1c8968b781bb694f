"""A ring all-reduce without an event for each of its p² messages: same times, same records, same bits.

As long as every message of the ring has its path for itself, a worker's next message starts when its last one
has left and the one before it in the ring has been received (and added); so all times follow from those at
which the workers enter, step by step, for all workers at once. They are computed when the last worker enters:
no worker can be done before. `strategies.collectives.ring` is what is computed, and remains the oracle.

Where workers on one host share a link inside it, the events of the ring's messages are gone through by
themselves (shared_ring.py).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from lockstep.simulator.jit import here
from lockstep.simulator.network import Network
from lockstep.simulator.shared_ring import shared_ring


class Disturbed(BaseException):
    """Only messages can tell what happens in this run's rings."""


class Lanes(NamedTuple):
    """The path of each worker to the next, shape (p,): bytes/s (perhaps infinite), and latency in s."""

    rate: np.ndarray
    latency: np.ndarray
    links: np.ndarray | None = None  # where some share their only link: its number, else one of its own
    common: int = 0  # so many links are shared: the first


def separate_lanes(network: Network, workers: Sequence[int], queued: bool = False) -> Lanes | None:
    """What the ring's messages go through; None if there are none, or if paths of several links share one.

    queued: also None if a queue in a switch would fill, since a card is faster than the rest of a path.
    """
    if len(workers) < 2:
        return None
    following = [*workers[1:], workers[0]]
    connections = [network.connection(*pair) for pair in zip(workers, following, strict=True)]
    links = [link for connection in connections for link in connection.path]
    shared = [link for link, crossing in Counter(links).items() if crossing > 1]
    if any(
        len(connection.path) > 1 and not set(shared).isdisjoint(connection.path) for connection in connections
    ):
        return None
    if queued and any(c.path and c.path[0].capacity > min(m.capacity for m in c.path) for c in connections):
        return None
    rates = [min((link.capacity for link in c.path), default=np.inf) for c in connections]
    latencies = np.array([c.latency for c in connections], float)
    if not shared:
        return Lanes(np.array(rates, float), latencies)
    common = {link: number for number, link in enumerate(shared)}
    numbers = [common.get(c.path[0], -1) if c.path else -1 for c in connections]
    own = np.arange(len(common), len(common) + len(workers))
    return Lanes(
        np.array(rates, float), latencies, np.where(np.array(numbers) < 0, own, numbers), len(common)
    )


class Times(NamedTuple):
    """When each message starts, has left, arrives, by step and sender, shape (2(p−1), p), and more. In s."""

    starts: np.ndarray
    left: np.ndarray
    ends: np.ndarray
    done: np.ndarray  # when each worker is done, shape (p,)
    ready: np.ndarray  # when each has done with its messages' overheads, shape (p,)
    sums: "Sums | None" = None  # None: they take no time
    order: list[int] | None = None  # of workers that are done at one instant; None: it does not matter


class Sums(NamedTuple):
    """When each addition is called for, starts and ends, by step and worker, shape (p−1, p). In s.

    NaN for one that takes no time. free: when each worker has done with its additions, shape (p,).
    """

    called: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    free: np.ndarray


def schedule(
    entered: np.ndarray,
    ready: np.ndarray,
    nbytes: np.ndarray,
    lanes: Lanes,
    overhead: float = 0.0,
    add_s: Callable[[int], float] = lambda nbytes: 0.0,
    free: np.ndarray | None = None,
) -> Times:
    """The times of a ring, from those at which its p workers enter it (NaN: not yet), shape (p,).

    ready: when each worker has done with earlier messages' overheads, shape (p,); nbytes: of each message,
    by step and sender; overhead: s a message costs its sender; add_s: s an addition takes that touches some
    bytes; free: when each worker has done with work of before, shape (p,). Added up in the order in which the
    network and SimPy do, so that the times have the same bits.
    """
    steps, p = nbytes.shape
    starts, gone, ends = np.empty((steps, p)), np.empty((steps, p)), np.empty((steps, p))
    previous = np.arange(p) - 1
    seconds = _seconds(nbytes, add_s)
    sums = None
    if seconds is not None:
        free = np.full(p, -np.inf) if free is None else free
        called, begun_at, done_at = (np.full((p - 1, p), np.nan) for _ in range(3))
        sums = Sums(called, begun_at, done_at, free)
    start = entered
    for step in range(steps):
        starts[step] = begun = start
        if overhead:
            ready = np.maximum(start, ready) + overhead
            begun = start + (ready - start)
        gone[step] = left = begun + nbytes[step] / lanes.rate
        np.add(left, lanes.latency, out=ends[step])
        received = np.maximum(start, ends[step, previous])
        if seconds is not None and sums is not None and step < p - 1:
            received, sums = _added(sums, step, received, seconds[step, previous])
        start = np.maximum(received, left)
    return Times(starts, gone, ends, start, ready, sums)


def schedule_shared(
    order: np.ndarray,
    entered: np.ndarray,
    ready: np.ndarray,
    nbytes: np.ndarray,
    lanes: Lanes,
    overhead: float,
    add_s: Callable[[int], float],
    free: np.ndarray,
    idle: np.ndarray | None = None,
    fast: bool = False,
) -> tuple[Times, np.ndarray] | None:
    """The same where lanes share links, and since when these are idle then; None: only messages can tell.

    order: the workers, all of whom have entered, as they did; idle: since when links are; fast: compiled.
    """
    assert lanes.links is not None
    steps, p = nbytes.shape
    seconds = _seconds(nbytes, add_s)
    idle = np.full(lanes.common, -np.inf) if idle is None else idle
    of_workers = [order, entered, ready.copy(), free.copy(), np.empty(p)]
    of_lanes = [lanes.rate, lanes.latency, lanes.links, idle.copy()]
    of_messages = [nbytes, np.zeros(nbytes.shape) if seconds is None else seconds]
    empty = [np.full(shape, np.nan) for shape in 3 * [(steps, p)] + 3 * [(p - 1, p)]]
    given: list[Any] = [array.ravel() for array in (*of_workers, *of_lanes, *of_messages, *empty)]
    if not fast:
        given = [array.tolist() for array in given]
    compute: Callable[..., bool] = compiled_ring() if fast else shared_ring
    if not compute(*given, overhead):
        return None
    _, _, ready, free, done, _, _, _, idle = map(np.array, given[:9])
    starts, left, ends = [np.reshape(each, (steps, p)) for each in given[11:14]]
    called, begun, added = [np.reshape(each, (p - 1, p)) for each in given[14:]]
    sums = None if seconds is None else Sums(called, begun, added, free)
    return Times(starts, left, ends, done, ready, sums, [int(worker) for worker in given[0]]), idle


@cache
def compiled_ring() -> Callable[..., bool]:
    """`shared_ring` by numba."""
    return here(shared_ring)


def _seconds(nbytes: np.ndarray, add_s: Callable[[int], float]) -> np.ndarray | None:
    """What it takes to add up each message, by step and sender; None if that takes no time."""
    adding = {size: add_s(3 * size) for size in np.unique(nbytes).tolist()}
    return np.vectorize(adding.get, otypes=[float])(nbytes) if any(adding.values()) else None


def _added(sums: Sums, step: int, received: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, Sums]:
    """When each worker has added what it received at a step, in so many seconds; the additions until then."""
    takes = seconds > 0
    begun = np.maximum(sums.free, received)
    done = begun + seconds
    for column, instants in zip(sums[:3], (received, begun, done), strict=True):
        column[step, takes] = instants[takes]
    sums = sums._replace(free=np.where(takes, done, sums.free))
    return np.where(takes, received + (done - received), received), sums
