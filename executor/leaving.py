"""The failure detector of a real run: servers, or other workers, hear `leave` on behalf of who is gone.

A failure of the scenario is noticed `cluster.detect` after it. So each knows from the schedule when that is.
Who has died by itself, or hangs, is named by the launcher, in the store.
"""

import json
from functools import partial
from math import inf

from lockstep.executor.inbox import Arrived
from lockstep.executor.port import RealPort
from lockstep.executor.stores import Store
from lockstep.job.faults import Crash, Fault
from lockstep.job.recovery import Faults, noticed
from lockstep.strategies.node import Message


def hear_of_leaving(port: RealPort, since: float, rejoins: bool) -> None:
    """Let a node hear of workers' failures from `since` (s) on.

    rejoins: whether the others have gone on until then, so that some may be gone already.
    """
    faults = Faults(port.plan)

    def tell(rank: int, fault: Fault) -> None:
        if port.now >= fault.until:  # it may be back by now
            return
        port.transport.forget(rank, anew=fault.at >= since)  # else the connection is a new one anyway
        if port.plan.scenario.on_failure == "wait":
            return
        port.hear(Arrived(Message("leave", rank), port.now, 0))
        if fault.until == inf:
            port.node.ending.left(rank)
            port.ended[rank] = port.transport.connection(rank)

    def befalls(fault: Fault) -> None:
        known = noticed(port.plan.scenario, fault)
        ranks = [r for r in fault.ranks if r in port.plan.workers and r != port.rank]
        if known < (fault.until if isinstance(fault, Crash) else inf):
            for rank in ranks if fault.until > since else ():
                port.alarm(max(known, since)).then(lambda _, rank=rank: tell(rank, fault))  # type: ignore[misc]

    def await_next() -> None:
        if faults.next is not None and faults.next.at < inf:
            port.alarm(faults.next.at).then(happens)

    def happens(_: object) -> None:
        befalls(faults.pop())
        await_next()

    while faults.next is not None and faults.next.at < since:
        before = faults.pop()
        if rejoins:
            befalls(before)
    await_next()


def name_dead(store: Store, number: int, rank: int, life: int) -> None:
    """Let all hear, as the so-manieth (from 1), that a process has died; its next life is that one."""
    store.set(_key(number), json.dumps([rank, life]))


def hear_of_deaths(port: RealPort) -> None:
    """Let a node hear of workers that die by themselves from now on, unless their places have been taken."""
    told = 0
    while port.store.check([_key(told + 1)]):  # who is not there yet will say so
        told += 1

    def tell(rank: int, life: int, _: object) -> None:
        if port.transport.lives[rank] < life:
            port.transport.forget(rank)
            port.hear(Arrived(Message("leave", rank), port.now, 0))

    def look() -> None:
        nonlocal told
        while port.store.check([_key(told + 1)]):
            told += 1
            rank, life = json.loads(port.store.get(_key(told)))
            if rank in port.plan.workers and rank != port.rank:
                port.alarm(port.now).then(partial(tell, rank, life))

    port.look_for_deaths = look


def _key(number: int) -> str:
    return f"dead/{number}"
