"""Runs whose nodes do the same in every mini-batch: plain Python that numba compiles (traced.py).

Nodes do their operations (trace.py) until they must wait. What happens is what network.py and job/node.py
make of it, in the same order and with the same sums, so that times have the same bits. On a connection one
message goes at a time, and others wait for their turn.
"""

from math import inf

from lockstep.simulator.flows_kernel import (
    ARRIVE,
    BEGIN,
    COMPUTED,
    EVENTS,
    FINISHED,
    HEAR,
    LENGTH,
    LOOK,
    LOOK_AT,
    NORMAL,
    PLANNED,
    ROUTE,
    SOLVE,
    START,
    Net,
    Queue,
    add,
    schedule,
    wake,
)
from lockstep.simulator.jit import Floats, Ints, Reals, Wholes, compiled, inlined
from lockstep.simulator.lent import lent
from lockstep.simulator.loop_kernel import (
    AT,
    CAME,
    EMPTY,
    ENDED,
    ENDLESS,
    FREE_ONE,
    FREE_ONES,
    GRADIENTS,
    LATENCY,
    MESSAGES,
    READ,
    SENT,
    STEPS,
    STILL,
    UNREAD,
    UPDATES,
    WORKS,
    WRONG,
    Record,
    ended,
    next_event,
    solved,
)
from lockstep.simulator.queues_kernel import over, start

Columns = tuple[Record, Record, Record, Record]  # of messages, gradients, updates and work
Pool = tuple[Wholes, Reals, Wholes]  # `messages`, `sent_at` and `ends`: see below

GOES_ON, HANDED_OVER = 9, 10  # more kinds of events: a node has waited; a message may have its turn
# Operations, and of `operations`: which, of what, and how much of it, and of what kind
SEND, AWAIT_SENT, RECEIVE, RECEIVE_ANY, REPLY, COMPUTE, AWAIT_COMPUTED, BE_BUSY, UPDATE, REPEAT = range(10)
WHICH, OF, MUCH_OF, KIND = range(4)
# Of `nodes`: the next operation, mini-batches begun, what is awaited and which, messages sent, parts of the
# gradient computed, times drawn; the first operation of a mini-batch, that after the last one, and the end;
# whose parameters it updates; connections with first messages, in order, and that of the last taken
POINT, BEGUN, AWAITS, WANTED, SENDS, PARTS, DRAWN, AGAIN, AFTER, END, OWNER_OF = range(11)
FIRST_IN, LAST_IN, TAKEN_FROM = range(11, 14)
NOTHING, LEAVING, MAIL, ANY, PART = range(5)  # that is awaited
# Of `busy`, s: when a node has done with its messages' overheads, and with its work, and how much that was
READY, FREE, WORKED = range(3)
# Of `messages`: connection, bytes, kind, number among its sender's, the next of those that wait, or are free;
# of `sent_at`: when it was sent, and when its last byte has left
ON, NBYTES, SORT, NUMBER, NEXT = range(5)
STARTED, LEFT_AT = range(2)
CARRIES, FIRST, FINAL = range(12, 15)  # of `fw`, of connections: the message there, those that wait
# Of `ends`, of connections: see packed.py; mail, whether any came, and the next with a first message
FROM, TO, BACK, HAS, CAME_ON, AFTER_IT = range(6)


@inlined
def leave(
    message: int, now: float, queue: Queue, whole: Ints, nodes: Wholes, pool: Pool, gone: Reals
) -> None:
    """`Transfer.sent`."""
    messages, sent_at, ends = pool
    sender, number = ends[FROM, messages[ON, message]], messages[NUMBER, message]
    sent_at[LEFT_AT, message] = now
    if nodes[SENDS, sender] - number <= gone.shape[1]:  # else nobody will ask
        gone[sender, number % gone.shape[1]] = now
    if nodes[AWAITS, sender] == LEAVING and nodes[WANTED, sender] == number:
        nodes[AWAITS, sender] = NOTHING
        schedule(queue, whole, now, NORMAL, GOES_ON, sender)


