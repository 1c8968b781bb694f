"""Max-min fair rates over flat arrays: plain Python that numba compiles (compiled.py).

Links and flows are numbers here. What crosses a link is a list: of flow f and its k-th link, the entry
(f << shift) + k has the link in the row PATH (-1 after the last), and the entries before and after it on that
link. Every link's list is in the order in which flows came. Sums are added in the order of `max_min`, for its
bits. What there is to know is in rows of few arrays, of links (`lr`: real, `lw`: whole numbers), flows (`fw`)
and entries (`ew`): of each array that a function is given numba counts owners, which took most of the time.
"""

from math import inf

from lockstep.simulator.jit import Ints, Reals, Wholes, compiled, inlined
from lockstep.simulator.lent import lent

# of `lr`: what it can do, bursts included and not; what is left, and the rate of flows that it holds back
CAPACITY, SUSTAINED, LEFT, RATE = range(4)
INNER, SHARE = range(4, 6)  # of `lr`: room for a tree, its inner nodes and its leaves
# of `lw`: a list's first and last entry; two for the search; flows on it, not frozen, and held back
HEAD, TAIL, REACHED, MET, SIZE, RISING, COUNT = range(7)
NEW = (-1, -1, -1, -1, 0, 0, 0)  # of a link
# More of `lw`, by place: links of the part that is solved, as a search meets them, and whether each is
# `alone`; room for those that fill at once, and for nodes of the tree. By link: whether it is unsaturated (1)
# or not (2), and whether anybody wants to hear of it.
QUEUE, ALONE, FILLED, STACK, KNOWN, MATTERS = range(7, 13)
LINK_REALS, LINK_WHOLES = 6, 13  # rows of each
# of `fw`: who holds it back, now, in the last solution and before; room for some flows, and their keys
HOLDER, OWNER, EARLIER, MOVED, KEY = range(5)
PATH, BEFORE, AFTER = range(3)  # of `ew`


@inlined
def append(entry: int, link: int, lw: Wholes, ew: Wholes) -> None:
    """Let an entry come to the end of a link's list."""
    ew[PATH, entry], ew[BEFORE, entry], ew[AFTER, entry] = link, lw[TAIL, link], -1
    if lw[TAIL, link] < 0:
        lw[HEAD, link] = entry
    else:
        ew[AFTER, lw[TAIL, link]] = entry
    lw[TAIL, link] = entry
    lw[SIZE, link] += 1


@inlined
def remove(flow: int, shift: int, lw: Wholes, ew: Wholes) -> None:
    """Let a flow leave its links' lists."""
    for entry in range(flow << shift, (flow + 1) << shift):
        link = ew[PATH, entry]
        if link < 0:
            break
        ew[PATH, entry] = -1
        lw[SIZE, link] -= 1
        if ew[BEFORE, entry] < 0:
            lw[HEAD, link] = ew[AFTER, entry]
        else:
            ew[AFTER, ew[BEFORE, entry]] = ew[AFTER, entry]
        if ew[AFTER, entry] < 0:
            lw[TAIL, link] = ew[BEFORE, entry]
        else:
            ew[BEFORE, ew[AFTER, entry]] = ew[BEFORE, entry]


@compiled
def join(come: Ints, lw: Wholes, ew: Wholes) -> None:
    """Let entries come to the ends of links' lists: an entry, its link, the next entry, …"""
    for at in range(0, len(come), 2):
        append(come[at], come[at + 1], lw, ew)


@compiled
def leave(gone: Ints, shift: int, lw: Wholes, ew: Wholes) -> None:
    """Let flows leave their links' lists."""
    for flow in gone:
        remove(flow, shift, lw, ew)


