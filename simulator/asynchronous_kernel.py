"""A run of asynchronous workers and servers in one loop: plain Python that numba compiles (asynchronous.py).

What happens is what network.py and the two programs of the strategy make of it, in the same order and with
the same sums, so that times have the same bits. A worker and a server have two connections, on each of which
there is at most one message at a time: of worker w and server s, number w * servers + s is the way up, and
workers * servers more the way down.
"""

from math import inf

from lockstep.simulator.flows_kernel import (
    APPLIED,
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
    GRADIENTS,
    LATENCY,
    MESSAGES,
    READ,
    SENT,
    STEPS,
    STILL,
    TAKEN,
    UNREAD,
    UPDATES,
    WRONG,
    Record,
    ended,
    next_event,
    solved,
)
from lockstep.simulator.queues_kernel import over, start

Columns = tuple[Record, Record, Record]  # of messages, gradients and updates

PULL, PUSH, PARAMETERS, LEAVE = range(4)  # kinds of messages
# More of `fw`, of connections: the kind of the message there, the version in it, the next in the mail, and
# whether parameters wait to be taken
KIND, VERSION, FOLLOWING, THERE = range(12, 16)
STARTED, LEFT_AT = range(3, 5)  # of `fr`: of the message there
MADE, AWAITS, DRAWN = range(3)  # of `workers`: steps, whose answer is awaited (-1: nobody's), times drawn
HAS, BUSY, FIRST, FINAL, SHARD = range(5)  # of `servers`: version, whether busy, ends of the mail, bytes
TAKES, FREE, WORKED = range(3)  # of `busy`: s of an update, until when it is busy, s that it has been


@inlined
def send(
    at: int, nbytes: int, now: float, late: float, waits: float, queue: Queue, whole: Ints, net: Net
) -> None:
    """`Network.send` on a connection; late: for how long the sender's overheads last, -1: none.

    waits: bytes of it that may wait in switches.
    """
    if late >= 0:
        schedule(queue, whole, now + late, NORMAL, BEGIN, at)
    elif not nbytes or net[5][ROUTE, at << net[0]] < 0:
        arrive(at, now, queue, whole, net)
    elif waits and net[0] and net[5][ROUTE, (at << net[0]) + 1] >= 0:
        start(at, nbytes, now, queue, whole, net)
    else:
        add(at, nbytes, now, queue, whole, net)


@inlined
def arrive(at: int, now: float, queue: Queue, whole: Ints, net: Net) -> None:
    """`Transfer.done`."""
    fr = net[3]
    if fr[LEFT_AT, at] == inf:
        fr[LEFT_AT, at] = now
    schedule(queue, whole, now + fr[LATENCY, at], NORMAL, ARRIVE, at)


