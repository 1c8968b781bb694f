"""Max-min fair rates over flat arrays: plain Python that numba compiles (compiled.py).

Links and flows are numbers here. What crosses a link is a list: of flow f and its k-th link, the entry
(f << shift) + k has the link in the row PATH (-1 after the last), and the entries before and after it on that
link. Every link's list is in the order in which flows came. Sums are added in the order of `max_min`, for its
bits. What there is to know is in rows of few arrays, of links (`lr`: real, `lw`: whole numbers), flows (`fw`)
and entries (`ew`): of each array that a function is given numba counts owners, which took most of the time.
"""

from math import inf
from typing import Any

import numpy as np

from lockstep.simulator.jit import compiled, inlined

Ints = Any  # an array of shape (n,), int64
Rows = Any  # shape (rows, n), float64 (`lr`) or int64
# of `lr`: what it can do, bursts included and not; what is left, and the rate of flows that it holds back
CAPACITY, SUSTAINED, LEFT, RATE = range(4)
# of `lw`: a list's first and last entry; two for the search; flows on it, not frozen, and held back
HEAD, TAIL, REACHED, MET, SIZE, RISING, COUNT = range(7)
NEW = (-1, -1, -1, -1, 0, 0, 0)  # of a link
# of `fw`: who holds it back, now, in the last solution and before; room for some flows, and their keys
HOLDER, OWNER, EARLIER, MOVED, KEY = range(5)
PATH, BEFORE, AFTER = range(3)  # of `ew`


@inlined
def append(entry: int, link: int, lw: Rows, ew: Rows) -> None:
    """Let an entry come to the end of a link's list."""
    ew[PATH, entry], ew[BEFORE, entry], ew[AFTER, entry] = link, lw[TAIL, link], -1
    if lw[TAIL, link] < 0:
        lw[HEAD, link] = entry
    else:
        ew[AFTER, lw[TAIL, link]] = entry
    lw[TAIL, link] = entry
    lw[SIZE, link] += 1


@inlined
def remove(flow: int, shift: int, lw: Rows, ew: Rows) -> None:
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
def join(come: Ints, lw: Rows, ew: Rows) -> None:
    """Let entries come to the ends of links' lists: an entry, its link, the next entry, …"""
    for at in range(0, len(come), 2):
        append(come[at], come[at + 1], lw, ew)


@compiled
def leave(gone: Ints, shift: int, lw: Rows, ew: Rows) -> None:
    """Let flows leave their links' lists."""
    for flow in gone:
        remove(flow, shift, lw, ew)


@compiled
def search(changed: Ints, shift: int, lw: Rows, fw: Rows, ew: Rows) -> Any:
    """The links that share flows, directly or not, with changed ones, in the order of `filling.Order`.

    Those that are reached get their numbers in REACHED and MET, which are -1 else; their flows no holder.
    """
    queue = np.empty(lw.shape[1], np.int64)
    n = come_upon = 0
    for link in changed:
        lw[REACHED, link], queue[n] = n, link
        n += 1
    looked = 0
    while looked < n:
        entry = lw[HEAD, queue[looked]]
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
                        lw[REACHED, link], queue[n] = n, link
                        n += 1
            entry = ew[AFTER, entry]
    return queue[:n]


@inlined
def put(tree: Rows, at: int, value: float) -> None:
    """Give a leaf of a tree another value."""
    tree[at] = value
    while at > 1:
        at //= 2
        value = min(tree[2 * at], tree[2 * at + 1])
        if tree[at] == value:
            return
        tree[at] = value


