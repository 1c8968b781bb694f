"""What the loops have in common that make whole runs: plain Python that numba compiles (loop.py)."""

from math import inf

from lockstep.simulator.flows_kernel import (
    BOTTLENECK,
    EVENTS,
    FINISHED,
    FIRST_TOLD,
    HEAR,
    PLANNED,
    SOLVE,
    SOLVES,
    TIGHT,
    WORK,
    Net,
    Queue,
    last_now,
    look,
    solve,
    solve_later,
    take,
    tell,
    tell_all,
    widen,
)
from lockstep.simulator.jit import Floats, Ints, Reals, Wholes, compiled, inlined
from lockstep.simulator.queues_kernel import PLAN, look_at_messages

DONE, MORE, FULL, READ, WRONG, PAUSE = range(6)  # why it stops: over; draw times, make room, read links
MUCH = 1 << 20  # events, and flows in solutions, after which Python may want to hear of a signal
# Places in `whole` after those of flows_kernel.py: rows of messages, gradients, updates and work; flows that
# may end before links are read; the link where that interrupted, and flows that had ended there; steps, those
# in one instant, workers without drawn times, mini-batches taken, bytes sent and arrived; the first message
# that is free, and how many are (traced_kernel.py)
MESSAGES, GRADIENTS, UPDATES, WORKS, UNREAD, AT, ENDED, STEPS, STILL, EMPTY, TAKEN, SENT, CAME = range(9, 22)
FREE_ONE, FREE_ONES, PLACES = range(22, 25)
ENDLESS = 1 << 60  # mini-batches
LATENCY = 5  # of `fr`: of the connection
Record = tuple[Wholes, Reals]  # whole numbers, and times, in rows


@inlined
def ended(link: int, now: float, whole: Ints, net: Net) -> int:
    """`Flows._look` until flows are told that they are done: how many."""
    lw, fw = net[2], net[4]
    flowed = look(link, now, net)
    if flowed:
        if lw[FIRST_TOLD, link] >= 0:
            tell_all(link, whole, net)
        if not (lw[BOTTLENECK, link] and widen(link, net)):
            for at in range(flowed):
                solve_later(fw[FINISHED, at], whole, net)
        whole[UNREAD] -= flowed
    return flowed


@inlined
def next_event(until: float, crowd: int, full: bool, queue: Queue, whole: Ints, real: Floats) -> int:
    """Take what happens next, and let time pass until then: what it is in the last four bits, and of whom.

    Negative: why the loop stops instead, with its bits turned over. until: when it is over, s; crowd: of whom
    each may begin a thousand mini-batches in one instant; full: whether there is no room for what it may do.
    """
    last = last_now(real[0], queue, whole)
    if not last and (not whole[EVENTS] or queue[0][0] >= until):
        real[0] = real[0] if until == inf else until
        return ~DONE
    if whole[EMPTY]:
        return ~MORE
    if full or whole[TIGHT]:
        return ~FULL
    whole[WORK] += 1
    if whole[WORK] > MUCH:
        whole[WORK] = 0
        return ~PAUSE
    if last:
        whole[last] = 0
        return SOLVE if last == SOLVES else HEAR
    if queue[0][0] > real[0]:
        real[0], whole[STILL] = queue[0][0], 0
    elif whole[STILL] > 1000 * crowd:
        return ~WRONG
    return take(queue, whole)


@compiled
def solved(
    what: int,
    whom: int,
    order: int,
    messages: int,
    waits: float,
    now: float,
    queue: Queue,
    whole: Ints,
    net: Net,
) -> bool:
    """What happens once the rates of an instant are due; False: a link carries more than it can.

    order: of the event; messages: how many there may be; waits: bytes of each that may wait in switches.
    """
    if what == SOLVE:
        return solve(now, messages if waits else 0, queue, whole, net)
    if what == HEAR:
        look_at_messages(messages, waits, now, queue, whole, net)
    elif what == PLANNED and net[4][PLAN, whom] == order:
        tell(whom, whole, net)
    return True
