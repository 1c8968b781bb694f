"""Flows that share links max-min fairly, over time.

The flows that one link holds back have the same rate, so they share a clock that counts the bytes each of
them has carried (a virtual clock, as in fair queueing: Demers, Keshav and Shenker 1989): when a flow comes or
goes only the clock's speed changes, and the next to finish is at the top of a heap. As long as every flow
crosses a link that holds back all who cross it, and no other link of its path would give it less, that costs
O(log n); where links hold each other back, all flows that share links with a changed one, directly or not,
are solved anew by progressive filling, once for all changes of an instant.

A link with a token bucket goes at its line rate while there are tokens (bucket.py). They are read off the
bytes that the link has carried, only when they must be known: as long as it holds back its flows itself, or
others hold them back below its sustained capacity, they need nothing to be done at a change.

Real cards send trains of frames in turn. On average each of n messages is ahead of the fluid by 1/n of half a
train (bucket.py): when one comes, the others have a little more left, and it has less.
"""

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any

import simpy

from lockstep.simulator.bucket import Bucket, Tokens
from lockstep.simulator.events import NORMAL, Aside
from lockstep.simulator.links import Flow, Link, positive
from lockstep.simulator.solving import Solving, tell

_SAME = 1 + 1e-12  # clocks that differ by less are taken for equal: rounding, not time
_TURNS = 64  # flows on a link, above which turns make no difference


class _Told(Flow):
    """A flow that lets somebody know when it is done."""

    __slots__ = ("_done",)

    def __init__(self, path: tuple[Link, ...], size: float, done: Callable[[], object]) -> None:
        super().__init__(path, size)
        self._done = done

    def done(self) -> object:
        return self._done()


class _Endless(Flow):
    """Counts as one of no bytes that nobody ends: those it has left are negative, those it has carried."""

    __slots__ = ()
    endless = True


class _Look:
    """Calls `Flows._look` with itself."""

    __slots__ = ("callbacks", "link")
    _ok = True

    def __init__(self, link: Link) -> None:
        self.link = link
        self.callbacks: Sequence[Callable[[_Look], None]]


