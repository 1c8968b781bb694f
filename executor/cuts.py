"""Links that are cut in a run without a testbed: messages wait where they arrive, as in the simulator.

Each process knows the schedule, a pure function of the scenario, and the run's clock: nobody has to tell it.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from lockstep.job.faults import Cut, there_at
from lockstep.job.plan import Plan
from lockstep.job.port import Arrival
from lockstep.job.recovery import Faults
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.faults import LinkDown, Partition

if TYPE_CHECKING:
    from lockstep.executor.port import RealPort

TakeIn = Callable[[Arrival], None]


def cuts_links(plan: Plan) -> bool:
    """Whether a link of the run is ever cut."""
    return any(isinstance(item, LinkDown | Partition) for item in plan.scenario.cluster.faults)


def check(plan: Plan, testbed: bool) -> None:
    """Raises ScenarioError for what real runs cannot do."""
    if plan.native and cuts_links(plan) and not testbed:
        problem = (
            "a link is cut, and without a testbed nothing holds up the native all-reduce; "
            "take --testbed, or strategy.algorithm: ring"
        )
        raise ScenarioError(problem, key="cluster.faults")


def held_up(port: "RealPort", take_in: TakeIn, since: float) -> TakeIn:
    """What hands a message over as soon as no cut from `since` (s) on holds it up, each sender's in order."""
    plan, host = port.plan, port.plan.hosts[port.rank]
    faults, cuts = Faults(plan), list[Cut]()
    handed: dict[int, float] = {}  # by sender: when the last one is there
    held: list[tuple[float, int, Arrival, int]] = []
    lives = port.transport.lives
    numbers = count()

    def hand_over(_: object) -> None:
        port.held_up -= 1
        *_, arrival, life = heappop(held)  # as many as there are timers, and each the first of what is left
        if life == lives[arrival.message.sender]:  # else who sent it has failed
            take_in(arrival)

    def arrives(arrival: Arrival) -> None:
        now, sender = port.now, arrival.message.sender
        while (fault := faults.next) is not None and fault.at <= now:
            faults.pop()
            if isinstance(fault, Cut) and fault.at >= since:
                cuts.append(fault)
        at = max(there_at(cuts, arrival.start, now, plan.hosts[sender], host), handed.get(sender, now))
        handed[sender] = at
        if at <= now and not held:
            take_in(arrival)
            return
        port.held_up += 1
        heappush(held, (at, next(numbers), arrival, lives[sender]))
        port.wait(max(0.0, at - now)).then(hand_over)

    return arrives
