"""Max-min fair rates over flat arrays: plain Python that numba compiles (compiled.py).

A link and a flow are numbers here. What crosses a link is a list: of flow f and its k-th link, the entry
(f << shift) + k has the link in `path` (−1 after the last), and the entries before and after it on that link.
Every link's list is in the order in which flows came. Sums are added in the order of `max_min`, for its bits.
"""

from math import inf
from typing import Any

import numpy as np

from lockstep.simulator.jit import compiled, inlined

Ints = Any  # an array of shape (n,), int32
Floats = Any  # float64
Several = Any  # a tuple of either


@compiled
def join(come: Ints, entries: Several, ends: Several, size: Ints) -> None:
    """Let entries come to the ends of links' lists: an entry, its link, the next entry, …"""
    (path, before, after), (head, tail, _, _) = entries, ends
    for at in range(0, len(come), 2):
        entry, link = come[at], come[at + 1]
        path[entry], before[entry], after[entry] = link, tail[link], -1
        if tail[link] < 0:
            head[link] = entry
        else:
            after[tail[link]] = entry
        tail[link] = entry
        size[link] += 1


@compiled
def leave(gone: Ints, shift: int, entries: Several, ends: Several, size: Ints) -> None:
    """Let flows leave their links' lists."""
    (path, before, after), (head, tail, _, _) = entries, ends
    for flow in gone:
        for entry in range(flow << shift, (flow + 1) << shift):
            link = path[entry]
            if link < 0:
                break
            path[entry] = -1
            size[link] -= 1
            if before[entry] < 0:
                head[link] = after[entry]
            else:
                after[before[entry]] = after[entry]
            if after[entry] < 0:
                tail[link] = before[entry]
            else:
                before[after[entry]] = before[entry]


@compiled
def search(changed: Ints, shift: int, entries: Several, ends: Several, holder: Ints) -> Any:
    """The links that share flows, directly or not, with changed ones, in the order of `filling.Order`.

    Those that are reached get their numbers in `reached` and `met`, which are −1 else; their flows no holder.
    """
    (path, _, after), (head, _, reached, met) = entries, ends
    queue = np.empty(len(reached), np.int32)
    n = come_upon = 0
    for link in changed:
        reached[link], queue[n] = n, link
        n += 1
    looked = 0
    while looked < n:
        entry = head[queue[looked]]
        looked += 1
        while entry >= 0:
            flow = entry >> shift
            holder[flow] = -1
            for each in range(flow << shift, (flow + 1) << shift):
                link = path[each]
                if link < 0:
                    break
                if met[link] < 0:
                    met[link] = come_upon
                    come_upon += 1
                    if reached[link] < 0:
                        reached[link], queue[n] = n, link
                        n += 1
            entry = after[entry]
    return queue[:n]


@inlined
def put(tree: Floats, at: int, value: float) -> None:
    """Give a leaf of a tree another value."""
    tree[at] = value
    while at > 1:
        at //= 2
        value = min(tree[2 * at], tree[2 * at + 1])
        if tree[at] == value:
            return
        tree[at] = value


@compiled
def fill(
    queue: Ints,
    shift: int,
    entries: Several,
    ends: Several,
    counts: Several,
    owners: Several,
    floats: Several,
) -> Any:
    """Fill the links of a queue, by rounds; the flows that another link holds back now, in order.

    Sets of each link what it has `left`, its `rate`, and the `count` of the flows that it holds back; of each
    flow its `holder`, and its `owner` to the same; `earlier` is whose it was, if another's. The order is that
    of rounds, then that in which a search meets links, then that in which it looks at flows.
    """
    (path, _, after), (head, _, reached, met) = entries, ends
    (size, rising, count), (capacity, _, left, rate) = counts, floats
    holder, owner, earlier, moved, keys = owners
    n, leaves = len(queue), 1
    while leaves < n:
        leaves *= 2
    # A tree: each has the least of the two below it. What has grown is only looked at when it is the least.
    share = np.full(2 * leaves, inf)
    for at in range(n):
        link = queue[at]
        left[link], rising[link], rate[link], count[link] = capacity[link], size[link], 0.0, 0
        if size[link]:
            share[leaves + at] = capacity[link] / size[link]
    for at in range(leaves - 1, 0, -1):
        share[at] = min(share[2 * at], share[2 * at + 1])
    filled, stack = np.empty(n, np.int32), np.empty(2 * leaves, np.int32)
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
                    gets = left[link] / rising[link] if rising[link] else inf
                    if gets > least:
                        put(share, at, gets)
                        continue
                    while place and met[filled[place - 1]] > met[link]:
                        filled[place] = filled[place - 1]
                        place -= 1
                    filled[place] = link
                    fills += 1
                else:
                    stack[top], stack[top + 1] = 2 * at, 2 * at + 1
                    top += 2
        for link in filled[:fills]:
            rate[link] = least
            first, entry = moves, head[link]
            while entry >= 0:
                flow = entry >> shift
                if holder[flow] < 0:
                    holder[flow] = link
                    count[link] += 1
                    soonest = reached[link]
                    for each in range(flow << shift, (flow + 1) << shift):
                        other = path[each]
                        if other < 0:
                            break
                        soonest = min(soonest, reached[other])
                        if other != link:
                            left[other] -= least
                            rising[other] -= 1
                            gets = left[other] / rising[other] if rising[other] else inf
                            if gets < share[leaves + reached[other]]:  # by rounding
                                put(share, leaves + reached[other], gets)
                    if owner[flow] != link:
                        earlier[flow], owner[flow], place = owner[flow], link, moves
                        while place > first and keys[place - 1] > soonest:
                            moved[place], keys[place] = moved[place - 1], keys[place - 1]
                            place -= 1
                        moved[place], keys[place] = flow, soonest
                        moves += 1
                entry = after[entry]
            rising[link] = 0
    return moved[:moves]