@compiled
def search(changed: Ints, shift: int, lw: Wholes, fw: Wholes, ew: Wholes) -> int:
    """Find the links that share flows, directly or not, with changed ones: how many.

    They come into QUEUE, in the order of `filling.Order`, and get their numbers in REACHED and MET, which are
    -1 else; their flows no holder.
    """
    n = come_upon = 0
    for link in changed:
        lw[REACHED, link], lw[QUEUE, n] = n, link
        n += 1
    looked = 0
    while looked < n:
        entry = lw[HEAD, lw[QUEUE, looked]]
        looked += 1
        while entry >= 0:
            flow = entry >> shift
            fw[HOLDER, flow] = -1
            for each in range(flow << shift, (flow + 1) << shift):
                link = ew[PATH, each]
                if link < 0:
                    break
                if lw[MET, link] < 0:
                    lw[MET, link] = come_upon
                    come_upon += 1
                    if lw[REACHED, link] < 0:
                        lw[REACHED, link], lw[QUEUE, n] = n, link
                        n += 1
            entry = ew[AFTER, entry]
    return n


@inlined
def least_below(node: int, n: int, lr: Reals) -> float:
    """The least of the two below an inner node, 1 to n - 1, of a tree of n leaves, n to 2 n - 1."""
    left, right = 2 * node, 2 * node + 1
    one: float = lr[INNER, left] if left < n else lr[SHARE, left - n]
    other: float = lr[INNER, right] if right < n else lr[SHARE, right - n]
    return one if one < other else other


@inlined
def put(leaf: int, n: int, value: float, lr: Reals) -> None:
    """Give a leaf of the tree another value."""
    lr[SHARE, leaf] = value
    node = (leaf + n) // 2
    while node:
        least = least_below(node, n, lr)
        if lr[INNER, node] == least:
            return
        lr[INNER, node] = least
        node //= 2


@compiled
def fill(n: int, shift: int, lr: Reals, lw: Wholes, fw: Wholes, ew: Wholes) -> int:
    """Fill the first n links of QUEUE, by rounds; how many flows another link holds back now.

    Sets LEFT, RATE and COUNT of each link; HOLDER and OWNER of each flow, and EARLIER where that was another.
    These flows are in MOVED, in the order of rounds, then that in which a search meets links, then looks at
    flows.
    """
    # A tree: each has the least of the two below it. What has grown is only looked at when it is the least.
    for at in range(n):
        link = lw[QUEUE, at]
        lr[LEFT, link], lr[RATE, link] = lr[CAPACITY, link], 0.0
        lw[RISING, link], lw[COUNT, link] = lw[SIZE, link], 0
        lr[SHARE, at] = lr[CAPACITY, link] / lw[SIZE, link] if lw[SIZE, link] else inf
    for node in range(n - 1, 0, -1):
        lr[INNER, node] = least_below(node, n, lr)
    moves = 0
    while n:
        least = lr[INNER, 1] if n > 1 else lr[SHARE, 0]
        if least == inf:
            break
        fills, top = 0, 1
        lw[STACK, 0] = 1
        while top:  # which have the least: few, as a rule one
            top -= 1
            node = lw[STACK, top]
            if node < n:
                if lr[INNER, node] == least:
                    lw[STACK, top], lw[STACK, top + 1] = 2 * node, 2 * node + 1
                    top += 2
            elif lr[SHARE, node - n] == least:
                link, place = lw[QUEUE, node - n], fills
                gets = lr[LEFT, link] / lw[RISING, link] if lw[RISING, link] else inf
                if gets > least:
                    put(node - n, n, gets, lr)
                    continue
                while place and lw[MET, lw[FILLED, place - 1]] > lw[MET, link]:
                    lw[FILLED, place] = lw[FILLED, place - 1]
                    place -= 1
                lw[FILLED, place] = link
                fills += 1
        for at in range(fills):
            link = lw[FILLED, at]
            lr[RATE, link] = least
            first, entry = moves, lw[HEAD, link]
            while entry >= 0:
                flow = entry >> shift
                if fw[HOLDER, flow] < 0:
                    fw[HOLDER, flow] = link
                    lw[COUNT, link] += 1
                    soonest = lw[REACHED, link]
                    for each in range(flow << shift, (flow + 1) << shift):
                        other = ew[PATH, each]
                        if other < 0:
                            break
                        soonest = min(soonest, lw[REACHED, other])
                        if other != link:
                            lr[LEFT, other] -= least
                            lw[RISING, other] -= 1
                            gets = lr[LEFT, other] / lw[RISING, other] if lw[RISING, other] else inf
                            if gets < lr[SHARE, lw[REACHED, other]]:  # by rounding
                                put(lw[REACHED, other], n, gets, lr)
                    if fw[OWNER, flow] != link:
                        fw[EARLIER, flow], fw[OWNER, flow], place = fw[OWNER, flow], link, moves
                        while place > first and fw[KEY, place - 1] > soonest:
                            fw[MOVED, place], fw[KEY, place] = fw[MOVED, place - 1], fw[KEY, place - 1]
                            place -= 1
                        fw[MOVED, place], fw[KEY, place] = flow, soonest
                        moves += 1
                entry = ew[AFTER, entry]
            lw[RISING, link] = 0
    return moves


