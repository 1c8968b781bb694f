"""The failure detector of a real run: servers hear `leave` on behalf of workers that are gone.

A failure is noticed `cluster.detect` after it. So each server knows from the schedule when that is.
"""

from math import inf

from lockstep.executor.inbox import Arrived
from lockstep.executor.port import RealPort
from lockstep.job.faults import Crash, Fault
from lockstep.job.recovery import Faults, noticed
from lockstep.strategies.node import Message


def hear_of_leaving(port: RealPort, since: float, rejoins: bool) -> None:
    """Let a server hear of its workers' failures from `since` (s) on.

    rejoins: whether the others have gone on until then, so that some may be gone already.
    """
    faults, down = Faults(port.plan), dict[int, float]()  # until when

    def tell(rank: int, fault: Fault) -> None:
        if fault.at >= since:  # else the connection is a new one anyway
            port.transport.forget(rank)
        if port.plan.scenario.on_failure == "wait":
            return
        port.hear(Arrived(Message("leave", rank), port.now, 0))
        if fault.until == inf:
            port.node.ending.left(rank)

    def befalls(fault: Fault) -> None:
        known = noticed(port.plan.scenario, fault)
        ranks = [r for r in fault.ranks if r in port.plan.workers and down.get(r, -inf) <= fault.at]
        if known < inf:
            down.update(dict.fromkeys(ranks, fault.until))
        if known < (fault.until if isinstance(fault, Crash) else inf):
            for rank in ranks if fault.until > since else ():
                port.at(max(known, since)).then(lambda _, rank=rank: tell(rank, fault))  # type: ignore[misc]

    def await_next() -> None:
        if faults.next is not None and faults.next.at < inf:
            port.at(faults.next.at).then(happens)

    def happens(_: object) -> None:
        befalls(faults.pop())
        await_next()

    while faults.next is not None and faults.next.at < since:
        before = faults.pop()
        if rejoins:
            befalls(before)
    await_next()
