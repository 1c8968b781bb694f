"""Sums over all workers, as algorithms over messages.

Every worker calls the same one with a vector of the same length n, and all end with the same bits: whatever
is added twice is the same two numbers in either order, and floating-point addition commutes. In the costs, p
workers hold M bytes each, a link carries B bytes/s each way, α is the latency, and additions are free.

Failure: the strategy's to deal with; a group that breaks ends a collective with `Broken` (node.py).
"""

from collections import deque
from collections.abc import Awaitable, Sequence
from functools import lru_cache
from typing import Literal

from lockstep.strategies.node import Collective, Group, Node, Vector
from lockstep.strategies.parameter_server import shard_of

RING = "ring"
"""The kind of a ring's messages."""
_SLICE, _SLICES = 2**20, 4  # of NCCL: bytes at most, and how many are on their way at a time
_SEGMENT, _SEGMENTS = 2**20, 2  # likewise of Gloo
_FIRSTS = 7
"""The number of the group of hosts' first workers."""


async def ring(node: Node, vector: Vector) -> Vector:
    """Reduce-scatter, then all-gather, around a ring (Patarasuk and Yuan 2009).

    2(p−1) steps in which everyone sends M/p bytes to the next: 2(p−1)·α + 2(p−1)/p·M/B, which is the least
    any algorithm can take of the bandwidth. The sum of a chunk starts at the worker of that chunk's number.
    """
    return await _ring(node, node.workers, vector)


