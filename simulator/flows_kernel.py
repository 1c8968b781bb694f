"""Events and flows of flows.py over flat arrays: plain Python that numba compiles (asynchronous_kernel.py).

Events are scheduled in the order, and sums added as, in events.py and flows.py, for the same bits. Flows and
links are numbers; a flow has that of the connection which it is on. `net` is all that is known of them:

======= =======================================================================================
shift   a connection has room for 2 ** shift links
route   the links of each connection, -1 after the last
clocks  of links: what the clock shows, since when, the bound, and the instant of the next look
heaps   the flows that links hold back, as a heap for each; where that of a link begins, and its
        length; of flows: the place there, how many were held back before, and what the owner's
        clock reads when it is done (of a flow without owner, what is left of it)
links   bytes that have entered, flows so far, whether it is the bottleneck of all its flows
changes the links that have changed since the last solution, and of each whether it has
======= =======================================================================================

and `entries`, `ends`, `counts`, `owners` and `floats` as in kernel.py.
"""

from math import inf
from typing import Any

from lockstep.simulator.jit import compiled, inlined
from lockstep.simulator.kernel import alone, fill, search

Ints = Any  # an array of shape (n,), int64
Floats = Any  # float64
Several = Any  # a tuple of arrays
Net = Any  # a tuple: see above

START, COMPUTED, BEGIN, LOOK, ARRIVE, SOLVE, APPLIED = range(7)  # kinds of events
# Places in `whole`: events, those scheduled and flows held back so far, links that have changed
EVENTS, ORDER, HELD, CHANGED = range(4)
NORMAL, LAST = 1 << 56, 9 << 56  # priorities; the first of all is 0
SAME = 1 + 1e-12  # as in flows.py


@inlined
def schedule(queue: Several, whole: Ints, at: float, priority: int, what: int, whom: int) -> None:
    """Let something happen at an instant, after what is scheduled there with this priority."""
    times, orders, events = queue
    order, place = priority + whole[ORDER], whole[EVENTS]
    whole[ORDER] += 1
    whole[EVENTS] += 1
    while place:
        above = (place - 1) >> 1
        if times[above] < at or (times[above] == at and orders[above] < order):
            break
        times[place], orders[place], events[place] = times[above], orders[above], events[above]
        place = above
    times[place], orders[place], events[place] = at, order, what + (whom << 3)


@inlined
def take(queue: Several, whole: Ints) -> int:
    """Take the next event out of the queue."""
    times, orders, events = queue
    first = events[0]
    whole[EVENTS] -= 1
    last = whole[EVENTS]
    at, order, event, place = times[last], orders[last], events[last], 0
    while 2 * place + 1 < last:
        below = 2 * place + 1
        other = below + 1
        if other < last and (
            times[other] < times[below] or (times[other] == times[below] and orders[other] < orders[below])
        ):
            below = other
        if at < times[below] or (at == times[below] and order < orders[below]):
            break
        times[place], orders[place], events[place] = times[below], orders[below], events[below]
        place = below
    times[place], orders[place], events[place] = at, order, event
    return int(first)


@inlined
def sooner(one: int, other: int, due: Floats, number: Ints) -> bool:
    """Which of two flows that a link holds back is done first."""
    return bool(due[one] < due[other] or (due[one] == due[other] and number[one] < number[other]))


@inlined
def sift(held: Ints, base: int, length: int, at: int, place: Ints, due: Floats, number: Ints) -> None:
    """Put the flow at a place of a link's heap where it belongs."""
    flow = held[base + at]
    while at and sooner(flow, held[base + ((at - 1) >> 1)], due, number):
        above = (at - 1) >> 1
        held[base + at] = held[base + above]
        place[held[base + at]] = at
        at = above
    while 2 * at + 1 < length:
        below = 2 * at + 1
        if below + 1 < length and sooner(held[base + below + 1], held[base + below], due, number):
            below += 1
        if sooner(flow, held[base + below], due, number):
            break
        held[base + at] = held[base + below]
        place[held[base + at]] = at
        at = below
    held[base + at] = flow
    place[flow] = at


