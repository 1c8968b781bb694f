"""The network: messages as fluid flows that share links max-min fairly.

Hosts hang on a switch that is never full. Each has a network card with an up-link and a down-link (full
duplex). From one node to another there is one connection, which carries one message at a time, in the
order of sending, as TCP does. A message waits for the sender's per-message overhead (one at a time per
sender), then for its turn on the connection, flows over the sender's up-link and the receiver's down-link,
and arrives one latency after its last byte has left. Between nodes of one host it arrives at once.

Not modelled: packets, headers, TCP's slow start and congestion control, loss, switch buffers.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

import simpy
from simpy.events import EventPriority

from simulator.max_min import max_min

Callback = Callable[[], object]
_LAST = 9  # priority of an event that must come after all others of its instant


class Link:
    """One direction of a network card. Capacity in bytes/s."""

    __slots__ = ("capacity", "flows", "name")

    def __init__(self, name: str, capacity: float) -> None:
        self.name = name
        self.capacity = capacity
        self.flows: dict[Flow, None] = {}


class Flow:
    """A message on its way; `remaining` bytes at the instant `since`, shrinking at `rate` bytes/s."""

    __slots__ = ("done", "finish", "path", "rate", "remaining", "since")

    def __init__(self, path: tuple[Link, ...], nbytes: int, now: float, done: Callback) -> None:
        self.path = path
        self.remaining = float(nbytes)
        self.rate = 0.0
        self.since = now
        self.finish = float("inf")
        self.done = done


class Call(simpy.Event):
    """A function called after a delay."""

    def __init__(self, environment: simpy.Environment, delay: float, call: Callback, priority: int) -> None:
        super().__init__(environment)
        self._ok, self._value = True, None
        self.callbacks = [self._call]
        self.call = call
        environment.schedule(self, EventPriority(priority), delay)

    def _call(self, _: simpy.Event) -> None:
        self.call()


class Network:
    """Carries messages between nodes. `host_of[rank]` is the host of a node."""

    def __init__(
        self,
        environment: simpy.Environment,
        host_of: list[int],
        bandwidth: float | None,
        latency: float,
        overhead: float,
    ) -> None:
        """Bandwidth in bytes/s per direction and host (None: unlimited); latency and overhead in s."""
        self.environment = environment
        self.host_of = host_of
        self.latency = latency
        self.overhead = overhead
        self.bytes_sent = self.bytes_arrived = 0
        hosts = sorted(set(host_of)) if bandwidth is not None else []
        self.up = {host: Link(f"host {host}'s up-link", bandwidth or 0.0) for host in hosts}
        self.down = {host: Link(f"host {host}'s down-link", bandwidth or 0.0) for host in hosts}
        self._ready = [0.0] * len(host_of)  # when each sender has done with its messages' overheads
        self._connections: dict[tuple[int, int], deque[tuple[int, Callback, Callback]]] = {}
        self._changed: dict[Link, None] = {}  # links whose flows came or went at this instant
        self._finishes: list[tuple[float, int, Flow]] = []
        self._counter = count()

    def send(self, sender: int, to: int, nbytes: int, left: Callback, arrived: Callback) -> None:
        """Send `nbytes`; `left` is called when the last byte has left, `arrived` when it is there."""
        self.bytes_sent += nbytes
        message = (nbytes, left, arrived)
        if self.overhead:
            now = self.environment.now
            self._ready[sender] = max(now, self._ready[sender]) + self.overhead
            self._after(self._ready[sender] - now, lambda: self._enqueue(sender, to, message))
        else:
            self._enqueue(sender, to, message)

    def _enqueue(self, sender: int, to: int, message: tuple[int, Callback, Callback]) -> None:
        waiting = self._connections.setdefault((sender, to), deque())
        waiting.append(message)
        if len(waiting) == 1:
            self._start(sender, to, waiting)

    def _start(self, sender: int, to: int, waiting: deque[tuple[int, Callback, Callback]]) -> None:
        nbytes, left, arrived = waiting[0]
        local = self.host_of[sender] == self.host_of[to]

        def gone() -> None:
            waiting.popleft()
            if waiting:
                self._start(sender, to, waiting)
            self._after(0.0 if local else self.latency, there)
            left()

        def there() -> None:
            self.bytes_arrived += nbytes
            arrived()

        if local or not self.up or not nbytes:
            self._after(0.0, gone)
            return
        path = (self.up[self.host_of[sender]], self.down[self.host_of[to]])
        flow = Flow(path, nbytes, self.environment.now, gone)
        for link in path:
            link.flows[flow] = None
        self._change(path)

    def _change(self, links: tuple[Link, ...]) -> None:
        """Note that flows came or went on these links; all changes of an instant are solved once."""
        if not self._changed:
            self._after(0.0, self._solve, _LAST)
        self._changed.update(dict.fromkeys(links))

    def _solve(self) -> None:
        """Give every flow that shares links, directly or not, with a changed one its new rate."""
        now = self.environment.now
        flows: dict[Flow, None] = {}
        links = self._changed
        reached = deque(links)
        while reached:
            for flow in reached.popleft().flows:
                if flow not in flows:
                    flows[flow] = None
                    new = [link for link in flow.path if link not in links]
                    links.update(dict.fromkeys(new))
                    reached.extend(new)
        rates = max_min({flow: flow.path for flow in flows}, {link: link.capacity for link in links})
        for flow, rate in rates.items():
            if rate != flow.rate:
                flow.remaining -= flow.rate * (now - flow.since)
                flow.rate, flow.since = rate, now
                flow.finish = now + max(0.0, flow.remaining) / rate
                heappush(self._finishes, (flow.finish, next(self._counter), flow))
        for link in links:
            if sum(flow.rate for flow in link.flows) > link.capacity * (1 + 1e-9):
                raise AssertionError(f"{link.name} carries more than its capacity")
        self._changed = {}
        if self._finishes:
            finish = self._finishes[0][0]
            self._after(finish - now, lambda: self._complete(finish))

    def _complete(self, until: float) -> None:
        """End the flows that finish by then; entries of flows whose rate has changed since are void."""
        while self._finishes and self._finishes[0][0] <= until:
            finish, _, flow = heappop(self._finishes)
            if finish != flow.finish:
                continue
            flow.finish = -1.0  # no other entry of it is valid
            for link in flow.path:
                del link.flows[flow]
            self._change(flow.path)
            flow.done()
        if self._finishes and not self._changed:
            finish = self._finishes[0][0]
            self._after(finish - self.environment.now, lambda: self._complete(finish))

    def _after(self, delay: float, call: Callback, priority: int = 1) -> None:
        Call(self.environment, max(0.0, delay), call, priority)
