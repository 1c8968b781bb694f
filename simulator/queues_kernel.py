"""Messages that may be ahead of the narrowest link on their way (queues.py), over flows_kernel.py.

Of m messages, number c is as a whole the flow c; in two parts they are m + c and 2 m + c, up and down.
"""

from lockstep.simulator.flows_kernel import (
    BOTTLENECK,
    CLOCK,
    DUE,
    ENTERED,
    FIRST_TOLD,
    IS_TOLD,
    LAST_TOLD,
    LISTED,
    NORMAL,
    ORDER,
    PLANNED,
    ROUTE,
    SINCE,
    TOLD,
    TOLD_AFTER,
    TOLD_BEFORE,
    Net,
    Queue,
    add,
    plan,
    schedule,
    solve_later,
    tell,
    tell_all,
    widen,
)
from lockstep.simulator.jit import Ints, compiled
from lockstep.simulator.kernel import COUNT, OWNER, PATH, RATE, remove

WHOLE, PARTS, DOWN, REST = range(1, 5)  # a message is one flow, two, the second of these, or what was waiting
SAME = 1e-9  # as in queues.py
NOBODY = -1  # in the place of a message that was told, and is over
GOES_AS, PLAN, NOW = range(9, 12)  # more of `fw`, of messages: the above; when to look again; room for some
WAITING, BELOW = range(1, 3)  # of `fr`: bytes in the queue, while it is whole; bytes of the second part


@compiled
def left_of(flow: int, now: float, net: Net) -> float:
    """`Flow.left`."""
    _, lr, _, fr, fw, _, _ = net
    owner, left = fw[OWNER, flow], fr[DUE, flow]
    if owner >= 0:
        left -= lr[CLOCK, owner] + lr[RATE, owner] * (now - lr[SINCE, owner])
    return left if left > 0 else 0.0


@compiled
def cancel(flow: int, now: float, queue: Queue, whole: Ints, net: Net) -> None:
    """`Flows.cancel`."""
    shift, lr, lw, _, fw, ew, _ = net
    if ew[PATH, flow << shift] < 0:
        return
    left, owner = left_of(flow, now, net), fw[OWNER, flow]
    for entry in range(flow << shift, (flow + 1) << shift):
        if ew[PATH, entry] >= 0:
            lr[ENTERED, ew[PATH, entry]] -= left
    remove(flow, shift, lw, ew)
    fw[OWNER, flow] = -1
    if owner < 0:  # its coming has not been dealt with yet
        solve_later(flow, whole, net)
        return
    lr[CLOCK, owner] += lr[RATE, owner] * (now - lr[SINCE, owner])
    lr[SINCE, owner] = now
    lw[COUNT, owner] -= 1
    if lw[FIRST_TOLD, owner] >= 0:
        tell_all(owner, whole, net)
    if not (lw[BOTTLENECK, owner] and widen(owner, net)):
        solve_later(flow, whole, net)
    plan(owner, now, queue, whole, net)


@compiled
def listen(message: int, net: Net) -> None:
    """Let a message hear of all its links."""
    shift, _, lw, _, _, ew, _ = net
    for entry in range(message << shift, (message + 1) << shift):
        link = ew[ROUTE, entry]
        if link < 0:
            break
        last = lw[LAST_TOLD, link]
        ew[TOLD_BEFORE, entry], ew[TOLD_AFTER, entry], lw[LAST_TOLD, link] = last, -1, entry
        if last < 0:
            lw[FIRST_TOLD, link] = entry
        else:
            ew[TOLD_AFTER, last] = entry


@compiled
def unlisten(message: int, net: Net) -> None:
    """`_Message._unlisten`."""
    shift, _, lw, _, fw, ew, _ = net
    fw[PLAN, message] = -1
    for entry in range(message << shift, (message + 1) << shift):
        link = ew[ROUTE, entry]
        if link < 0:
            break
        before, after = ew[TOLD_BEFORE, entry], ew[TOLD_AFTER, entry]
        if before < 0:
            lw[FIRST_TOLD, link] = after
        else:
            ew[TOLD_AFTER, before] = after
        if after < 0:
            lw[LAST_TOLD, link] = before
        else:
            ew[TOLD_BEFORE, after] = before


@compiled
def join(c: int, left: float, now: float, queue: Queue, whole: Ints, net: Net) -> None:
    """`_Message.join`."""
    fw = net[4]
    fw[GOES_AS, c] = WHOLE
    add(c, left, now, queue, whole, net)
    if fw[OWNER, c] >= 0:  # else the flow is going to hear
        tell(c, whole, net)