@inlined
def hold(link: int, flow: int, at: float, whole: Ints, heaps: Several) -> None:
    """Let a flow share a link's clock until it reads `at`."""
    held, base, lengths, place, number, due = heaps
    due[flow] = at
    whole[HELD] += 1
    number[flow] = whole[HELD]
    lengths[link] += 1
    held[base[link] + lengths[link] - 1] = flow
    sift(held, base[link], lengths[link], lengths[link] - 1, place, due, number)


@inlined
def let_go(link: int, flow: int, heaps: Several) -> None:
    """Take a flow out of a link's heap."""
    held, base, lengths, place, number, due = heaps
    lengths[link] -= 1
    at, last = place[flow], lengths[link]
    if at < last:
        held[base[link] + at] = held[base[link] + last]
        sift(held, base[link], last, at, place, due, number)


@inlined
def wake(link: int, now: float, queue: Several, whole: Ints, net: Net) -> None:
    """Look at a link when its clock will say that the first of its flows is done: `Flows._wake`."""
    _, _, _, _, _, _, floats, clocks, heaps, _, _ = net
    (held, base, _, _, _, due), (clock, _, _, look_at) = heaps, clocks
    left = due[held[base[link]]] - clock[link]
    at = now + left / floats[3][link] if left > 0 else now
    if at < look_at[link]:
        look_at[link] = at
        schedule(queue, whole, at, NORMAL, LOOK, link)


@inlined
def solve_later(flow: int, now: float, queue: Several, whole: Ints, net: Net) -> None:
    """`Flows._solve_later`."""
    shift, route, _, _, _, _, _, _, _, _, (changed, among) = net
    if not whole[CHANGED]:
        schedule(queue, whole, now, LAST, SOLVE, 0)
    for entry in range(flow << shift, (flow + 1) << shift):
        link = route[entry]
        if link < 0:
            break
        if not among[link]:
            among[link] = True
            changed[whole[CHANGED]] = link
            whole[CHANGED] += 1


@inlined
def harmless(flow: int, narrow: int, gets: float, net: Net) -> bool:
    """`Flows._harmless`."""
    shift, route, entries, ends, counts, owners, floats, clocks, _, _, _ = net
    (after, head), (size, _, count), owner = (entries[2], ends[0]), counts, owners[1]
    (_, sustained, _, rate), bound = floats, clocks[2]
    for each in range(flow << shift, (flow + 1) << shift):
        link = route[each]
        if link < 0:
            break
        if link == narrow:
            continue
        share = sustained[link] / size[link]
        if count[link] or gets > share:
            return False
        if share < bound[narrow]:
            bound[narrow] = share
        if size[link] > 1:
            entry = head[link]
            while entry >= 0:
                other = entry >> shift
                if other != flow:
                    holder = owner[other]
                    if holder < 0 or rate[holder] > share:
                        return False
                    if share < bound[holder]:
                        bound[holder] = share
                entry = after[entry]
    return True


@inlined
def add(flow: int, nbytes: float, now: float, queue: Several, whole: Ints, net: Net) -> None:
    """`Flows.add`."""
    shift, route, entries, ends, counts, owners, floats, clocks, heaps, links, _ = net
    (path, before, after), (head, tail, _, _), (size, _, count) = entries, ends, counts
    owner, (capacity, _, _, rate), (clock, since, _, _) = owners[1], floats, clocks
    held, base, _, _, _, due = heaps
    entered, used, bottleneck = links
    narrow, least, others = route[flow << shift], inf, 0
    for entry in range(flow << shift, (flow + 1) << shift):
        link = route[entry]
        if link < 0:
            break
        there = size[link]
        path[entry], before[entry], after[entry] = link, tail[link], -1
        if tail[link] < 0:
            head[link] = entry
        else:
            after[tail[link]] = entry
        tail[link] = entry
        size[link] += 1
        entered[link] += nbytes
        used[link] += 1
        share = capacity[link] / (there + 1)
        if share <= least and (share < least or used[link] > used[narrow]):
            narrow, least, others = link, share, there
    owner[flow], due[flow] = -1, nbytes  # which it has left until somebody holds it back
    bottleneck[narrow] = others == 0 or (bottleneck[narrow] and count[narrow] == others)
    if not bottleneck[narrow] or not harmless(flow, narrow, least, net):
        solve_later(flow, now, queue, whole, net)
        return
    clock[narrow] = clock[narrow] + rate[narrow] * (now - since[narrow])
    since[narrow], rate[narrow] = now, least
    owner[flow] = narrow
    count[narrow] += 1
    hold(narrow, flow, clock[narrow] + nbytes, whole, heaps)
    if held[base[narrow]] == flow:  # else the next to finish does so later than planned
        wake(narrow, now, queue, whole, net)