@compiled
def alone(
    queue: Ints,
    shift: int,
    entries: Several,
    ends: Several,
    counts: Several,
    owners: Several,
    floats: Several,
) -> Any:
    """Of each link of a queue, whether it holds back all who cross it, and `Filling.alone`."""
    (path, _, after), (head, _, _, _) = entries, ends
    (size, _, count), holder, (_, sustained, _, rate) = counts, owners[0], floats
    found = np.zeros(len(queue), np.bool_)
    known = np.zeros(len(head), np.int8)  # 1: unsaturated, 2: not so
    for at in range(len(queue)):
        link = queue[at]
        entry = head[link]
        found[at] = count[link] > 0 and count[link] == size[link]
        while found[at] and entry >= 0:
            flow = entry >> shift
            for each in range(flow << shift, (flow + 1) << shift):
                other = path[each]
                if other < 0:
                    break
                if other == link:
                    continue
                if count[other]:
                    found[at] = False
                    break
                if not known[other]:
                    fastest, across = 0.0, head[other]
                    while across >= 0:
                        fastest = max(fastest, rate[holder[across >> shift]])
                        across = after[across]
                    known[other] = 1 if fastest * size[other] <= sustained[other] else 2
                if known[other] == 2:
                    found[at] = False
                    break
            entry = after[entry]
    return found


@compiled
def solve(
    gone: Ints,
    come: Ints,
    owned: Ints,
    changed: Ints,
    everywhere: bool,
    shift: int,
    entries: Several,
    ends: Several,
    counts: Several,
    owners: Several,
    floats: Several,
) -> Any:
    """Let flows go and come, and solve what shares links with changed ones, directly or not.

    come: as in `join`; owned: a flow that comes, its owner or −1, the next flow, …; everywhere: see below.
    entries: of lists, the links (`path`), and the entries before and after; ends: of links, their lists'
    first and last entries, and two for the search; counts: of links, the flows on it, not frozen, and held
    back; owners: of flows, a new one and the last, and room for earlier ones, for flows, and for keys; floats:
    of links, capacity, sustained capacity, what is left, and rate.

    Returned, as the search meets them: links that hold back flows, or did, or have changed, or simply all
    (everywhere); for each its rate, 0 if it does not fill, and whether it is `alone`; flows with another
    owner now; and a link that carries more than its capacity, or −1.
    """
    leave(gone, shift, entries, ends, counts[0])
    join(come, entries, ends, counts[0])
    for at in range(0, len(owned), 2):
        owners[1][owned[at]] = link = owned[at + 1]
        if link >= 0:
            counts[2][link] += 1
    queue = search(changed, shift, entries, ends, owners[0])
    matters = counts[2][queue] > 0
    matters[: len(changed)] = True
    moved = fill(queue, shift, entries, ends, counts, owners, floats)
    matters |= counts[2][queue] > 0
    is_alone = alone(queue, shift, entries, ends, counts, owners, floats)
    too_much = -1
    for link in queue:
        ends[2][link] = ends[3][link] = -1
        if floats[2][link] < -1e-9 * floats[0][link]:
            too_much = link
    if not everywhere:
        queue, is_alone = queue[matters], is_alone[matters]
    return queue, floats[3][queue], is_alone, moved, too_much