@compiled
def alone(n: int, shift: int, lr: Reals, lw: Wholes, fw: Wholes, ew: Wholes) -> None:
    """Whether each of the first n links of QUEUE holds back all who cross it, and is `Filling.alone`."""
    for at in range(n):
        lw[KNOWN, lw[QUEUE, at]] = 0
    for at in range(n):
        link = lw[QUEUE, at]
        entry = lw[HEAD, link]
        found = lw[COUNT, link] > 0 and lw[COUNT, link] == lw[SIZE, link]
        while found and entry >= 0:
            flow = entry >> shift
            for each in range(flow << shift, (flow + 1) << shift):
                other = ew[PATH, each]
                if other < 0:
                    break
                if other == link:
                    continue
                if lw[COUNT, other]:
                    found = False
                    break
                if not lw[KNOWN, other]:
                    fastest, across = 0.0, lw[HEAD, other]
                    while across >= 0:
                        fastest = max(fastest, lr[RATE, fw[HOLDER, across >> shift]])
                        across = ew[AFTER, across]
                    lw[KNOWN, other] = 1 if fastest * lw[SIZE, other] <= lr[SUSTAINED, other] else 2
                if lw[KNOWN, other] == 2:
                    found = False
                    break
            entry = ew[AFTER, entry]
        lw[ALONE, at] = found


@compiled
def solve(
    gone: Ints,
    come: Ints,
    owned: Ints,
    changed: Ints,
    everywhere: int,
    shift: int,
    lr: Reals,
    lw: Wholes,
    fw: Wholes,
    ew: Wholes,
    counts: Ints,
) -> int:
    """Let flows go and come, and solve what shares links with changed ones, directly or not.

    come: as in `join`; owned: a flow that comes, its owner or −1, the next flow, …; everywhere: see below.

    Into QUEUE, as the search meets them, come links that hold back flows, or did, or have changed, or simply
    all (everywhere), and into ALONE whether each is `alone`; a rate is 0 where a link does not fill. Into
    MOVED come flows with another owner now. counts: how many of both there are. Returned: a link that carries
    more than its capacity, or −1.
    """
    gone, come, owned, changed, counts = lent((gone, come, owned, changed, counts))
    lr, lw, fw, ew = lent((lr, lw, fw, ew))
    leave(gone, shift, lw, ew)
    join(come, lw, ew)
    for at in range(0, len(owned), 2):
        fw[OWNER, owned[at]] = link = owned[at + 1]
        if link >= 0:
            lw[COUNT, link] += 1
    n = search(changed, shift, lw, fw, ew)
    for at in range(n):
        link = lw[QUEUE, at]
        lw[MATTERS, link] = everywhere or at < len(changed) or lw[COUNT, link] > 0
    counts[1] = fill(n, shift, lr, lw, fw, ew)
    alone(n, shift, lr, lw, fw, ew)
    too_much, kept = -1, 0
    for at in range(n):
        link = lw[QUEUE, at]
        lw[REACHED, link] = lw[MET, link] = -1
        if lr[LEFT, link] < -1e-9 * lr[CAPACITY, link]:
            too_much = link
        if lw[MATTERS, link] or lw[COUNT, link]:
            lw[QUEUE, kept], lw[ALONE, kept] = link, lw[ALONE, at]
            kept += 1
    counts[0] = kept
    return too_much
