"""Flows that share links max-min fairly, over time.

The flows that one link holds back have the same rate, so they share a clock that counts the bytes each of
them has carried (a virtual clock, as in fair queueing: Demers, Keshav and Shenker 1989): when a flow comes or
goes only the clock's speed changes, and the next to finish is at the top of a heap. As long as every flow
crosses a link that holds back all who cross it, and no other link of its path would give it less, that costs
O(log n); where links hold each other back, all flows that share links with a changed one, directly or not,
are solved anew by progressive filling, once for all changes of an instant.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

import simpy
from simpy.events import EventPriority

from simulator.max_min import max_min

_LAST = EventPriority(9)  # after all other events of its instant
_SAME = 1 + 1e-12  # clocks that differ by less are taken for equal: rounding, not time


class Call(simpy.Event):
    """A function called after a delay."""

    def __init__(
        self,
        environment: simpy.Environment,
        delay: float,
        call: Callable[[simpy.Event], object],
        priority: EventPriority = EventPriority(1),  # noqa: B008  (a number)
    ) -> None:
        # What simpy.Timeout does, with any priority.
        self.env = environment
        self.callbacks = [call]  # type: ignore[list-item]
        self._ok, self._value, self._defused = True, None, False
        environment.schedule(self, priority, delay)


class Link:
    """One direction of a network card or of a cable. Capacity in bytes/s.

    `clock` is how many bytes each flow held back here has carried since it was last idle, at the instant
    `since`; it runs at `rate`. `held` has those flows by the clock's reading when they will be done.
    """

    __slots__ = (
        *("alone", "bound", "capacity", "clock", "count", "flows"),
        *("held", "name", "rate", "since", "used", "wake"),
    )

    def __init__(self, name: str, capacity: float) -> None:
        self.name = name
        self.capacity = capacity
        self.flows: dict[Flow, None] = {}
        self.count = 0  # of the flows that it holds back
        self.held: list[tuple[float, int, Flow]] = []
        self.clock = self.rate = self.since = 0.0
        self.alone = True  # it holds back all its flows, and every other link on their paths is calm
        self.bound = float("inf")  # no other link of a held flow gives it less than this
        self.used = 0  # flows so far
        self.wake = float("inf")  # the instant at which it will be looked at again


class Flow:
    """A message on its way over `path`; `owner` is the link that holds it back."""

    __slots__ = ("done", "number", "owner", "path", "size")

    def __init__(self, path: tuple[Link, ...], size: float, done: Callable[[], object]) -> None:
        self.path = path
        self.size = size
        self.done = done
        self.owner: Link | None = None
        self.number = 0  # of its valid entry in the owner's heap


class Flows:
    """All flows under way."""

    def __init__(self, environment: simpy.Environment) -> None:
        self.environment = environment
        self._changed: dict[Link, None] = {}  # where flows came or went and a solution is due
        self._number = 0

    def start(self, path: tuple[Link, ...], nbytes: float, done: Callable[[], object]) -> None:
        """Send bytes over a path of one or more links; `done` is called when the last has left."""
        flow = Flow(path, float(nbytes), done)
        narrow, least = path[0], float("inf")
        for link in path:
            link.flows[flow] = None
            link.used += 1
            share = link.capacity / len(link.flows)
            if share < least or (share == least and link.used > narrow.used):
                narrow, least = link, share
        narrow.alone = len(narrow.flows) == 1 or (narrow.alone and narrow.count == len(narrow.flows) - 1)
        if not narrow.alone or not self._harmless(flow, narrow):
            self._solve_later(path)
            return
        self._advance(narrow)
        narrow.rate = least
        self._hold(narrow, flow, flow.size)
        if narrow.held[0][2] is flow:  # else the next one to finish finishes later than planned
            self._plan(narrow)

    def _harmless(self, flow: Flow, narrow: Link) -> bool:
        """Whether a new flow leaves all others on its path with what they have, but on its narrow link."""
        for link in flow.path:
            if link is narrow:
                continue
            if link.count:
                return False
            share = link.capacity / len(link.flows)
            narrow.bound = min(narrow.bound, share)
            for other in link.flows:
                if other is not flow:
                    owner = other.owner
                    if owner is None or owner.rate > share:
                        return False
                    owner.bound = min(owner.bound, share)
        return True

    def _finish(self, link: Link) -> None:
        """End the flows of a link that are done by now."""
        self._advance(link)
        finished = []
        held, until = link.held, link.clock * _SAME + link.rate * self.environment.now * 1e-15
        while held and held[0][0] <= until:
            _, number, flow = heappop(held)
            if flow.number == number and flow.owner is link:
                finished.append(flow)
                flow.owner = None
                link.count -= 1
        for flow in finished:
            for crossed in flow.path:
                del crossed.flows[flow]
        if finished and not (link.alone and self._widen(link)):
            for flow in finished:
                self._solve_later(flow.path)
        self._plan(link)
        for flow in finished:
            flow.done()

    def _widen(self, link: Link) -> bool:
        """Give the flows that a link still holds back what others left; False if another link forbids it."""
        if not link.count:
            link.clock, link.rate, link.bound = 0.0, 0.0, float("inf")
            return True
        share = link.capacity / link.count
        if share > link.bound:
            others = [m.capacity / len(m.flows) for flow in link.flows for m in flow.path if m is not link]
            link.bound = min(others, default=float("inf"))
            if share > link.bound:
                return False
        link.rate = share
        return True

    def _advance(self, link: Link) -> None:
        now = self.environment.now
        link.clock += link.rate * (now - link.since)
        link.since = now

    def _hold(self, link: Link, flow: Flow, left: float) -> None:
        """Let a flow with bytes left share the link's clock, which must read the present."""
        self._number += 1
        flow.owner, flow.number = link, self._number
        link.count += 1
        heappush(link.held, (link.clock + left, self._number, flow))

    def _plan(self, link: Link) -> None:
        """See that the link is looked at when the first of its flows is done; too early does no harm."""
        held = link.held
        while held and not (held[0][2].owner is link and held[0][2].number == held[0][1]):
            heappop(held)
        if not held:
            link.wake = float("inf")
            return
        delay = max(0.0, held[0][0] - link.clock) / link.rate
        at = self.environment.now + delay
        if at < link.wake:
            link.wake = at
            Call(self.environment, delay, partial(self._look, link))

    def _look(self, link: Link, _: simpy.Event) -> None:
        if link.wake == self.environment.now:  # else it has been looked at since, or is to be later
            link.wake = float("inf")
            self._finish(link)

    def _solve_later(self, links: tuple[Link, ...]) -> None:
        if not self._changed:
            Call(self.environment, 0.0, self._solve, _LAST)
        self._changed.update(dict.fromkeys(links))

    def _solve(self, _: simpy.Event) -> None:
        """Solve anew all flows that share links, directly or not, with changed ones."""
        links, flows = self._changed, dict[Flow, None]()
        self._changed = {}
        reached = deque(links)
        while reached:
            for flow in reached.popleft().flows:
                if flow not in flows:
                    flows[flow] = None
                    new = [link for link in flow.path if link not in links]
                    links.update(dict.fromkeys(new))
                    reached.extend(new)
        for link in links:
            self._advance(link)
        left = self._take_out(links)
        found = max_min({flow: flow.path for flow in flows}, {link: link.capacity for link in links})
        for flow in flows:
            rate, owner = found[flow]
            owner.rate, owner.bound = rate, 0.0
            self._hold(owner, flow, left.get(flow, flow.size))
        calm = {link: self._calm(link, [found[flow][0] for flow in link.flows]) for link in links}
        for link in links:
            link.alone = link.count == len(link.flows) and all(
                calm[crossed] for flow in link.flows for crossed in flow.path if crossed is not link
            )
            self._plan(link)

    def _calm(self, link: Link, rates: list[float]) -> bool:
        """Whether a link holds nobody back, nor would if all who cross it had an equal share."""
        if sum(rates) > link.capacity * (1 + 1e-9):
            raise AssertionError(f"{link.name} carries more than its capacity")
        return not link.count and max(rates, default=0.0) * len(rates) <= link.capacity

    def _take_out(self, links: dict[Link, None]) -> dict[Flow, float]:
        """Empty the links' clocks; the bytes that each of their flows has left."""
        left: dict[Flow, float] = {}
        for link in links:
            for done_at, number, flow in link.held:
                if flow.owner is link and flow.number == number:
                    left[flow] = max(0.0, done_at - link.clock)
            link.held.clear()
            link.count, link.clock, link.rate, link.bound = 0, 0.0, 0.0, float("inf")
        return left