@compiled
def fill(queue: Ints, shift: int, lr: Rows, lw: Rows, fw: Rows, ew: Rows) -> Any:
    """Fill the links of a queue, by rounds; the flows that another link holds back now, in order.

    Sets LEFT, RATE and COUNT of each link; HOLDER and OWNER of each flow, and EARLIER where that was another.
    The order is that of rounds, then that in which a search meets links, then looks at flows.
    """
    n, leaves = len(queue), 1
    while leaves < n:
        leaves *= 2
    # A tree: each has the least of the two below it. What has grown is only looked at when it is the least.
    share = np.full(2 * leaves, inf)
    for at in range(n):
        link = queue[at]
        lr[LEFT, link], lr[RATE, link] = lr[CAPACITY, link], 0.0
        lw[RISING, link], lw[COUNT, link] = lw[SIZE, link], 0
        if lw[SIZE, link]:
            share[leaves + at] = lr[CAPACITY, link] / lw[SIZE, link]
    for at in range(leaves - 1, 0, -1):
        share[at] = min(share[2 * at], share[2 * at + 1])
    filled, stack = np.empty(n, np.int64), np.empty(2 * leaves, np.int64)
    moves = 0
    while share[1] < inf:
        least = share[1]
        fills, top = 0, 1
        stack[0] = 1
        while top:  # which have the least: few, as a rule one
            top -= 1
            at = stack[top]
            if share[at] == least:
                if at >= leaves:
                    link, place = queue[at - leaves], fills
                    gets = lr[LEFT, link] / lw[RISING, link] if lw[RISING, link] else inf
                    if gets > least:
                        put(share, at, gets)
                        continue
                    while place and lw[MET, filled[place - 1]] > lw[MET, link]:
                        filled[place] = filled[place - 1]
                        place -= 1
                    filled[place] = link
                    fills += 1
                else:
                    stack[top], stack[top + 1] = 2 * at, 2 * at + 1
                    top += 2
        for link in filled[:fills]:
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
                            if gets < share[leaves + lw[REACHED, other]]:  # by rounding
                                put(share, leaves + lw[REACHED, other], gets)
                    if fw[OWNER, flow] != link:
                        fw[EARLIER, flow], fw[OWNER, flow], place = fw[OWNER, flow], link, moves
                        while place > first and fw[KEY, place - 1] > soonest:
                            fw[MOVED, place], fw[KEY, place] = fw[MOVED, place - 1], fw[KEY, place - 1]
                            place -= 1
                        fw[MOVED, place], fw[KEY, place] = flow, soonest
                        moves += 1
                entry = ew[AFTER, entry]
            lw[RISING, link] = 0
    return fw[MOVED, :moves]


@compiled
def alone(queue: Ints, shift: int, lr: Rows, lw: Rows, fw: Rows, ew: Rows) -> Any:
    """Of each link of a queue, whether it holds back all who cross it, and `Filling.alone`."""
    found = np.zeros(len(queue), np.bool_)
    known = np.zeros(lw.shape[1], np.int8)  # 1: unsaturated, 2: not so
    for at in range(len(queue)):
        link = queue[at]
        entry = lw[HEAD, link]
        found[at] = lw[COUNT, link] > 0 and lw[COUNT, link] == lw[SIZE, link]
        while found[at] and entry >= 0:
            flow = entry >> shift
            for each in range(flow << shift, (flow + 1) << shift):
                other = ew[PATH, each]
                if other < 0:
                    break
                if other == link:
                    continue
                if lw[COUNT, other]:
                    found[at] = False
                    break
                if not known[other]:
                    fastest, across = 0.0, lw[HEAD, other]
                    while across >= 0:
                        fastest = max(fastest, lr[RATE, fw[HOLDER, across >> shift]])
                        across = ew[AFTER, across]
                    known[other] = 1 if fastest * lw[SIZE, other] <= lr[SUSTAINED, other] else 2
                if known[other] == 2:
                    found[at] = False
                    break
            entry = ew[AFTER, entry]
    return found


@compiled
def solve(
    gone: Ints,
    come: Ints,
    owned: Ints,
    changed: Ints,
    everywhere: bool,
    shift: int,
    lr: Rows,
    lw: Rows,
    fw: Rows,
    ew: Rows,
) -> Any:
    """Let flows go and come, and solve what shares links with changed ones, directly or not.

    come: as in `join`; owned: a flow that comes, its owner or −1, the next flow, …; everywhere: see below.

    Returned, as the search meets them: links that hold back flows, or did, or have changed, or simply all
    (everywhere); for each its rate, 0 if it does not fill, and whether it is `alone`; flows with another
    owner now; and a link that carries more than its capacity, or −1.
    """
    leave(gone, shift, lw, ew)
    join(come, lw, ew)
    for at in range(0, len(owned), 2):
        fw[OWNER, owned[at]] = link = owned[at + 1]
        if link >= 0:
            lw[COUNT, link] += 1
    queue = search(changed, shift, lw, fw, ew)
    matters = lw[COUNT][queue] > 0
    matters[: len(changed)] = True
    moved = fill(queue, shift, lr, lw, fw, ew)
    matters |= lw[COUNT][queue] > 0
    is_alone = alone(queue, shift, lr, lw, fw, ew)
    too_much = -1
    for link in queue:
        lw[REACHED, link] = lw[MET, link] = -1
        if lr[LEFT, link] < -1e-9 * lr[CAPACITY, link]:
            too_much = link
    if not everywhere:
        queue, is_alone = queue[matters], is_alone[matters]
    return queue, lr[RATE][queue], is_alone, moved, too_much