@inlined
def passed(
    at: int, now: float, queue: Queue, whole: Ints, net: Net, nodes: Wholes, pool: Pool, gone: Reals
) -> None:
    """`Transfer.done` of the message on a connection."""
    fr, fw = net[3], net[4]
    message = fw[CARRIES, at]
    if pool[1][LEFT_AT, message] == inf:
        leave(message, now, queue, whole, nodes, pool, gone)
    schedule(queue, whole, now + fr[LATENCY, at], NORMAL, ARRIVE, message)
    following = fw[FIRST, at]
    if following >= 0:
        fw[FIRST, at] = pool[0][NEXT, following]
        schedule(queue, whole, now, NORMAL, BEGIN, following)
    else:
        fw[CARRIES, at] = -1


@inlined
def begin(
    message: int,
    now: float,
    waits: float,
    queue: Queue,
    whole: Ints,
    net: Net,
    nodes: Wholes,
    pool: Pool,
    gone: Reals,
) -> None:
    """`Network.begin`."""
    shift, _, _, _, fw, ew, _ = net
    at, nbytes = pool[0][ON, message], pool[0][NBYTES, message]
    fw[CARRIES, at] = message
    if not nbytes or ew[ROUTE, at << shift] < 0:
        passed(at, now, queue, whole, net, nodes, pool, gone)
    elif waits and shift and ew[ROUTE, (at << shift) + 1] >= 0:
        start(at, nbytes, now, queue, whole, net)
    else:
        add(at, nbytes, now, queue, whole, net)


@inlined
def hand_over(
    message: int,
    now: float,
    waits: float,
    queue: Queue,
    whole: Ints,
    net: Net,
    nodes: Wholes,
    pool: Pool,
    gone: Reals,
) -> None:
    """`Network._enqueue`."""
    fw, at = net[4], pool[0][ON, message]
    if fw[CARRIES, at] < 0:
        begin(message, now, waits, queue, whole, net, nodes, pool, gone)
        return
    pool[0][NEXT, message] = -1
    if fw[FIRST, at] < 0:
        fw[FIRST, at] = message
    else:
        pool[0][NEXT, fw[FINAL, at]] = message
    fw[FINAL, at] = message


