"""Events and flows of flows.py and solving.py over flat arrays: what numba compiles (asynchronous_kernel.py).

Events are scheduled in the order, and sums added as, in events.py and flows.py, for the same bits. Flows and
links are numbers; a flow has that of the connection which it is on. `net` is all that is known of them: how
many bits a link's number takes in an entry (`shift`), the rows of kernel.py with some more, and of each link
the heap of the flows that it holds back: what its clock reads when they are due, how many were held back
before, and which they are. An entry stays when its flow is held elsewhere, as in flows.py.
"""

from math import inf

from lockstep.simulator.jit import Floats, Ints, Reals, Wholes, compiled, inlined
from lockstep.simulator.kernel import (
    AFTER,
    ALONE,
    CAPACITY,
    COUNT,
    EARLIER,
    HEAD,
    LEFT,
    LINK_REALS,
    LINK_WHOLES,
    MET,
    MOVED,
    OWNER,
    PATH,
    QUEUE,
    RATE,
    REACHED,
    SIZE,
    SUSTAINED,
    alone,
    append,
    fill,
    remove,
    search,
)

Heap = tuple[Floats, Ints, Ints]  # keys, numbers that are unique, and items
Queue = Heap  # of events: their instants, their order there, and what they are and of whom
Net = tuple[int, Reals, Wholes, Reals, Wholes, Wholes, Heap]  # see above
# More of `lr`: what the clock shows, since when, the bound, the next look, and bytes that have entered
CLOCK, SINCE, BOUND, LOOK_AT, ENTERED = range(LINK_REALS, LINK_REALS + 5)
# of `lw`: where the heap begins, and its length; flows so far, whether it is the bottleneck of all its flows;
# links that have changed since the last solution, and of each whether it has; above which its heap is tight
BASE, LENGTH, USED, BOTTLENECK, CHANGES, AMONG, ENOUGH = range(LINK_WHOLES, LINK_WHOLES + 7)
# the first and last of the messages that are told when rates change there (queues_kernel.py)
FIRST_TOLD, LAST_TOLD = range(LINK_WHOLES + 7, LINK_WHOLES + 9)
NET_REALS, NET_WHOLES = LINK_REALS + 5, LINK_WHOLES + 9  # rows of each
# of `fw`: room for flows that are finished; how many had been held back when it came
FINISHED, BORN = range(5, 7)
LISTED, IS_TOLD = range(7, 9)  # messages that are told, in order, and whether each is
ROUTE = 3  # of `ew`: the links of a connection, where PATH has those of its flow; -1 after the last
TOLD_BEFORE, TOLD_AFTER = range(4, 6)  # of a message and a link: the next in the list of FIRST_TOLD
DUE = 0  # of `fr`: what the owner's clock reads when it is done; without an owner, what is left

START, COMPUTED, BEGIN, LOOK, ARRIVE, SOLVE, APPLIED, HEAR, PLANNED = range(9)  # kinds of events
# Places in `whole`: events, those scheduled and flows held back so far, links changed, messages told, whether
# a heap is tight, and what is done without a pause; the orders in which rates are solved and messages hear of
# them, after all else of this instant, 0: they are not
EVENTS, ORDER, HELD, CHANGED, TOLD, TIGHT, WORK, SOLVES, HEARS = range(9)
NORMAL, LAST, AFTER_LAST = 1 << 56, 9 << 56, 10 << 56  # priorities; the first of all is 0
SAME = 1 + 1e-12  # as in flows.py


@inlined
def push(heap: Heap, base: int, length: int, key: float, number: int, item: int) -> None:
    """Let an item come into the heap of that length which begins there; of equal keys the number decides."""
    keys, numbers, items = heap
    place = length
    while place:
        above = base + ((place - 1) >> 1)
        if keys[above] < key or (keys[above] == key and numbers[above] < number):
            break
        to = base + place
        keys[to], numbers[to], items[to] = keys[above], numbers[above], items[above]
        place = above - base
    keys[base + place], numbers[base + place], items[base + place] = key, number, item