class Flows:
    """All flows under way."""

    def __init__(self, environment: simpy.Environment) -> None:
        self.environment = environment
        self._number = 0
        self._watcher: Callable[[], int] | None = None
        self.listened = False  # whether anybody listens to links
        self.uncounted = False  # whether links have carried what they do not know of yet
        self._solving = Solving(self)
        self._solve_later = self._solving.later
        self.unwatched = 0  # how many flows may end before the watcher is called
        self._looks = [self._look]
        self._queue: list[Any] = environment._queue  # at hand for what is done most
        self._numbers = environment._eid

    def watch(self, watcher: Callable[[], int]) -> None:
        """Call the watcher when a flow ends, and again after as many more as it said."""
        self._watcher = watcher

    def start(self, path: tuple[Link, ...], nbytes: float, done: Callable[[], object]) -> Flow:
        """Send bytes over a path of one or more links; `done` is called when the last has left.

        An infinite number of bytes is background traffic, which does not keep the simulation running.
        """
        flow = _Endless(path, 0.0) if nbytes == inf else _Told(path, nbytes, done)
        self.add(flow)
        return flow

    def add(self, flow: Flow, *, comes: bool = True) -> None:
        """Let a flow begin; `comes`: it does not go on where one before it, of its connection, ended."""
        path, size = flow.path, flow.size
        narrow, least, others = path[0], inf, 0
        for link in path:
            if link.tokens is not None and not link.count:
                self.read_tokens(link, flow)
            flows = link.flows
            before = len(flows)
            flows[flow] = path
            link.entered += size
            link.used += 1
            share = link.capacity / (before + 1)
            if share <= least and (share < least or link.used > narrow.used):
                narrow, least, others = link, share, before
        if self._solving.compiled is not None:
            self._solving.compiled.note(flow)
        tokens = narrow.tokens
        if comes and tokens is not None and tokens.bucket.train and 0 < others < _TURNS:
            self._take_turns(flow, narrow, tokens.bucket)
        narrow.bottleneck = not others or (narrow.bottleneck and narrow.count == others)
        if not narrow.bottleneck or not self._harmless(flow, narrow, least):
            self._solve_later(path)
            return
        now = self.environment._now
        narrow.clock = clock = narrow.clock + narrow.rate * (now - narrow.since)
        narrow.since, narrow.rate = now, least
        self.hold(narrow, flow, clock + flow.size)
        held = narrow.held
        if held and held[0][2] is flow:  # else the next to finish does so later than planned
            self.wake(narrow, flow.due, now)
        if tokens is not None and not others:
            self.plan_tokens(narrow, least)
        if narrow.listeners:
            tell(narrow)

    def cancel(self, flow: Flow) -> None:
        """End a flow where it is, without calling its `done`; no effect on one that has ended."""
        if flow not in flow.path[0].flows:
            return
        left = flow.left(self.environment.now)
        for link in flow.path:
            del link.flows[flow]
            link.entered -= left
        if self._solving.compiled is not None:
            self._solving.compiled.note(flow)
        owner, flow.owner = flow.owner, None
        if owner is None:  # its coming has not been dealt with yet
            self._solve_later(flow.path)
            return
        self._advance(owner)
        owner.count -= 1
        if owner.listeners:
            tell(owner)
        if not (owner.bottleneck and self._widen(owner)):
            self._solve_later(flow.path)
        self.plan(owner, self.environment.now)

    def lengthen(self, flow: Flow, nbytes: float) -> None:
        """Let a flow carry so many bytes more."""
        for link in flow.path:
            link.entered += nbytes
        owner = flow.owner
        if owner is None:
            flow.size += nbytes
            return
        flow.due += nbytes
        if not flow.endless:
            self._number += 1
            heappush(owner.held, (flow.due, self._number, flow))

    def _take_turns(self, flow: Flow, link: Link, bucket: Bucket) -> None:
        """Let a flow that comes have its place among those on a link, which are behind by so much more."""
        others = [other for other in link.flows if other is not flow and not other.endless]
        if flow.endless or not others:
            return
        now, behind, ahead = self.environment.now, bucket.behind(flow.altogether, len(others)), 0.0
        for other in others:
            nbytes = min(behind, other.left(now))
            ahead += nbytes
            self.lengthen(other, nbytes)
            other.lengthened(nbytes)
        self.lengthen(flow, -ahead)

    def set_capacity(self, link: Link, capacity: float) -> None:
        """Give a link another capacity, in bytes/s, from now on; its flows go on at their new rates."""
        now, tokens = self.environment.now, link.tokens
        positive(link.id, capacity, None if tokens is None else tokens.bucket)
        link.offered, link.sustained_since = self.offered(link), now
        if tokens is not None:
            self.read_tokens(link)
        link.sustained = capacity
        if tokens is None or tokens.left <= 0:
            link.capacity = capacity
        link.solved = -1  # what it was solved with
        self._solving.limit(link)
        if link.flows:
            self._solve_later((link,))

    def ended(self, count: int) -> None:
        """So many flows have ended: the watcher may want to know."""
        self.unwatched -= count
        if self._watcher is not None and self.unwatched <= 0 and not self.uncounted:
            self.unwatched = self._watcher()

    def carried(self, link: Link) -> float:
        """Bytes that a link has carried so far, those of flows under way included."""
        if not link.flows:
            return link.entered
        now = self.environment._now
        return link.entered - sum([flow.left(now) for flow in link.flows])

    def offered(self, link: Link) -> float:
        """Bytes that a link could have carried so far at its capacity, bursts apart."""
        return link.offered + link.sustained * (self.environment._now - link.sustained_since)

    def _harmless(self, flow: Flow, narrow: Link, rate: float) -> bool:
        """Whether a new flow leaves all others on its path with what they have, but on its narrow link."""
        for link in flow.path:
            if link is narrow:
                continue
            flows = link.flows
            share = link.sustained / len(flows)
            if link.count or rate > share:
                return False
            if share < narrow.bound:
                narrow.bound = share
            if len(flows) > 1:
                for other in flows:
                    if other is not flow:
                        owner = other.owner
                        if owner is None or owner.rate > share:
                            return False
                        if share < owner.bound:
                            owner.bound = share
        return True

    def _look(self, look: _Look) -> None:
        """End the flows of a link that are done by now."""
        link, now = look.link, self.environment._now
        if link.wake != now:  # it has been looked at since, or is to be later
            return
        link.wake = inf
        rate, held, finished = link.rate, link.held, []
        link.clock = clock = link.clock + rate * (now - link.since)
        link.since = now
        until = clock * _SAME + rate * now * 1e-15
        while held:
            due, _, flow = held[0]
            if flow.owner is link and flow.due == due:  # else it was cancelled, or held elsewhere since
                if due > until:
                    break
                finished.append(flow)
                flow.owner = None
                for crossed in flow.path:
                    del crossed.flows[flow]
            heappop(held)
        if finished:
            link.count -= len(finished)
            if self._solving.compiled is not None:
                self._solving.compiled.note(*finished)
            if link.listeners:
                tell(link)
            if not (link.bottleneck and self._widen(link)):
                for flow in finished:
                    self._solve_later(flow.path)
            self.unwatched -= len(finished)
            if self.unwatched <= 0:
                self.ended(0)
        if held:
            self.wake(link, due, now, look)
        for flow in finished:
            flow.done()

    def _widen(self, link: Link) -> bool:
        """Give the flows that a link still holds back what others left; False if another link forbids it."""
        if not link.count:
            if link.tokens is not None:
                self.read_tokens(link)
            self.rest(link)
            return True
        share = link.capacity / link.count
        if share > link.bound:
            others = [m.sustained / len(m.flows) for flow in link.flows for m in flow.path if m is not link]
            link.bound = min(others, default=inf)
            if share > link.bound:
                return False
        link.rate = share
        return True

    def rest(self, link: Link) -> None:
        """A link that holds nobody back has no clock."""
        link.clock, link.rate, link.bound = 0.0, 0.0, inf
        link.held.clear()

    def _advance(self, link: Link) -> None:
        now = self.environment.now
        link.clock += link.rate * (now - link.since)
        link.since = now

    def hold(self, link: Link, flow: Flow, due: float) -> None:
        """Let a flow share the link's clock, until it reads `due`."""
        flow.owner = link
        flow.due = due
        link.count += 1
        if not flow.endless:
            self._number += 1
            heappush(link.held, (due, self._number, flow))

    def plan(self, link: Link, now: float) -> None:
        """See that the link is looked at when the first of its flows is done; too early does no harm."""
        held = link.held
        while held:
            due, _, flow = held[0]
            if flow.owner is link and flow.due == due:
                self.wake(link, due, now)
                return
            heappop(held)  # it was cancelled, or held elsewhere since
        link.wake = inf

    def wake(self, link: Link, due: float, now: float, look: _Look | None = None) -> None:
        """Look at the link when its clock will read `due`; `look` is one that is over, to be used again."""
        left = due - link.clock
        at = now + left / link.rate if left > 0 else now
        if at < link.wake:
            link.wake = at
            look = look or _Look(link)
            look.callbacks = self._looks
            heappush(self._queue, (at, NORMAL, next(self._numbers), look))

    def read_tokens(self, link: Link, coming: Flow | None = None) -> None:
        """Bring a link's tokens, and with them what it can do, up to now; `coming`: a flow that is."""
        tokens = link.tokens
        assert tokens is not None
        tokens.read(self.environment.now, self.carried(link), link.sustained)
        if coming is not None and tokens.bucket.train and not link.flows:
            tokens.begin(coming.altogether)
        link.capacity = tokens.bucket.line_rate if tokens.left > 0 else link.sustained

    def plan_tokens(self, link: Link, load: float) -> None:
        """See that the link slows down when its tokens, just read, are used up by that many bytes/s."""
        tokens = link.tokens
        if tokens is not None and tokens.left > 0 and load > link.sustained:
            delay = tokens.left / (load - link.sustained)
            tokens.empty_at = self.environment.now + delay
            Aside(self.environment, delay, partial(self._empty, link, tokens))

    def _empty(self, link: Link, tokens: Tokens, _: simpy.Event) -> None:
        if tokens.empty_at == self.environment.now:  # else the load has changed since
            self.read_tokens(link)
            self._solve_later((link,))
