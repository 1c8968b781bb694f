"""Gives flows new rates where those that came or went leave others with more or less than they had.

All changes of an instant are one: flows that share links with a changed one, directly or not, are solved at
its end, by what does that quickest (evenly.py, filling.py, compiled.py) or plainly (max_min.py).
"""

from collections.abc import Iterable
from heapq import heappop
from math import inf
from typing import TYPE_CHECKING

import simpy
from simpy.events import EventPriority

from lockstep.simulator.compiled import Compiled
from lockstep.simulator.errors import SimulationError
from lockstep.simulator.evenly import Even, search
from lockstep.simulator.events import Timeout
from lockstep.simulator.filling import Filling, Order
from lockstep.simulator.links import Flow, Link
from lockstep.simulator.max_min import max_min
from lockstep.simulator.native import native

if TYPE_CHECKING:
    from lockstep.simulator.flows import Flows

_LAST = EventPriority(9)  # after all other events of its instant
_FEW = 6  # flows a link, on average: with fewer a part of the network is solved plainly
_FEWER = 5  # with which that is done again, where it was not
_MUCH = 30_000  # links in solutions, after which it pays to compile the solver


def tell(link: Link) -> None:
    """Let those who listen to a link know that its flows go at other rates."""
    for listener in link.listeners:
        listener.told()


def _few(links: Iterable[Link], flows: float) -> bool:
    """Whether fewer flows than that cross a link that has some, on average."""
    counts = [count for link in links if (count := len(link.flows))]
    return not counts or sum(counts) < flows * len(counts)


class Solving:
    """What solves the flows of a network anew."""

    solved = 0  # links in solutions so far, of all runs of this process

    def __init__(self, flows: "Flows") -> None:
        self._flows = flows
        self._changed: dict[Link, None] = {}  # where flows came or went and a solution is due
        self.compiled: Compiled | None = None  # what solves once there is much to solve

    def limit(self, link: Link) -> None:
        """Take note that a link has another capacity."""
        if link.filling is not None and link.filling is self.compiled:
            self.compiled.limit(link)

    def later(self, links: tuple[Link, ...]) -> None:
        """At the end of this instant solve anew what shares flows, directly or not, with these links."""
        if not self._changed:
            Timeout(self._flows.environment, 0.0, self._solve, _LAST)
        self._changed.update(dict.fromkeys(links))

    def _solve(self, _: simpy.Event) -> None:
        """Solve anew all flows that share links, directly or not, with changed ones."""
        changed, self._changed = self._changed, {}
        solver, reached = self._solver(changed)
        now, order = self._flows.environment._now, Order(changed)
        for link in reached:
            link.clock += link.rate * (now - link.since)
            link.since = now
        if solver is None or (moved := solver.solve(order)) is None:
            self._plainly(reached)
            return
        self._move(moved, now)
        if not solver.in_order and any(link.listeners for link in reached):
            reached.sort(key=order.reached)
        looks: list[tuple[float, float, Link]] = []
        for link in reached:
            if link.count:
                link.bound = 0.0
                link.bottleneck = link.count == len(link.flows) and solver.alone(link)
                held, clock = link.held, link.clock
                while held:
                    due, _number, flow = held[0]
                    if flow.owner is link and flow.due == due:
                        at = now + (due - clock) / link.rate if due > clock else now
                        if at < link.wake:
                            looks.append((at, due, link))
                        break
                    heappop(held)  # it was cancelled, or held elsewhere since
                else:
                    link.wake = inf
            else:
                link.bottleneck, link.bound, link.wake = not link.flows, inf, inf
                if link.rate or link.held:
                    self._flows.rest(link)
            if link.listeners:
                tell(link)
        if not solver.in_order and len({at for at, *_ in looks}) < len(looks):
            looks.sort(key=lambda each: order.reached(each[2]))
        for _at, due, link in looks:
            self._flows.wake(link, due, now)

    def _solver(self, changed: dict[Link, None]) -> tuple[Filling | Compiled | Even | None, list[Link]]:
        """Who solves links that share flows with changed ones, and these; None: they are solved plainly."""
        if self.compiled is not None:
            found = self.compiled.part(changed)
            if found is not None:
                return self.compiled, found
            self.compiled = None
        filling = next((link.filling for link in changed if isinstance(link.filling, Filling)), None)
        found = None if filling is None else filling.part(changed)
        if found is None or _few(found, _FEWER):
            reached = search(changed)
            for link in reached:
                link.filling = None
            if any(link.tokens is not None for link in reached):
                return None, reached
            if _few(reached, _FEW):
                return None if self._flows.listened else Even(reached), reached
            filling = Filling()
            found = filling.part(dict.fromkeys(Order(changed).all()))
            assert found is not None
            found += [link for link in changed if not link.flows]
        Solving.solved += len(found)
        if Solving.solved > _MUCH and native("kernel", "solve"):
            self.compiled = Compiled(self._flows.listened)
        return filling, found

    def _move(self, moved: list[tuple[Flow, Link]], now: float) -> None:
        """Let flows be held back by other links, at rates that nobody has yet; clocks show the present."""
        lefts = [flow.left(now) for flow, _ in moved]
        for (flow, owner), left in zip(moved, lefts, strict=True):
            if flow.owner is not None:
                flow.owner.count -= 1
            self._flows.hold(owner, flow, owner.clock + left)
            flow.moved()

    def _plainly(self, reached: list[Link]) -> None:
        """The same where links have token buckets, and where there is little to solve."""
        flows = {flow: path for link in reached for flow, path in link.flows.items()}
        for link in reached:
            if link.tokens is not None:
                self._flows.read_tokens(link)
        found = max_min(flows, {link: link.capacity for link in reached})
        now = self._flows.environment.now
        self._move([(flow, owner) for flow, (_, owner) in found.items() if flow.owner is not owner], now)
        loads, fastest = dict.fromkeys(reached, 0.0), dict.fromkeys(reached, 0.0)
        for flow, (rate, owner) in found.items():
            owner.rate, owner.bound = rate, 0.0
            for link in flow.path:
                loads[link] += rate
                if rate > fastest[link]:
                    fastest[link] = rate
        unsaturated = {link: self._unsaturated(link, loads[link], fastest[link]) for link in reached}
        for link in reached:
            link.bottleneck = link.count == len(link.flows) and all(
                unsaturated[crossed] for flow in link.flows for crossed in flow.path if crossed is not link
            )
            if not link.count:
                self._flows.rest(link)
            self._flows.plan(link, now)
            if link.listeners:
                tell(link)

    def _unsaturated(self, link: Link, load: float, fastest: float) -> bool:
        """Whether a link holds nobody back, nor would if all who cross it had an equal share."""
        if load > link.capacity * (1 + 1e-9):
            raise SimulationError(f"{link.id.name} carries more than its capacity")
        self._flows.plan_tokens(link, load)
        return not link.count and fastest * len(link.flows) <= link.sustained
