"""A run of asynchronous workers and servers in one loop: plain Python that numba compiles (asynchronous.py).

What happens is what network.py and the two programs of the strategy make of it, in the same order and with
the same sums, so that times have the same bits. A worker and a server have two connections, on each of which
there is at most one message at a time: of worker w and server s, number w * servers + s is the way up, and
workers * servers more the way down.
"""

from math import inf
from typing import Any

from lockstep.simulator.flows_kernel import (
    APPLIED,
    ARRIVE,
    BEGIN,
    COMPUTED,
    EVENTS,
    LOOK,
    NORMAL,
    SOLVE,
    START,
    add,
    look,
    schedule,
    solve,
    solve_later,
    take,
    wake,
    widen,
)
from lockstep.simulator.jit import compiled, inlined

Ints = Any  # an array of shape (n,), int64
Floats = Any  # float64
Several = Any  # a tuple of arrays
Net = Any  # see flows_kernel.py

DONE, MORE, FULL, READ, WRONG = range(5)  # why the loop stops: over; to draw times, make room, read links
PULL, PUSH, PARAMETERS, LEAVE = range(4)  # kinds of messages
# Places in `whole` after those of flows_kernel.py: rows of messages, gradients and updates; flows that may
# end before links are read; the link where that interrupted, and flows that had ended there; steps, those in
# one instant, workers without drawn times, mini-batches taken
MESSAGES, GRADIENTS, UPDATES, UNREAD, AT, ENDED, STEPS, STILL, EMPTY, TAKEN, PLACES = range(4, 15)
ENDLESS = 1 << 60  # mini-batches


@inlined
def send(
    at: int,
    nbytes: int,
    now: float,
    sender: int,
    overhead: float,
    queue: Several,
    whole: Ints,
    net: Net,
    messages: Several,
    ready: Floats,
) -> None:
    """`Network.send` on a connection; the sender's overhead is over if it is 0."""
    if overhead:
        ready[sender] = max(now, ready[sender]) + overhead
        schedule(queue, whole, now + (ready[sender] - now), NORMAL, BEGIN, at)
    elif nbytes and net[1][at << net[0]] >= 0:
        add(at, nbytes, now, queue, whole, net)
    else:
        arrive(at, now, queue, whole, messages)


@inlined
def arrive(at: int, now: float, queue: Several, whole: Ints, messages: Several) -> None:
    """`Transfer.done`."""
    _, _, _, left_at, latency, _, _ = messages
    left_at[at] = now
    schedule(queue, whole, now + latency[at], NORMAL, ARRIVE, at)


