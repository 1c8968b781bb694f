"""The failure detector of a real run: servers hear `leave` on behalf of workers that are gone.

A failure is noticed `cluster.detect` after it. So each server knows from the schedule when that is.
"""

from math import inf

from lockstep.executor.inbox import Arrived
from lockstep.executor.port import RealPort
from lockstep.job.faults import Crash, Fault
from lockstep.job.recovery import Faults, noticed
from lockstep.strategies.node import Message


def hear_of_leaving(port: RealPort, since: float) -> None:
    """Let a server hear of its workers' failures from `since` (s) on."""
    faults, down = Faults(port.plan), dict[int, float]()  # until when
    while faults.next is not None and faults.next.at < since:
        faults.pop()

    def tell(rank: int, fault: Fault) -> None:
        port.transport.forget(rank)
        if port.plan.scenario.on_failure == "wait":
            return
        port.take_in(Arrived(Message("leave", rank), port.now, 0))
        if fault.until == inf:
            port.node.ending.left(rank)

    def happens(_: object) -> None:
        fault = faults.pop()
        known = noticed(port.plan.scenario, fault)
        ranks = [rank for rank in fault.ranks if down.get(rank, -inf) <= fault.at]
        if known < inf:
            down.update(dict.fromkeys(ranks, fault.until))
        if known < (fault.until if isinstance(fault, Crash) else inf):
            for rank in ranks:
                port.at(known).then(lambda _, rank=rank: tell(rank, fault))  # type: ignore[misc]
        await_next()

    def await_next() -> None:
        if faults.next is not None and faults.next.at < inf:
            port.at(faults.next.at).then(happens)

    await_next()