@inlined
def pop(heap: Heap, base: int, length: int) -> None:
    """Take the first item out of a heap, which has that length then."""
    keys, numbers, items = heap
    key, number, item = keys[base + length], numbers[base + length], items[base + length]
    place, below = 0, 1
    # The lesser of two comes up, down to the leaves; by `|` and `&`, as nobody can foresee which it is.
    while below + 1 < length:
        at = base + below
        one, other = keys[at], keys[at + 1]
        right = int((other < one) | ((other == one) & (numbers[at + 1] < numbers[at])))
        to, at = base + place, at + right
        keys[to], numbers[to], items[to] = keys[at], numbers[at], items[at]
        place = below + right
        below = 2 * place + 1
    if below < length:
        to, at = base + place, base + below
        keys[to], numbers[to], items[to] = keys[at], numbers[at], items[at]
        place = below
    push(heap, base, place, key, number, item)  # the last one is as a rule among the greatest


@inlined
def schedule(queue: Heap, whole: Ints, at: float, priority: int, what: int, whom: int) -> None:
    """Let something happen at an instant, after what is scheduled there with this priority."""
    push(queue, 0, whole[EVENTS], at, priority + whole[ORDER], what + (whom << 4))
    whole[ORDER] += 1
    whole[EVENTS] += 1


@inlined
def at_last(whole: Ints, place: int, priority: int) -> None:
    """`schedule` in this instant: there is one at most, which would have to come up through all the queue."""
    whole[place] = priority + whole[ORDER]
    whole[ORDER] += 1


@inlined
def last_now(now: float, queue: Heap, whole: Ints) -> int:
    """Which of these is next: SOLVES or HEARS; 0: the first of the queue is, if there is one."""
    place = SOLVES if whole[SOLVES] else HEARS
    if not whole[place] or (whole[EVENTS] and queue[0][0] <= now and queue[1][0] < whole[place]):
        return 0
    return place


@inlined
def take(queue: Heap, whole: Ints) -> int:
    """Take the next event out of the queue."""
    first = queue[2][0]
    whole[EVENTS] -= 1
    pop(queue, 0, whole[EVENTS])
    return int(first)


@inlined
def hold(link: int, flow: int, at: float, whole: Ints, net: Net) -> None:
    """Let a flow share a link's clock until it reads `at`: `Flows.hold`."""
    _, _, lw, fr, _, _, held = net
    fr[DUE, flow] = at
    whole[HELD] += 1
    push(held, lw[BASE, link], lw[LENGTH, link], at, whole[HELD], flow)
    lw[LENGTH, link] += 1
    if lw[LENGTH, link] > lw[ENOUGH, link]:
        whole[TIGHT] = 1


@compiled
def drop(link: int, net: Net) -> None:
    """Take the first out of a link's heap."""
    _, _, lw, _, _, _, held = net
    lw[LENGTH, link] -= 1
    pop(held, lw[BASE, link], lw[LENGTH, link])


@inlined
def counts(link: int, net: Net) -> bool:
    """Whether the first in a link's heap has not been cancelled, or held elsewhere since."""
    _, _, lw, fr, fw, _, (dues, numbers, flows) = net
    first = lw[BASE, link]
    flow = flows[first]
    here = fw[OWNER, flow] == link and fr[DUE, flow] == dues[first]
    return bool(here and numbers[first] > fw[BORN, flow])


@compiled
def tell(message: int, whole: Ints, net: Net) -> None:
    """`Queues.look_at`."""
    fw = net[4]
    if not whole[TOLD]:
        at_last(whole, HEARS, AFTER_LAST)
    if fw[IS_TOLD, message] <= 0:
        fw[IS_TOLD, message], fw[LISTED, whole[TOLD]] = 1, message
        whole[TOLD] += 1


@compiled
def tell_all(link: int, whole: Ints, net: Net) -> None:
    """Tell those who listen to a link."""
    shift, _, lw, _, _, ew, _ = net
    entry = lw[FIRST_TOLD, link]
    while entry >= 0:
        tell(entry >> shift, whole, net)
        entry = ew[TOLD_AFTER, entry]