@compiled
def run(
    until: float,
    overhead: float,
    each: int,
    together: int,
    queue: Several,
    whole: Ints,
    real: Floats,
    net: Net,
    messages: Several,
    workers: Several,
    servers: Several,
    ranks: Several,
    draws: Floats,
    rows: Several,
    finished: Ints,
) -> int:
    """Let time pass until the run is over, or Python has something to do: which of these.

    until: when it is over, s; overhead: s that a message takes of its sender's time; each, together:
    mini-batches of a worker, and of all; queue: of events, a heap; whole: numbers, see above; real: the time,
    and bytes sent and arrived. messages: of connections the kind of what is on them, the version in it, its
    start, when it had left, the latency, the next in the mail, and whether parameters wait to be taken.
    workers: steps made, whose answer is awaited (-1: nobody's), and times drawn. servers: the version,
    whether busy, the first and last of the mail, bytes of the shard, s of an update, until when it is busy,
    and s that it has been. ranks: of workers and servers; and when they have done with their messages'
    overheads. draws: s of gradients, shape (workers, n). rows: of messages, gradients and updates the columns
    of the records. finished: room for flows.
    """
    kind, version, start, left_at, _, following, there = messages
    steps, awaits, drawn = workers
    versions, busy, first, last, shard, takes, free, worked = servers
    (rank, ready), (sent, computed, updated) = ranks, rows
    look_at, lengths, bottleneck = net[7][3], net[8][2], net[9][2]
    s_count, w_count = len(versions), len(steps)
    half, room = s_count * w_count, len(finished) + 4 * (s_count + w_count) + 8
    while True:
        now, what, whom, link, flowed = real[0], -1, -1, -1, 0
        if whole[AT] >= 0:  # what a reading interrupted
            link, flowed = whole[AT], whole[ENDED]
            whole[AT] = -1
        else:
            if not whole[EVENTS] or queue[0][0] >= until:
                real[0] = real[0] if until == inf else until
                return DONE
            if whole[EMPTY]:
                return MORE
            if (
                whole[EVENTS] + room > len(queue[0])
                or whole[MESSAGES] == len(sent[0])
                or whole[GRADIENTS] == len(computed[0])
                or whole[UPDATES] + w_count > len(updated[0])
            ):
                return FULL
            if queue[0][0] > now:
                real[0] = now = queue[0][0]
                whole[STILL] = 0
            elif whole[STILL] > 1000 * w_count:
                return WRONG
            event = take(queue, whole)
            what, whom = event & 7, event >> 3
        if what == LOOK:
            if look_at[whom] != now:  # it has been looked at since, or is to be later
                continue
            link = whom
            flowed = look(link, now, net, finished)
            if flowed:
                if not (bottleneck[link] and widen(link, net)):
                    for flow in finished[:flowed]:
                        solve_later(flow, now, queue, whole, net)
                whole[UNREAD] -= flowed
                if whole[UNREAD] <= 0:
                    whole[AT], whole[ENDED] = link, flowed
                    return READ
        if link >= 0:
            if lengths[link]:
                wake(link, now, queue, whole, net)
            for flow in finished[:flowed]:
                arrive(flow, now, queue, whole, messages)
            continue
        if what == SOLVE:
            if not solve(now, queue, whole, net):
                return WRONG
            continue
        goes, says, serves = -1, LEAVE, -1  # who goes on
        if what == START:
            goes, says, awaits[whom] = whom, PULL, 0
        elif what == COMPUTED:
            goes, says, awaits[whom] = whom, PUSH, 0
        elif what == APPLIED:
            serves = whom
        elif what == BEGIN:
            carries = kind[whom] == PUSH or kind[whom] == PARAMETERS
            nbytes = shard[(whom if whom < half else whom - half) % s_count] if carries else 0
            send(whom, nbytes, now, 0, 0.0, queue, whole, net, messages, ready)
        else:  # it has arrived
            place = whom if whom < half else whom - half
            w, s = place // s_count, place % s_count
            carries = kind[whom] == PUSH or kind[whom] == PARAMETERS
            nbytes = shard[s] if carries else 0
            real[2] += nbytes
            row = whole[MESSAGES]
            whole[MESSAGES] += 1
            sent[2][row], sent[3][row], sent[4][row] = start[whom], left_at[whom], now
            sent[5][row], sent[6][row] = kind[whom], nbytes
            if whom < half:
                sent[0][row], sent[1][row] = rank[w], rank[w_count + s]
                following[whom] = -1
                if first[s] < 0:
                    first[s] = whom
                else:
                    following[last[s]] = whom
                last[s] = whom
                if not busy[s]:
                    serves = s
            else:
                sent[0][row], sent[1][row] = rank[w_count + s], rank[w]
                there[place], version[place] = True, version[whom]
                if awaits[w] == s:
                    while awaits[w] < s_count and there[w * s_count + awaits[w]]:
                        there[w * s_count + awaits[w]] = False
                        awaits[w] += 1
                if awaits[w] == s_count:  # it has all parameters
                    awaits[w] = -1
                    whole[TAKEN] += steps[w] < each
                    if steps[w] >= each or whole[TAKEN] > together:
                        goes = w
                    else:
                        whole[STEPS] += 1
                        whole[STILL] += each == ENDLESS and together == ENDLESS
                        end = now + draws[w][drawn[w]]
                        drawn[w] += 1
                        whole[EMPTY] += drawn[w] == len(draws[w])
                        schedule(queue, whole, end, NORMAL, COMPUTED, w)
                        row = whole[GRADIENTS]
                        whole[GRADIENTS] += 1
                        computed[0][row], computed[3][row] = rank[w], steps[w]
                        computed[1][row], computed[2][row] = now, end
                        steps[w] += 1
        if goes >= 0:  # a worker: to send the same to every server
            for s in range(s_count):
                at = goes * s_count + s
                kind[at], start[at], left_at[at] = says, now, inf
                nbytes = shard[s] if says == PUSH else 0
                real[1] += nbytes
                send(at, nbytes, now, goes, overhead, queue, whole, net, messages, ready)
        while serves >= 0:  # a server: with the next that it has received
            s = serves
            at = first[s]
            if at < 0:
                break
            if kind[at] == PUSH and takes[s] > 0 and not busy[s]:
                free[s] = max(free[s], now) + takes[s]
                worked[s] += takes[s]
                busy[s] = True
                schedule(queue, whole, now + (free[s] - now), NORMAL, APPLIED, s)
                break
            busy[s] = False
            first[s] = following[at]
            if kind[at] == LEAVE:
                continue
            if kind[at] == PUSH:
                row = whole[UPDATES]
                whole[UPDATES] += 1
                updated[0][row], updated[1][row], updated[2][row] = (
                    rank[w_count + s],
                    rank[at // s_count],
                    now,
                )
                updated[3][row], updated[4][row], updated[5][row] = versions[s], versions[s] - version[at], 1
                versions[s] += 1
            down = at + half
            kind[down], version[down], start[down], left_at[down] = PARAMETERS, versions[s], now, inf
            real[1] += shard[s]
            send(down, shard[s], now, w_count + s, overhead, queue, whole, net, messages, ready)
