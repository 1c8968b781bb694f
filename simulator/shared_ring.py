"""The times of a ring some of whose messages share a link: workers on one host, with a link inside it.

The events of its messages alone, in a loop so plain that numba can compile it. They are those of network.py
and flows.py, scheduled in the same order and with the same sums, so that times have the same bits.
"""

from heapq import heappop, heappush
from math import inf
from typing import Any

SAME = 1 + 1e-12  # as in flows.py
ENTER, LOOK, ARRIVE, BEGIN, ADDED, GONE = range(6)  # what events are, and where a worker goes on
SEND, RECEIVE, TAKE, WAIT, NEXT = range(6, 11)
OUTSIDE, RECEIVING, BUSY, SENDING = range(4)  # what a worker does

Numbers = Any  # a list, or an array of shape (n,)


def shared_ring(
    order: Numbers,
    entered: Numbers,
    ready: Numbers,
    free: Numbers,
    done: Numbers,
    rates: Numbers,
    latencies: Numbers,
    links: Numbers,
    idle: Numbers,
    nbytes: Numbers,
    seconds: Numbers,
    starts: Numbers,
    left: Numbers,
    ends: Numbers,
    called: Numbers,
    begun: Numbers,
    added: Numbers,
    overhead: float,
) -> bool:
    """Fill in `ring.Times` and `ring.Sums`, here flat and NaN; False: only all messages can tell.

    order: the p workers as they entered. Of workers: entered, ready, free, done. Of lanes: rates, latencies,
    and links, the number of that which is shared, or else of its own. Of shared links: since when it is idle.
    By step and sender: nbytes, seconds to add them, starts, left, ends. By step and worker: called, begun,
    added, of additions. After the ring: ready, free and idle as they are then, and order as workers are done.
    """
    p, count = len(entered), max(links) + 1
    clock, speed, since, wake = [0.0] * count, [0.0] * count, [0.0] * count, [inf] * count
    held, looked = [0] * count, [-inf] * count
    members = [[worker for worker in range(p) if links[worker] == link] for link in range(count)]
    due, number = [inf] * p, [0] * p
    step, arrived, does, over = [0] * p, [0] * p, [OUTSIDE] * p, [0] * p
    events = [(inf, 0, LOOK, 0)]  # when, scheduled as which, what, and the link or worker
    for place in range(p):
        heappush(events, (entered[order[place]], place - p, ENTER, order[place]))
    scheduled = flows = known = through = 0
    last_entered = -inf
    while len(events) > 1:
        now, turn, what, who = heappop(events)
        ended, begins, runs, point = 0, -1, -1, what
        if what == ENTER:
            last_entered, known = now, scheduled
        elif now == last_entered and turn < known:
            return False  # nobody knows which is first
        if what == LOOK:
            if wake[who] != now:
                continue
            looked[who], wake[who] = now, inf
            clock[who] = clock[who] + speed[who] * (now - since[who])
            since[who] = now
            until = clock[who] * SAME + speed[who] * now * 1e-15
            for worker in members[who]:
                if due[worker] <= until:
                    place = ended
                    while place and (due[worker], number[worker]) < (
                        due[over[place - 1]],
                        number[over[place - 1]],
                    ):
                        over[place] = over[place - 1]
                        place -= 1
                    over[place] = worker
                    ended += 1
            for place in range(ended):
                due[over[place]] = inf
            held[who] -= ended
            if not held[who]:
                clock[who] = speed[who] = 0.0
            else:
                if ended:
                    speed[who] = rates[members[who][0]] / held[who]
                first = inf
                for worker in members[who]:
                    first = min(first, due[worker])
                rest = first - clock[who]
                wake[who] = now + rest / speed[who] if rest > 0 else now
                heappush(events, (wake[who], scheduled, LOOK, who))
                scheduled += 1
        elif what == BEGIN:
            begins = who
        elif what != ARRIVE:
            runs, point = who, SEND if what == ENTER else WAIT if what == ADDED else NEXT
        else:
            arrived[who] += 1
            if does[who] == RECEIVING:
                runs, point = who, TAKE
        while ended or begins >= 0 or runs >= 0:
            if begins >= 0:
                at, link = step[begins] * p + begins, links[begins]
                if not nbytes[at] or rates[begins] == inf:
                    over[0], ended = begins, 1
                else:
                    if link < len(idle) and now <= idle[link]:
                        return False  # messages of the last ring are on it
                    clock[link] = clock[link] + speed[link] * (now - since[link])
                    since[link], speed[link] = now, rates[begins] / (held[link] + 1)
                    held[link] += 1
                    first = inf
                    for worker in members[link]:
                        first = min(first, due[worker])
                    due[begins] = clock[link] + nbytes[at]
                    flows += 1
                    number[begins] = flows
                    rest = due[begins] - clock[link]
                    look = now + rest / speed[link] if rest > 0 else now
                    if due[begins] < first and look < wake[link]:
                        wake[link] = look
                        heappush(events, (look, scheduled, LOOK, link))
                        scheduled += 1
                begins = -1
            for place in range(ended):
                worker = over[place]
                at = step[worker] * p + worker
                left[at], ends[at] = now, now + latencies[worker]
                if does[worker] == SENDING:
                    heappush(events, (now, scheduled, GONE, worker))
                    scheduled += 1
                heappush(events, (ends[at], scheduled, ARRIVE, (worker + 1) % p))
                scheduled += 1
            ended = 0
            while runs >= 0 and begins < 0:
                at = step[runs] * p + runs
                if point == SEND:
                    starts[at] = now
                    point = RECEIVE
                    does[runs] = BUSY
                    if overhead:
                        ready[runs] = max(now, ready[runs]) + overhead
                        heappush(events, (now + (ready[runs] - now), scheduled, BEGIN, runs))
                        scheduled += 1
                    else:
                        begins = runs
                elif point == RECEIVE:
                    point = TAKE
                    if arrived[runs] <= step[runs]:
                        does[runs] = RECEIVING
                        runs = -1
                elif point == TAKE:
                    before = at - runs + (runs - 1) % p
                    does[runs], point = BUSY, WAIT
                    if at < (p - 1) * p and seconds[before] > 0:
                        called[at], begun[at] = now, max(free[runs], now)
                        added[at] = free[runs] = begun[at] + seconds[before]
                        heappush(events, (now + (free[runs] - now), scheduled, ADDED, runs))
                        scheduled += 1
                        runs = -1
                elif point == WAIT:
                    point = NEXT
                    if not left[at] >= 0:  # NaN
                        does[runs] = SENDING
                        runs = -1
                else:
                    step[runs] += 1
                    point = SEND
                    if at + p >= len(nbytes):
                        done[runs], order[through] = now, runs
                        through, runs = through + 1, -1
    for link in range(len(idle)):
        idle[link] = max(idle[link], looked[link])
    return True