@inlined
def widen(link: int, net: Net) -> bool:
    """`Flows._widen`."""
    shift, _, entries, ends, counts, _, floats, clocks, _, _, _ = net
    (path, _, after), head, (size, _, count) = entries, ends[0], counts
    (capacity, sustained, _, rate), (clock, _, bound, _) = floats, clocks
    if not count[link]:
        clock[link] = rate[link] = 0.0
        bound[link] = inf
        return True
    share = capacity[link] / count[link]
    if share > bound[link]:
        least, entry = inf, head[link]
        while entry >= 0:
            flow = entry >> shift
            for each in range(flow << shift, (flow + 1) << shift):
                other = path[each]
                if other < 0:
                    break
                if other != link:
                    least = min(least, sustained[other] / size[other])
            entry = after[entry]
        bound[link] = least
        if share > least:
            return False
    rate[link] = share
    return True


@inlined
def look(link: int, now: float, net: Net, finished: Ints) -> int:
    """The first half of `Flows._look`: how many flows are finished."""
    shift, _, entries, ends, counts, owners, floats, clocks, heaps, _, _ = net
    (path, before, after), (head, tail, _, _), (size, _, count) = entries, ends, counts
    (clock, since, _, look_at), rate = clocks, floats[3]
    held, base, lengths, _, _, due = heaps
    look_at[link] = inf
    clock[link] = clock[link] + rate[link] * (now - since[link])
    since[link] = now
    until, ended = clock[link] * SAME + rate[link] * now * 1e-15, 0
    while lengths[link]:
        flow = held[base[link]]
        if due[flow] > until:
            break
        let_go(link, flow, heaps)
        finished[ended] = flow
        ended += 1
        owners[1][flow] = -1
        for entry in range(flow << shift, (flow + 1) << shift):
            crossed = path[entry]
            if crossed < 0:
                break
            path[entry] = -1
            size[crossed] -= 1
            if before[entry] < 0:
                head[crossed] = after[entry]
            else:
                after[before[entry]] = after[entry]
            if after[entry] < 0:
                tail[crossed] = before[entry]
            else:
                before[after[entry]] = before[entry]
    count[link] -= ended
    return ended


@compiled
def solve(now: float, queue: Several, whole: Ints, net: Net) -> bool:
    """`Flows._solve`; False: a link carries more than it can."""
    shift, _, entries, ends, counts, owners, floats, clocks, heaps, links, (changed, among) = net
    (_, _, reached, met), (size, _, count), (_, owner, earlier, _, _) = ends, counts, owners
    (capacity, _, left, rate), (clock, since, bound, look_at) = floats, clocks
    (_, _, lengths, _, _, due), bottleneck = heaps, links[2]
    part = search(changed[: whole[CHANGED]], shift, entries, ends, owners[0])
    for link in changed[: whole[CHANGED]]:
        among[link] = False
    whole[CHANGED] = 0
    for link in part:
        clock[link] += rate[link] * (now - since[link])
        since[link] = now
    moved = fill(part, shift, entries, ends, counts, owners, floats)
    is_alone = alone(part, shift, entries, ends, counts, owners, floats)
    for flow in moved:
        if earlier[flow] >= 0:
            rest = due[flow] - clock[earlier[flow]]
            let_go(earlier[flow], flow, heaps)
            due[flow] = rest if rest > 0 else 0.0
    for flow in moved:
        hold(owner[flow], flow, clock[owner[flow]] + due[flow], whole, heaps)
    right = True
    for at in range(len(part)):
        link = part[at]
        reached[link] = met[link] = -1
        if left[link] < -1e-9 * capacity[link]:
            right = False
        if count[link]:
            bound[link], bottleneck[link] = 0.0, is_alone[at]
        else:
            bottleneck[link], bound[link], look_at[link] = size[link] == 0, inf, inf
            clock[link] = rate[link] = 0.0
    for link in part:
        if lengths[link]:
            wake(link, now, queue, whole, net)
    return right