@compiled
def run(
    until: float,
    overhead: float,
    waits: float,
    each: int,
    more: int,
    queue: Queue,
    whole: Ints,
    real: Floats,
    net: Net,
    operations: Wholes,
    seconds: Floats,
    parts: Floats,
    updates: Wholes,
    nodes: Wholes,
    busy: Reals,
    pool: Pool,
    gone: Reals,
    draws: Reals,
    rows: Columns,
) -> int:
    """Let time pass until the run is over, or Python has something to do: which of these.

    until: when it is over, s; overhead: s that a message takes of its sender's time; waits: bytes of each
    that may wait in switches; each: mini-batches of a node; more: what an event may schedule beside flows,
    send, or record. queue: of events, a heap; whole: numbers, see loop_kernel.py; real: the time. seconds: of
    operations that take some; parts: of a gradient's time, after which parts of it are there; updates: of
    whom, their staleness and mini-batches. busy: until when nodes are, s. gone: when the last messages of
    each node have left. draws: s of gradients, shape (nodes, n).
    """
    queue, whole, net, operations, nodes = lent((queue, whole, net, operations, nodes))
    busy, pool, gone, rows = lent((busy, pool, gone, rows))
    (sent, sent_when), (computed, computed_at), (updated, updated_at), (worked, worked_at) = rows
    shift, lr, lw, _, fw, ew, _ = net
    messages, sent_at, ends = pool
    count, connections = nodes.shape[1], ends.shape[1]
    # a flow that ends may let a link be looked at, a message arrive and another one begin
    room = 3 * fw.shape[1] + more
    while True:
        now, what, whom, link, flowed, order = real[0], -1, -1, -1, 0, 0
        if whole[AT] >= 0:  # what a reading interrupted
            link, flowed = whole[AT], whole[ENDED]
            whole[AT] = -1
        else:
            full = (
                whole[FREE_ONES] < more
                or whole[EVENTS] + room > len(queue[0])
                or whole[MESSAGES] == sent.shape[1]
                or whole[GRADIENTS] + more > computed.shape[1]
                or whole[WORKS] + more > worked.shape[1]
                or whole[UPDATES] + more > updated.shape[1]
            )
            order = queue[1][0]
            event = next_event(until, count, full, queue, whole, real)
            if event < 0:
                return ~event
            now, what, whom = real[0], event & 15, event >> 4
        if what == LOOK:
            if lr[LOOK_AT, whom] != now:  # it has been looked at since, or is to be later
                continue
            link = whom
            flowed = ended(link, now, whole, net)
            if flowed and whole[UNREAD] <= 0:
                whole[AT], whole[ENDED] = link, flowed
                return READ
        if link >= 0:
            if lw[LENGTH, link]:
                wake(link, now, queue, whole, net)
            for at in range(flowed):
                flow, means = fw[FINISHED, at], 2
                place = flow % connections
                if waits and shift and ew[ROUTE, (place << shift) + 1] >= 0:
                    means = over(flow, connections, now, queue, whole, net)
                if means & 1:
                    leave(fw[CARRIES, place], now, queue, whole, nodes, pool, gone)
                if means & 2:
                    passed(place, now, queue, whole, net, nodes, pool, gone)
            continue
        if what in (SOLVE, HEAR, PLANNED):
            if not solved(what, whom, order, connections, waits, now, queue, whole, net):
                return WRONG
            continue
        goes = -1
        if what in (START, GOES_ON):
            goes = whom
        elif what == BEGIN:
            begin(whom, now, waits, queue, whole, net, nodes, pool, gone)
        elif what == HANDED_OVER:
            hand_over(whom, now, waits, queue, whole, net, nodes, pool, gone)
        elif what == COMPUTED:
            nodes[PARTS, whom] += 1
            if nodes[AWAITS, whom] == PART and nodes[PARTS, whom] >= nodes[WANTED, whom]:
                goes = whom
        else:  # it has arrived
            place, nbytes, row = messages[ON, whom], messages[NBYTES, whom], whole[MESSAGES]
            whole[CAME] += nbytes
            whole[MESSAGES] += 1
            sent[0, row], sent[1, row] = ends[FROM, place], ends[TO, place]
            sent[2, row], sent[3, row] = messages[SORT, whom], nbytes
            sent_when[0, row], sent_when[1, row] = sent_at[STARTED, whom], sent_at[LEFT_AT, whom]
            sent_when[2, row] = now
            messages[NEXT, whom] = whole[FREE_ONE]
            whole[FREE_ONE] = whom
            whole[FREE_ONES] += 1
            ends[HAS, place] += 1
            to = ends[TO, place]
            if not ends[CAME_ON, place]:
                ends[CAME_ON, place], ends[AFTER_IT, place] = 1, -1
                if nodes[FIRST_IN, to] < 0:
                    nodes[FIRST_IN, to] = place
                else:
                    ends[AFTER_IT, nodes[LAST_IN, to]] = place
                nodes[LAST_IN, to] = place
            if nodes[AWAITS, to] == ANY or (nodes[AWAITS, to] == MAIL and nodes[WANTED, to] == place):
                goes = to
        if goes < 0:
            continue
        nodes[AWAITS, goes] = NOTHING
        while True:
            point = nodes[POINT, goes]
            if point == nodes[END, goes]:
                break
            which, of = operations[WHICH, point], operations[OF, point]
            nodes[POINT, goes] = point + 1
            if which == REPEAT:
                more_to_do = nodes[BEGUN, goes] < each
                nodes[BEGUN, goes] += more_to_do
                nodes[POINT, goes] = nodes[AGAIN, goes] if more_to_do else nodes[AFTER, goes]
            elif which in (SEND, REPLY):
                if which == REPLY:
                    of = ends[BACK, nodes[TAKEN_FROM, goes]]
                message = whole[FREE_ONE]
                whole[FREE_ONE] = messages[NEXT, message]
                whole[FREE_ONES] -= 1
                nbytes, number = operations[MUCH_OF, point], nodes[SENDS, goes]
                nodes[SENDS, goes] += 1
                messages[ON, message], messages[NBYTES, message] = of, nbytes
                messages[SORT, message], messages[NUMBER, message] = operations[KIND, point], number
                sent_at[STARTED, message], sent_at[LEFT_AT, message] = now, inf
                gone[goes, number % gone.shape[1]] = inf
                whole[SENT] += nbytes
                if overhead:
                    busy[READY, goes] = max(now, busy[READY, goes]) + overhead
                    at = now + (busy[READY, goes] - now)
                    schedule(queue, whole, at, NORMAL, HANDED_OVER, message)
                else:
                    hand_over(message, now, waits, queue, whole, net, nodes, pool, gone)
            elif which == AWAIT_SENT:
                number = nodes[SENDS, goes] - 1 - of
                if gone[goes, number % gone.shape[1]] == inf:
                    nodes[AWAITS, goes], nodes[WANTED, goes] = LEAVING, number
                    break
            elif which == RECEIVE:
                if not ends[HAS, of]:
                    nodes[AWAITS, goes], nodes[WANTED, goes] = MAIL, of
                    nodes[POINT, goes] = point
                    break
                ends[HAS, of] -= 1
            elif which == RECEIVE_ANY:
                of = nodes[FIRST_IN, goes]
                if of < 0:
                    nodes[AWAITS, goes], nodes[POINT, goes] = ANY, point
                    break
                nodes[FIRST_IN, goes], nodes[TAKEN_FROM, goes] = ends[AFTER_IT, of], of
                ends[HAS, of] -= 1
            elif which == COMPUTE:
                step, drawn = nodes[BEGUN, goes] - 1, nodes[DRAWN, goes]
                duration = draws[goes, drawn]
                nodes[DRAWN, goes], nodes[PARTS, goes] = drawn + 1, 0
                whole[STEPS] += 1
                whole[STILL] += each == ENDLESS
                whole[EMPTY] += drawn + 1 == draws.shape[1] and step + 1 < each
                row = whole[GRADIENTS]
                whole[GRADIENTS] += 1
                computed[0, row], computed[1, row] = goes, step
                computed_at[0, row], computed_at[1, row] = now, now + duration
                for part in range(of, of + operations[MUCH_OF, point]):
                    schedule(queue, whole, now + duration * parts[part], NORMAL, COMPUTED, goes)
            elif which == AWAIT_COMPUTED:
                if nodes[PARTS, goes] < of:
                    nodes[AWAITS, goes], nodes[WANTED, goes] = PART, of
                    break
            elif which == BE_BUSY:
                begins = max(busy[FREE, goes], now)
                busy[FREE, goes] = begins + seconds[point]
                busy[WORKED, goes] += seconds[point]
                if operations[KIND, point] >= 0:
                    row = whole[WORKS]
                    whole[WORKS] += 1
                    worked[0, row], worked[1, row] = goes, operations[KIND, point]
                    worked_at[0, row], worked_at[1, row] = begins, busy[FREE, goes]
                schedule(queue, whole, now + (busy[FREE, goes] - now), NORMAL, GOES_ON, goes)
                break
            else:
                version = operations[KIND, point] + nodes[BEGUN, goes] - 1
                for part in range(of, of + operations[MUCH_OF, point]):
                    row = whole[UPDATES]
                    whole[UPDATES] += 1
                    updated[0, row], updated[1, row] = nodes[OWNER_OF, goes], updates[0, part]
                    updated[2, row], updated[3, row] = version, updates[1, part]
                    updated[4, row], updated_at[0, row] = updates[2, part], now