async def nccl_ring(node: Node, vector: Vector) -> Vector:
    """`ring` as NCCL has it: chunks are passed on in slices of 1 MiB at most, four of them at a time.

    Two channels at least have two slices of a chunk each (NCCL_STEPS, ALLREDUCE_CHUNKSTEPS and
    ALLREDUCE_SLICESTEPS in src/include/collectives.h; buffers of 4 MiB). Latencies overlap with sending:
    2(p−1)/p·M/B + α, if α is no more than three slices take. Sums are added up in the order of `ring`.
    """
    following, previous, p, me = _neighbours(node, node.workers)
    count = max(_SLICES, -(-vector.nbytes // (p * _SLICE)))  # of each chunk
    chunks = [shard_of(vector, chunk, p) for chunk in range(p)]
    slices = [[shard_of(chunk, part, count) for part in range(count)] for chunk in chunks]
    total, on_their_way = 2 * (p - 1) * count, deque[Awaitable[None]]()
    for number in range(total + _SLICES):
        if number >= _SLICES:
            step, part = divmod(number - _SLICES, count)
            chunk, received = (me - step - 1) % p, await _body(node, RING, previous)
            summed = await _add(node, received, slices[chunk][part]) if step < p - 1 else received
            slices[chunk][part] = summed
            await on_their_way.popleft()
        if number < total:
            step, part = divmod(number, count)
            on_their_way.append(node.send(following, RING, slices[(me - step) % p][part]))
    return node.concatenate([part for chunk in slices for part in chunk])


async def gloo_ring(node: Node, vector: Vector) -> Vector:
    """`ring` as Gloo has it: in segments of 1 MiB at most, each sent when its receiver has asked for it.

    A worker asks for two segments, and for one more with each that comes (kMaxSegmentSize in
    gloo/allreduce.h, the loops of gloo/allreduce.cc, NOTIFY_RECV_READY in gloo/transport/tcp/pair.cc). Two
    segments that take s each to send need 2α + s, or 2s if that is longer: long latencies do not hide behind
    sending. Vectors are cut, passed on (the other way than with `ring`) and added up as Gloo does it, to the
    same bits.
    """
    _, _, p, me = _neighbours(node, node.workers)
    count = max(_SEGMENTS, -(-vector.nbytes // (p * _SEGMENT)))  # of each chunk
    size = -(-len(vector) // (p * count))
    segments = [vector[place * size : (place + 1) * size] for place in range(p * count)]
    for begin, adds in ((me + 1, True), (me, False)):  # reduce-scatter, then all-gather
        chunks = [(begin + step) % p for step in range(p)]
        places = [chunk * count + part for chunk in chunks for part in range(count)]
        await _ask_and_send(node, segments, places, count, adds)
    return node.concatenate(segments)


async def reduce_scatter(node: Node, vector: Vector) -> Vector:
    """Half of `ring`: this worker's chunk of the sum, in (p−1)·(α + M/(p·B)).

    The sum of a chunk starts at the worker behind its own.
    """
    return await _reduce_scatter(node, node.workers, vector)


async def all_gather(node: Node, vector: Vector) -> Vector:
    """Half of `ring`: the vectors of all workers end to end, which may differ in length."""
    return await _all_gather(node, node.workers, vector)


async def halving_doubling(node: Node, vector: Vector) -> Vector:
    """Recursive halving, then recursive doubling (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005).

    Reduce-scatter: exchange half of what is left with the worker p/2 away, then a quarter with the one p/4
    away, …; all-gather: the same way back. 2·lg p·α + 2(p−1)/p·M/B for p a power of two; other p: `_fold`.
    """
    return await _fold(node, vector, _halving_doubling)


async def recursive_doubling(node: Node, vector: Vector) -> Vector:
    """Exchange everything with the worker 1 away, then 2, 4, … away (Thakur, Rabenseifner and Gropp 2005).

    lg p·(α + M/B) for p a power of two: best for short vectors. Other p: `_fold`.
    """
    return await _fold(node, vector, _recursive_doubling)


async def binomial(node: Node, vector: Vector) -> Vector:
    """Reduce to worker 0 along a binomial tree, and broadcast from it: 2·⌈lg p⌉·(α + M/B) at most."""
    return await _broadcast(node, await _reduce(node, vector))


async def two_level(node: Node, vector: Vector) -> Vector:
    """Sum inside each host at its first worker, around a ring of these, and broadcast inside each host.

    Only the first worker of a host speaks to other hosts.
    """
    hosts = _by_host(node)
    first, *others = hosts[node.hosts[node.index]]
    if node.rank != first:
        await node.send(first, "to first", vector)
        return await _body(node, "from first", first)
    for worker in others:
        vector = await _add(node, await _body(node, "to first", worker), vector)
    vector = await node.collective(ring, vector, _firsts(tuple(node.workers), tuple(node.hosts)))
    for sent in [node.send(worker, "from first", vector) for worker in others]:
        await sent
    return vector


async def hierarchical(node: Node, vector: Vector) -> Vector:
    """Reduce-scatter inside each host, a ring between hosts for each part, all-gather inside each host.

    A host's card carries 2(H−1)/H·M each way for H hosts: between two hosts that is half of what a ring of
    many workers sends, and as much as a tree. (Cho et al. 2019, "BlueConnect"; Horovod with
    HOROVOD_HIERARCHICAL_ALLREDUCE.) Hosts with unequal numbers of workers: `two_level`.
    """
    hosts = _by_host(node)
    if len({len(workers) for workers in hosts.values()}) > 1:
        return await two_level(node, vector)
    inside = hosts[node.hosts[node.index]]
    part = await _reduce_scatter(node, inside, vector)
    place = inside.index(node.rank)
    part = await _ring(node, [workers[place] for workers in hosts.values()], part)
    return await _all_gather(node, inside, part)


async def parameter_server(node: Node, vector: Vector) -> Vector:
    """Every worker owns a chunk: send it the chunk, it adds up and sends the sum to everyone.

    2α + 2(p−1)/p·M/B, with p−1 messages at a time through every link. Chunks are added in the order of ranks.
    """
    p, me = len(node.workers), node.index
    others = [node.workers[(me + step) % p] for step in range(1, p)]
    scattered = [node.send(w, "scatter", shard_of(vector, node.workers.index(w), p)) for w in others]
    total: Vector | None = None
    for worker in node.workers:
        own = worker == node.rank
        part = shard_of(vector, me, p) if own else await _body(node, "scatter", worker)
        total = part if total is None else await _add(node, total, part)
    assert total is not None
    gathered = [node.send(worker, "gather", total) for worker in others]
    parts = [total if w == node.rank else await _body(node, "gather", w) for w in node.workers]
    for sent in scattered + gathered:
        await sent
    return node.concatenate(parts)


async def auto(node: Node, vector: Vector) -> Vector:
    """The algorithm that Open MPI's `tuned` component chose by its fixed rule (1.3 to 4.0).

    Under 10,000 bytes recursive doubling; above, a ring if there are more values than workers, else reduce
    and broadcast. Left out: from 1 MiB a worker Open MPI cut the ring's chunks in segments. (MPICH: recursive
    doubling up to 2,048 bytes or with fewer values than workers, else halving-doubling.)
    """
    return await node.collective(chosen(vector.nbytes, len(vector), len(node.workers)), vector)


def chosen(nbytes: int, length: int, workers: int) -> Collective:
    """What `auto` runs for a vector of that size."""
    if nbytes < 10_000:
        return recursive_doubling
    return ring if length > workers else binomial


async def native(node: Node, vector: Vector) -> Vector:
    """The engine's own collective (NCCL or gloo)."""
    return await node.all_reduce(vector)


ALGORITHMS: dict[str, Collective] = {
    "ring": ring,
    "nccl-ring": nccl_ring,
    "gloo-ring": gloo_ring,
    "halving-doubling": halving_doubling,
    "recursive-doubling": recursive_doubling,
    "binomial": binomial,
    "two-level": two_level,
    "hierarchical": hierarchical,
    "parameter-server": parameter_server,
    "auto": auto,
    "native": native,
}


async def _body(node: Node, kind: str, sender: int) -> Vector:
    body = (await node.receive(kind, sender)).body
    assert body is not None
    return body


async def _add(node: Node, a: Vector, b: Vector) -> Vector:
    """a + b: two reads and a write."""
    return await node.apply(lambda: a + b, 3 * b.nbytes)


async def _exchange(node: Node, other: int, kind: str, vector: Vector) -> Vector:
    """Send a vector to a rank, and wait for the one that it sends."""
    sent = node.send(other, kind, vector)
    received = await _body(node, kind, other)
    await sent
    return received


def _by_host(node: Node) -> dict[int, list[int]]:
    """The workers of each host, in order."""
    return _grouped(tuple(node.workers), tuple(node.hosts))


@lru_cache(maxsize=64)  # each of the workers asks, for each vector
def _grouped(workers: tuple[int, ...], hosts: tuple[int, ...]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for worker, host in zip(workers, hosts, strict=True):
        found.setdefault(host, []).append(worker)
    return found


@lru_cache(maxsize=64)
def _firsts(workers: tuple[int, ...], hosts: tuple[int, ...]) -> Group:
    """The first workers of hosts, which meet in the ring of `two_level`."""
    firsts = {host: first for host, (first, *_) in _grouped(workers, hosts).items()}
    return Group(tuple(firsts.values()), tuple(firsts), _FIRSTS)


def _neighbours(node: Node, ranks: Sequence[int]) -> tuple[int, int, int, int]:
    """The next and the previous of a ring, how many there are, and the place of this one."""
    p, me = len(ranks), ranks.index(node.rank)
    return ranks[(me + 1) % p], ranks[(me - 1) % p], p, me


async def _ring(node: Node, ranks: Sequence[int], vector: Vector) -> Vector:
    """The ring among some of the workers. simulator/ring.py computes what it does: change both."""
    following, previous, p, me = _neighbours(node, ranks)
    chunks = [shard_of(vector, chunk, p) for chunk in range(p)]
    for step in range(2 * (p - 1)):
        sent = node.send(following, RING, chunks[(me - step) % p])
        received = await _body(node, RING, previous)
        chunk = (me - step - 1) % p
        chunks[chunk] = await _add(node, received, chunks[chunk]) if step < p - 1 else received
        await sent
    return node.concatenate(chunks)


async def _reduce_scatter(node: Node, ranks: Sequence[int], vector: Vector) -> Vector:
    following, previous, p, me = _neighbours(node, ranks)
    chunks = [shard_of(vector, chunk, p) for chunk in range(p)]
    for step in range(p - 1):
        sent = node.send(following, "reduce-scatter", chunks[(me - step - 1) % p])
        chunk = (me - step - 2) % p
        chunks[chunk] = await _add(node, await _body(node, "reduce-scatter", previous), chunks[chunk])
        await sent
    return chunks[me]


async def _all_gather(node: Node, ranks: Sequence[int], vector: Vector) -> Vector:
    following, previous, p, me = _neighbours(node, ranks)
    parts = [vector] * p
    for step in range(p - 1):
        sent = node.send(following, "all-gather", parts[(me - step) % p])
        parts[(me - step - 1) % p] = await _body(node, "all-gather", previous)
        await sent
    return node.concatenate(parts)


async def _ask_and_send(
    node: Node, segments: list[Vector], places: list[int], count: int, adds: bool
) -> None:
    """Send the segments at these places but the last chunk's, and ask for those that are a chunk further on.

    Empty ones are left out. What is sent has come a chunk before, so two steps ahead it is there.
    """
    upstream, downstream, _, _ = _neighbours(node, node.workers)
    steps = range(len(places) - count)
    out = [step for step in steps if len(segments[places[step]])]
    into = [step for step in steps if len(segments[places[step + count]])]
    asked = granted = sent = came = 0
    last: Awaitable[None] | None = None
    while True:
        reach = (into[came] if came < len(into) else len(steps)) + _SEGMENTS
        while asked < len(into) and into[asked] < reach:
            node.send(upstream, "segment")
            asked += 1
        while sent < granted and out[sent] < reach:
            last = node.send(downstream, "segment", segments[places[out[sent]]])
            sent += 1
        if came == len(into) and sent == len(out):
            break
        # whichever comes first, until all are asked for: what is asked for then is of what follows
        message = await node.receive("segment", None if granted < len(out) else upstream)
        if message.body is None:
            granted += 1
        else:
            place, came = places[into[came] + count], came + 1
            own = segments[place]
            segments[place] = await _add(node, message.body, own) if adds else message.body
    if last is not None:
        await last


async def _fold(node: Node, vector: Vector, algorithm: Collective) -> Vector:
    """Run an algorithm for a power of two workers q among the first q.

    Before it, each of the p − q others sends its vector to the worker q before it, and after it gets the
    result from there: 2(α + M/B) more, and more than that where the first messages of other workers meet
    these vectors at a down-link.
    """
    q, me = _power_of_two(len(node.workers)), node.index
    if me >= q:
        partner = node.workers[me - q]
        await node.send(partner, "fold", vector)
        return await _body(node, "unfold", partner)
    extra = node.workers[me + q] if me + q < len(node.workers) else None
    if extra is not None:
        vector = await _add(node, vector, await _body(node, "fold", extra))
    vector = await algorithm(node, vector)
    if extra is not None:
        await node.send(extra, "unfold", vector)
    return vector


def _power_of_two(workers: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (workers.bit_length() - 1)


async def _recursive_doubling(node: Node, vector: Vector) -> Vector:
    distance, q = 1, _power_of_two(len(node.workers))
    while distance < q:
        other = node.workers[node.index ^ distance]
        vector = await _add(node, await _exchange(node, other, "double", vector), vector)
        distance *= 2
    return vector


async def _halving_doubling(node: Node, vector: Vector) -> Vector:
    me, q, n = node.index, _power_of_two(len(node.workers)), len(vector)
    first, distance = 0, q // 2  # of q parts, those from `first` on are left: twice `distance` of them
    while distance:
        start, middle = n * first // q, n * (first + distance) // q
        lower, upper = vector[: middle - start], vector[middle - start :]
        kept, given = (upper, lower) if me & distance else (lower, upper)
        vector = await _add(node, await _exchange(node, node.workers[me ^ distance], "halve", given), kept)
        first += me & distance
        distance //= 2
    distance = 1
    while distance < q:
        got = await _exchange(node, node.workers[me ^ distance], "double", vector)
        vector = node.concatenate([got, vector] if me & distance else [vector, got])
        distance *= 2
    return vector


async def _reduce(node: Node, vector: Vector) -> Vector:
    """Sum at worker 0; what the others return is of no use."""
    p, me, distance = len(node.workers), node.index, 1
    while distance < p:
        if me & distance:
            await node.send(node.workers[me - distance], "reduce", vector)
            break
        if me + distance < p:
            vector = await _add(node, vector, await _body(node, "reduce", node.workers[me + distance]))
        distance *= 2
    return vector


async def _broadcast(node: Node, vector: Vector) -> Vector:
    """Worker 0's vector; the farthest first, which have the most to pass it on to."""
    p, me = len(node.workers), node.index
    distance = me & -me if me else 1 << (p - 1).bit_length()
    if me:
        vector = await _body(node, "broadcast", node.workers[me - distance])
    while distance > 1:
        distance //= 2
        if me + distance < p:
            await node.send(node.workers[me + distance], "broadcast", vector)
    return vector


Algorithm = Literal[
    "ring",
    "nccl-ring",
    "gloo-ring",
    "halving-doubling",
    "recursive-doubling",
    "binomial",
    "two-level",
    "hierarchical",
    "parameter-server",
    "auto",
    "native",
]  # the keys of ALGORITHMS