@inlined
def wake(link: int, now: float, queue: Queue, whole: Ints, net: Net) -> None:
    """Look at a link when its clock will say that the first of its flows is done: `Flows.wake`."""
    _, lr, lw, _, _, _, (dues, _, _) = net
    left = dues[lw[BASE, link]] - lr[CLOCK, link]
    at = now + left / lr[RATE, link] if left > 0 else now
    if at < lr[LOOK_AT, link]:
        lr[LOOK_AT, link] = at
        schedule(queue, whole, at, NORMAL, LOOK, link)


@compiled
def plan(link: int, now: float, queue: Queue, whole: Ints, net: Net) -> None:
    """`Flows.plan`."""
    _, lr, lw, _, _, _, _ = net
    while lw[LENGTH, link] and not counts(link, net):
        drop(link, net)
    if lw[LENGTH, link]:
        wake(link, now, queue, whole, net)
    else:
        lr[LOOK_AT, link] = inf


@inlined
def solve_later(flow: int, whole: Ints, net: Net) -> None:
    """`Solving.later`."""
    shift, _, lw, _, _, ew, _ = net
    if not whole[CHANGED]:
        at_last(whole, SOLVES, LAST)
    for entry in range(flow << shift, (flow + 1) << shift):
        link = ew[ROUTE, entry]
        if link < 0:
            break
        if not lw[AMONG, link]:
            lw[AMONG, link] = True
            lw[CHANGES, whole[CHANGED]] = link
            whole[CHANGED] += 1


@inlined
def harmless(flow: int, narrow: int, gets: float, net: Net) -> bool:
    """`Flows._harmless`."""
    shift, lr, lw, _, fw, ew, _ = net
    for each in range(flow << shift, (flow + 1) << shift):
        link = ew[ROUTE, each]
        if link < 0:
            break
        if link == narrow:
            continue
        share = lr[SUSTAINED, link] / lw[SIZE, link]
        if lw[COUNT, link] or gets > share:
            return False
        if share < lr[BOUND, narrow]:
            lr[BOUND, narrow] = share
        if lw[SIZE, link] > 1:
            entry = lw[HEAD, link]
            while entry >= 0:
                other = entry >> shift
                if other != flow:
                    holder = fw[OWNER, other]
                    if holder < 0 or lr[RATE, holder] > share:
                        return False
                    if share < lr[BOUND, holder]:
                        lr[BOUND, holder] = share
                entry = ew[AFTER, entry]
    return True


@compiled
def add(flow: int, nbytes: float, now: float, queue: Queue, whole: Ints, net: Net) -> None:
    """`Flows.add`."""
    shift, lr, lw, fr, fw, ew, (_, _, flows) = net
    narrow, least, others = ew[ROUTE, flow << shift], inf, 0
    for entry in range(flow << shift, (flow + 1) << shift):
        link = ew[ROUTE, entry]
        if link < 0:
            break
        there = lw[SIZE, link]
        append(entry, link, lw, ew)
        lr[ENTERED, link] += nbytes
        lw[USED, link] += 1
        share = lr[CAPACITY, link] / (there + 1)
        if share <= least and (share < least or lw[USED, link] > lw[USED, narrow]):
            narrow, least, others = link, share, there
    fw[OWNER, flow], fw[BORN, flow] = -1, whole[HELD]
    fr[DUE, flow] = nbytes  # which it has left until somebody holds it back
    lw[BOTTLENECK, narrow] = others == 0 or (lw[BOTTLENECK, narrow] and lw[COUNT, narrow] == others)
    if not lw[BOTTLENECK, narrow] or not harmless(flow, narrow, least, net):
        solve_later(flow, whole, net)
        return
    lr[CLOCK, narrow] = lr[CLOCK, narrow] + lr[RATE, narrow] * (now - lr[SINCE, narrow])
    lr[SINCE, narrow], lr[RATE, narrow] = now, least
    fw[OWNER, flow] = narrow
    lw[COUNT, narrow] += 1
    hold(narrow, flow, lr[CLOCK, narrow] + nbytes, whole, net)
    if flows[lw[BASE, narrow]] == flow:  # else the next to finish does so later than planned
        wake(narrow, now, queue, whole, net)
    if lw[FIRST_TOLD, narrow] >= 0:
        tell_all(narrow, whole, net)