@compiled
def run(
    until: float,
    overhead: float,
    waits: float,
    each: int,
    together: int,
    queue: Queue,
    whole: Ints,
    real: Floats,
    net: Net,
    workers: Wholes,
    servers: Wholes,
    busy: Reals,
    ready: Floats,
    draws: Reals,
    rows: Columns,
) -> int:
    """Let time pass until the run is over, or Python has something to do: which of these.

    until: when it is over, s; overhead: s that a message takes of its sender's time; waits: bytes of each
    that may wait in switches; each, together: mini-batches of a worker, and of all. queue: of events, a heap;
    whole: numbers, see above; real: the time. busy: of servers, in s. ready: when ranks have done with their
    messages' overheads. draws: s of gradients, shape (workers, n).
    """
    queue, whole, net, rows = lent((queue, whole, net, rows))
    workers, servers, busy, ready, draws = lent((workers, servers, busy, ready, draws))
    (sent, sent_at), (computed, computed_at), (updated, updated_at) = rows
    shift, lr, lw, fr, fw, ew, _ = net
    s_count, w_count = servers.shape[1], workers.shape[1]
    half, room = s_count * w_count, fw.shape[1] + 4 * (s_count + w_count) + 8
    while True:
        now, what, whom, link, flowed, order = real[0], -1, -1, -1, 0, 0
        if whole[AT] >= 0:  # what a reading interrupted
            link, flowed = whole[AT], whole[ENDED]
            whole[AT] = -1
        else:
            full = (
                whole[EVENTS] + room > len(queue[0])
                or whole[MESSAGES] == sent.shape[1]
                or whole[GRADIENTS] == computed.shape[1]
                or whole[UPDATES] + w_count > updated.shape[1]
            )
            order = queue[1][0]
            event = next_event(until, w_count, full, queue, whole, real)
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
                message = flow % (2 * half)
                if waits and shift and ew[ROUTE, (message << shift) + 1] >= 0:
                    means = over(flow, 2 * half, now, queue, whole, net)
                if means & 1:
                    fr[LEFT_AT, message] = now
                if means & 2:
                    arrive(message, now, queue, whole, net)
            continue
        if what in (SOLVE, HEAR, PLANNED):
            if not solved(what, whom, order, 2 * half, waits, now, queue, whole, net):
                return WRONG
            continue
        goes, says, serves = -1, LEAVE, -1  # who goes on
        if what == START:
            goes, says, workers[AWAITS, whom] = whom, PULL, 0
        elif what == COMPUTED:
            goes, says, workers[AWAITS, whom] = whom, PUSH, 0
        elif what == APPLIED:
            serves = whom
        elif what == BEGIN:
            carries = fw[KIND, whom] == PUSH or fw[KIND, whom] == PARAMETERS
            nbytes = servers[SHARD, (whom if whom < half else whom - half) % s_count] if carries else 0
            send(whom, nbytes, now, -1.0, waits, queue, whole, net)
        else:  # it has arrived
            place = whom if whom < half else whom - half
            w, s = place // s_count, place % s_count
            carries = fw[KIND, whom] == PUSH or fw[KIND, whom] == PARAMETERS
            nbytes = servers[SHARD, s] if carries else 0
            whole[CAME] += nbytes
            row = whole[MESSAGES]
            whole[MESSAGES] += 1
            sent[0, row], sent[1, row] = (w, w_count + s) if whom < half else (w_count + s, w)
            sent[2, row], sent[3, row] = fw[KIND, whom], nbytes
            sent_at[0, row], sent_at[1, row], sent_at[2, row] = fr[STARTED, whom], fr[LEFT_AT, whom], now
            if whom < half:
                fw[FOLLOWING, whom] = -1
                if servers[FIRST, s] < 0:
                    servers[FIRST, s] = whom
                else:
                    fw[FOLLOWING, servers[FINAL, s]] = whom
                servers[FINAL, s] = whom
                if not servers[BUSY, s]:
                    serves = s
            else:
                fw[THERE, place], fw[VERSION, place] = 1, fw[VERSION, whom]
                if workers[AWAITS, w] == s:
                    while workers[AWAITS, w] < s_count and fw[THERE, w * s_count + workers[AWAITS, w]]:
                        fw[THERE, w * s_count + workers[AWAITS, w]] = 0
                        workers[AWAITS, w] += 1
                if workers[AWAITS, w] == s_count:  # it has all parameters
                    workers[AWAITS, w] = -1
                    step = workers[MADE, w]
                    whole[TAKEN] += step < each
                    if step >= each or whole[TAKEN] > together:
                        goes = w
                    else:
                        whole[STEPS] += 1
                        whole[STILL] += each == ENDLESS and together == ENDLESS
                        end = now + draws[w, workers[DRAWN, w]]
                        workers[DRAWN, w] += 1
                        whole[EMPTY] += workers[DRAWN, w] == draws.shape[1] and step + 1 < each
                        schedule(queue, whole, end, NORMAL, COMPUTED, w)
                        row = whole[GRADIENTS]
                        whole[GRADIENTS] += 1
                        computed[0, row], computed[1, row] = w, step
                        computed_at[0, row], computed_at[1, row] = now, end
                        workers[MADE, w] = step + 1
        if goes >= 0:  # a worker: to send the same to every server
            for s in range(s_count):
                at = goes * s_count + s
                fw[KIND, at], fr[STARTED, at], fr[LEFT_AT, at] = says, now, inf
                nbytes = servers[SHARD, s] if says == PUSH else 0
                whole[SENT] += nbytes
                if overhead:
                    ready[goes] = max(now, ready[goes]) + overhead
                send(at, nbytes, now, ready[goes] - now if overhead else -1.0, waits, queue, whole, net)
        while serves >= 0:  # a server: with the next that it has received
            s = serves
            at = servers[FIRST, s]
            if at < 0:
                break
            if fw[KIND, at] == PUSH and busy[TAKES, s] > 0 and not servers[BUSY, s]:
                busy[FREE, s] = max(busy[FREE, s], now) + busy[TAKES, s]
                busy[WORKED, s] += busy[TAKES, s]
                servers[BUSY, s] = 1
                schedule(queue, whole, now + (busy[FREE, s] - now), NORMAL, APPLIED, s)
                break
            servers[BUSY, s] = 0
            servers[FIRST, s] = fw[FOLLOWING, at]
            if fw[KIND, at] == LEAVE:
                continue
            version = servers[HAS, s]
            if fw[KIND, at] == PUSH:
                row = whole[UPDATES]
                whole[UPDATES] += 1
                updated[0, row], updated[1, row], updated[2, row] = w_count + s, at // s_count, version
                updated[3, row], updated[4, row], updated_at[0, row] = version - fw[VERSION, at], 1, now
                version += 1
                servers[HAS, s] = version
            down, rank = at + half, w_count + s
            fw[KIND, down], fw[VERSION, down] = PARAMETERS, version
            fr[STARTED, down], fr[LEFT_AT, down] = now, inf
            whole[SENT] += servers[SHARD, s]
            if overhead:
                ready[rank] = max(now, ready[rank]) + overhead
            late = ready[rank] - now if overhead else -1.0
            send(down, servers[SHARD, s], now, late, waits, queue, whole, net)