@compiled
def start(c: int, nbytes: float, now: float, queue: Queue, whole: Ints, net: Net) -> None:
    """`Queues.start`, after the last message of that connection, which may have been told in this instant."""
    fr, fw = net[3], net[4]
    if fw[IS_TOLD, c] > 0:
        for at in range(whole[TOLD]):
            if fw[LISTED, at] == c:
                fw[LISTED, at] = NOBODY
        fw[IS_TOLD, c] = 0
    fr[WAITING, c] = 0.0
    join(c, nbytes, now, queue, whole, net)


@compiled
def part(c: int, messages: int, now: float, queue: Queue, whole: Ints, net: Net) -> None:
    """`_Message._part`."""
    fr, fw = net[3], net[4]
    left = left_of(c, now, net)
    cancel(c, now, queue, whole, net)
    fw[GOES_AS, c], fr[BELOW, c] = PARTS, left + fr[WAITING, c]
    listen(c, net)
    add(messages + c, left, now, queue, whole, net)
    add(2 * messages + c, fr[BELOW, c], now, queue, whole, net)
    tell(c, whole, net)


@compiled
def look_at_parts(
    c: int, messages: int, size: float, now: float, queue: Queue, whole: Ints, net: Net
) -> None:
    """`_Message._look_at_parts`; size: bytes that may wait."""
    _, lr, _, fr, fw, _, _ = net
    up, down = messages + c, 2 * messages + c
    if fw[OWNER, up] < 0 or fw[OWNER, down] < 0:  # it is going to hear when they have one
        return
    rate = lr[RATE, fw[OWNER, up]]
    left, growth = left_of(up, now, net), rate - lr[RATE, fw[OWNER, down]]
    queued = left_of(down, now, net) - left
    if abs(growth) <= SAME * rate:
        return
    change = size - queued if growth > 0 else -queued
    if now + abs(change / growth) == now or abs(change) <= SAME * (size + fr[BELOW, c]):
        cancel(up, now, queue, whole, net)
        cancel(down, now, queue, whole, net)
        unlisten(c, net)
        fr[WAITING, c] = size if growth > 0 else 0.0
        join(c, left, now, queue, whole, net)
    elif left * abs(growth) > rate * abs(change):  # else the card is done before that
        fw[PLAN, c] = NORMAL + whole[ORDER]
        schedule(queue, whole, now + change / growth, NORMAL, PLANNED, c)


@compiled
def look_at_messages(messages: int, size: float, now: float, queue: Queue, whole: Ints, net: Net) -> None:
    """`Queues._look`: part or join where queues begin or end to change."""
    shift, _, _, fr, fw, ew, _ = net
    told = whole[TOLD]
    for at in range(told):
        fw[NOW, at] = fw[LISTED, at]
        if fw[NOW, at] != NOBODY:
            fw[IS_TOLD, fw[NOW, at]] = 0
    whole[TOLD] = 0
    for at in range(told):
        c = fw[NOW, at]
        if c == NOBODY:
            continue
        if fw[GOES_AS, c] == WHOLE:
            owner = fw[OWNER, c]
            grows = owner != ew[ROUTE, c << shift]
            if owner >= 0 and grows == (fr[WAITING, c] == 0):
                part(c, messages, now, queue, whole, net)
        elif fw[GOES_AS, c] == PARTS:
            look_at_parts(c, messages, size, now, queue, whole, net)


@compiled
def over(flow: int, messages: int, now: float, queue: Queue, whole: Ints, net: Net) -> int:
    """A flow is done: what that means for its message, 0: nothing, 1: its last byte has left the sender,
    2: it has passed all links, 3: both."""
    fr, fw = net[3], net[4]
    c = flow % messages
    goes_as = fw[GOES_AS, c]
    if flow < messages:
        fw[GOES_AS, c] = REST
        if fr[WAITING, c] == 0:
            return 3
        add(2 * messages + c, fr[WAITING, c], now, queue, whole, net)
        return 1
    if goes_as == PARTS:
        fw[GOES_AS, c] = DOWN
        if flow >= 2 * messages:  # both end in this instant
            cancel(messages + c, now, queue, whole, net)
        unlisten(c, net)
        return 1 if flow < 2 * messages else 3
    return 2 if flow >= 2 * messages else 0