@compiled
def widen(link: int, net: Net) -> bool:
    """`Flows._widen`."""
    shift, lr, lw, _, _, ew, _ = net
    if not lw[COUNT, link]:
        lr[CLOCK, link] = lr[RATE, link] = 0.0
        lr[BOUND, link] = inf
        lw[LENGTH, link] = 0
        return True
    share = lr[CAPACITY, link] / lw[COUNT, link]
    if share > lr[BOUND, link]:
        least, entry = inf, lw[HEAD, link]
        while entry >= 0:
            flow = entry >> shift
            for each in range(flow << shift, (flow + 1) << shift):
                other = ew[PATH, each]
                if other < 0:
                    break
                if other != link:
                    least = min(least, lr[SUSTAINED, other] / lw[SIZE, other])
            entry = ew[AFTER, entry]
        lr[BOUND, link] = least
        if share > least:
            return False
    lr[RATE, link] = share
    return True


@compiled
def look(link: int, now: float, net: Net) -> int:
    """The first half of `Flows._look`: how many flows are finished."""
    shift, lr, lw, _, fw, ew, (dues, _, flows) = net
    lr[LOOK_AT, link] = inf
    lr[CLOCK, link] = lr[CLOCK, link] + lr[RATE, link] * (now - lr[SINCE, link])
    lr[SINCE, link] = now
    until, ended = lr[CLOCK, link] * SAME + lr[RATE, link] * now * 1e-15, 0
    while lw[LENGTH, link]:
        if counts(link, net):
            if dues[lw[BASE, link]] > until:
                break
            flow = flows[lw[BASE, link]]
            fw[FINISHED, ended], fw[OWNER, flow] = flow, -1
            ended += 1
            remove(flow, shift, lw, ew)
        drop(link, net)
    lw[COUNT, link] -= ended
    return ended


@compiled
def solve(now: float, messages: int, queue: Queue, whole: Ints, net: Net) -> bool:
    """`Solving._solve`; False: a link carries more than it can. messages: how many may be told; 0: none."""
    shift, lr, lw, fr, fw, ew, _ = net
    n = search(lw[CHANGES, : whole[CHANGED]], shift, lw, fw, ew)
    for link in lw[CHANGES, : whole[CHANGED]]:
        lw[AMONG, link] = False
    whole[CHANGED] = 0
    for at in range(n):
        link = lw[QUEUE, at]
        lr[CLOCK, link] += lr[RATE, link] * (now - lr[SINCE, link])
        lr[SINCE, link] = now
        whole[WORK] += lw[SIZE, link]
    moves = fill(n, shift, lr, lw, fw, ew)
    alone(n, shift, lr, lw, fw, ew)
    for flow in fw[MOVED, :moves]:
        if fw[EARLIER, flow] >= 0:
            rest = fr[DUE, flow] - lr[CLOCK, fw[EARLIER, flow]]
            fr[DUE, flow] = rest if rest > 0 else 0.0
    for flow in fw[MOVED, :moves]:
        hold(fw[OWNER, flow], flow, lr[CLOCK, fw[OWNER, flow]] + fr[DUE, flow], whole, net)
        if messages:
            tell(flow % messages, whole, net)
    right = True
    for at in range(n):
        link = lw[QUEUE, at]
        lw[REACHED, link] = lw[MET, link] = -1
        if lr[LEFT, link] < -1e-9 * lr[CAPACITY, link]:
            right = False
        if lw[COUNT, link]:
            lr[BOUND, link], lw[BOTTLENECK, link] = 0.0, lw[ALONE, at]
        else:
            lw[BOTTLENECK, link], lr[BOUND, link], lr[LOOK_AT, link] = lw[SIZE, link] == 0, inf, inf
            lr[CLOCK, link] = lr[RATE, link] = 0.0
            lw[LENGTH, link] = 0
        if lw[FIRST_TOLD, link] >= 0:
            tell_all(link, whole, net)
    for at in range(n):
        link = lw[QUEUE, at]
        if lw[COUNT, link]:
            plan(link, now, queue, whole, net)
    return right
